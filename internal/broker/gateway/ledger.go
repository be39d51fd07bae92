package gateway

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// usedTokens keeps on the disk which tokens were used, so that a gateway that starts anew does not accept them a second time. It is a file of lines, the token's
// ID and until when it has to be remembered, which only grows while the gateway runs and is cleared of what is over when it starts.
// One gateway holds it at a time: two that shared a name without it would each accept the same token. It is safe for concurrent use.
type usedTokens struct {
	used map[token.ID]time.Time // as found at the beginning
	held *os.File               // locked as long as the process lives

	lock  sync.Mutex
	lines *os.File
}

// maxUsed bounds the file that is read at the beginning, in bytes: some millions of sessions.
const maxUsed = 256 << 20

// openUsed opens the file, or makes it. A file that another gateway holds is an error, and so is one that cannot be read: what is in it must not be forgotten.
func openUsed(path string, now time.Time) (*usedTokens, error) {
	held, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the list of used tokens: %w", err)
	}
	l := &usedTokens{held: held}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("the list of used tokens %s is in use: another gateway of this name runs on this machine. Stop it, or give this one another name and directory", path), held.Close())
	}
	if l.used, err = readUsed(path, now); err == nil {
		err = l.renew(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the list of used tokens: %w", err), held.Close())
	}
	return l, nil
}

func readUsed(path string, now time.Time) (map[token.ID]time.Time, error) {
	used := map[token.ID]time.Time{}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return used, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > maxUsed {
		return nil, errors.Join(err, fmt.Errorf("%s is longer than %d MiB; when no session began for half an hour, it may be deleted", path, maxUsed>>20))
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

// renew leaves in the file what still counts, and opens it for what comes.
func (l *usedTokens) renew(path string) error {
	var text bytes.Buffer
	for id, until := range l.used {
		text.WriteString(usedLine(id, until))
	}
	err := wholefile.Replace(path, text.Bytes())
	if err == nil {
		l.lines, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	}
	return err
}

// usedLine begins a line of its own: what stands before it may have been cut off.
func usedLine(id token.ID, until time.Time) string {
	return fmt.Sprintf("\n%s %d\n", id, until.Unix())
}

// Used are the tokens that were on record at the beginning, and until when each counts.
func (l *usedTokens) Used() map[token.ID]time.Time { return l.used }

// Note writes down that a token was used. What it returned without an error is still known after a power cut.
func (l *usedTokens) Note(id token.ID, until time.Time) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := l.lines.WriteString(usedLine(id, until.Add(time.Second)))
	if err == nil {
		err = l.lines.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing down a used token: %w", err)
	}
	return nil
}

// Close lets another gateway have it.
func (l *usedTokens) Close() error { return errors.Join(l.lines.Close(), l.held.Close()) }
