package gateway

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/sshgate"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// readPrivate reads an SSH private key that nobody else may read. What says what it is for.
func readPrivate(what, file string) (ssh.Signer, error) {
	key, err := readRaw(what, file)
	if err != nil {
		return nil, err
	}
	return ssh.NewSignerFromKey(key)
}

func readRaw(what, file string) (any, error) {
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s %s; make one: ssh-keygen -t ed25519 -N '' -f %s", what, file, file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the %s %s may be read by others; whoever has read it may have it still. Make a new one, or chmod 600 %s", what, file, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	key, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w; it must be an SSH private key without a passphrase", what, file, err)
	}
	return key, nil
}

// readBrokerKey reads the private key of a broker.
func readBrokerKey(file string) (ed25519.PrivateKey, error) {
	raw, err := readRaw("broker key", file)
	if err != nil {
		return nil, err
	}
	switch key := raw.(type) {
	case *ed25519.PrivateKey:
		return *key, nil
	case ed25519.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("the broker key %s is not an Ed25519 key; make one: ssh-keygen -t ed25519", file)
}

// maxBrokers bounds the keys in a file.
const maxBrokers = 1000

// errNoKey is the error of a file without keys. At the start that is a mistake; later it is how the last broker's key is taken away.
var errNoKey = errors.New("has no key, so that no token is good")

// parseBrokers reads public keys, one on a line as in authorized_keys.
func parseBrokers(name string, text []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d is not a public key: write it as ssh-keygen does (ssh-ed25519 AAAA... name)", name, n)
		}
		wrapped, ok := parsed.(ssh.CryptoPublicKey)
		if !ok {
			return nil, fmt.Errorf("%s:%d: brokers sign with Ed25519 keys, and this is %s", name, n, parsed.Type())
		}
		key, ok := wrapped.CryptoPublicKey().(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%s:%d: brokers sign with Ed25519 keys, and this is %s", name, n, parsed.Type())
		}
		if keys = append(keys, key); len(keys) > maxBrokers {
			return nil, fmt.Errorf("%s has more than %d keys", name, maxBrokers)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s %w", name, errNoKey)
	}
	return keys, nil
}

// brokers are the keys in a file that may change while the gateway runs. A file that cannot be read any more changes nothing, and is complained of;
// one from which all keys were taken leaves none.
type brokers struct {
	file   string
	logger *slog.Logger

	lock sync.Mutex
	seen wholefile.State
	keys []ed25519.PublicKey
}

func openBrokers(file string, logger *slog.Logger) (*brokers, error) {
	b := &brokers{file: file, logger: logger}
	return b, b.refresh()
}

func (b *brokers) refresh() error {
	seen, err := wholefile.Look(b.file, time.Now())
	if err != nil {
		return fmt.Errorf("reading the brokers' keys: %w", err)
	}
	if b.seen.Same(seen) {
		return nil
	}
	text, err := os.ReadFile(b.file)
	if err != nil {
		return fmt.Errorf("reading the brokers' keys: %w", err)
	}
	keys, err := parseBrokers(b.file, text)
	switch {
	case errors.Is(err, errNoKey) && b.keys != nil:
		b.logger.Error("no session can begin", "error", err)
	case err != nil:
		return err
	}
	b.seen, b.keys = seen, keys
	return nil
}

// known returns the keys as the file has them now.
func (b *brokers) known() []ed25519.PublicKey {
	b.lock.Lock()
	defer b.lock.Unlock()
	if err := b.refresh(); err != nil {
		b.logger.Error("the brokers' keys stay as they were", "error", err)
	}
	return b.keys
}

// readClientKey reads the public key to which a token is to be bound.
func readClientKey(file string) ([32]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return [32]byte{}, fmt.Errorf("reading the user's public key: %w", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(text)
	if err != nil {
		return [32]byte{}, fmt.Errorf("%s is not a public key: write it as ssh-keygen does (ssh-ed25519 AAAA... name)", file)
	}
	return sshgate.KeyHash(key), nil
}
