package sshgate

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// Ledger keeps on the disk which tokens were used, so that a gateway that starts anew does not accept them a second time. It is a file of lines, the token's
// ID and until when it has to be remembered, which only grows while the gateway runs and is cleared of what is over when it starts.
// One gateway holds it at a time: two that shared a name without it would each accept the same token. It is safe for concurrent use.
type Ledger struct {
	used map[token.ID]time.Time // as found at the beginning
	held *os.File               // locked as long as the process lives

	lock  sync.Mutex
	lines *os.File
}

// maxLedger bounds the file that is read at the beginning, in bytes: some millions of sessions.
const maxLedger = 256 << 20

// OpenLedger opens the file, or makes it. A file that another gateway holds is an error, and so is one that cannot be read: what is in it must not be forgotten.
func OpenLedger(path string, now time.Time) (*Ledger, error) {
	held, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the list of used tokens: %w", err)
	}
	l := &Ledger{held: held}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("the list of used tokens %s is in use: another gateway of this name runs on this machine. Stop it, or give this one another name and directory", path), held.Close())
	}
	if l.used, err = readLedger(path, now); err == nil {
		err = l.renew(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the list of used tokens: %w", err), held.Close())
	}
	return l, nil
}

func readLedger(path string, now time.Time) (map[token.ID]time.Time, error) {
	used := map[token.ID]time.Time{}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return used, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > maxLedger {
		return nil, errors.Join(err, fmt.Errorf("%s is longer than %d MiB; when no session began for half an hour, it may be deleted", path, maxLedger>>20))
	}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		id, until, _ := strings.Cut(lines.Text(), " ")
		raw, err := hex.DecodeString(id)
		seconds, notNumber := strconv.ParseInt(until, 10, 64)
		if err != nil || notNumber != nil || len(raw) != len(token.ID{}) {
			continue // cut off by a crash: its session did not begin
		}
		if at := time.Unix(seconds, 0); now.Before(at) {
			used[token.ID(raw)] = at
		}
	}
	return used, lines.Err()
}

// renew writes what still counts into a new file and puts it in the old one's place.
func (l *Ledger) renew(path string) error {
	lines, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var text strings.Builder
	for id, until := range l.used {
		text.WriteString(ledgerLine(id, until))
	}
	_, err = lines.WriteString(text.String())
	if err = errors.Join(err, lines.Sync()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, lines.Close())
	}
	l.lines = lines
	return nil
}

// ledgerLine begins a line of its own: what stands before it may have been cut off.
func ledgerLine(id token.ID, until time.Time) string {
	return fmt.Sprintf("\n%s %d\n", id, until.Unix())
}

// Note writes down that a token was used. What it returned without an error is still known after a power cut.
func (l *Ledger) Note(id token.ID, until time.Time) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := l.lines.WriteString(ledgerLine(id, until.Add(time.Second)))
	if err == nil {
		err = unix.Fdatasync(int(l.lines.Fd()))
	}
	if err != nil {
		return fmt.Errorf("writing down a used token: %w", err)
	}
	return nil
}

// Close lets another gateway have it.
func (l *Ledger) Close() error { return errors.Join(l.lines.Close(), l.held.Close()) }
