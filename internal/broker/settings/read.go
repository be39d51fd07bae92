package settings

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
)

// Stamp tells whether a file has changed.
type Stamp struct {
	There    bool
	Modified time.Time
	Size     int64
}

// Look is the present stamp of a file.
func Look(name string) Stamp {
	info, err := os.Stat(name)
	if err != nil {
		return Stamp{}
	}
	return Stamp{true, info.ModTime(), info.Size()}
}

// Read reads a file and the keys that it names; nil without an error if there is no file.
func Read(name string) (*Settings, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the broker's configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the broker's configuration: %w", err)
	}
	s, err := Parse(name, data)
	if err != nil {
		return nil, err
	}
	raw, err := private("signing key", s.SigningKeyFile)
	if err != nil {
		return nil, err
	}
	key, ok := raw.(*ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the signing key %s is not an Ed25519 key; make one: ssh-keygen -t ed25519 -N '' -f %s", s.SigningKeyFile, s.SigningKeyFile)
	}
	s.SigningKey = *key
	if s.Door.Listen != "" {
		if raw, err = private("host key", s.Door.HostKeyFile); err != nil {
			return nil, err
		}
		if s.Door.HostKey, err = ssh.NewSignerFromKey(raw); err != nil {
			return nil, fmt.Errorf("the host key %s cannot be used: %w", s.Door.HostKeyFile, err)
		}
	}
	return s, nil
}

// maxKeyFile bounds a file with a private key.
const maxKeyFile = 64 << 10

// private reads an SSH private key that nobody else may read.
func private(what, name string) (any, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s %s; make one: ssh-keygen -t ed25519 -N '' -f %s", what, name, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the %s %s may be read by others; whoever has read it may have it still. Make a new one, or chmod 600 %s", what, name, name)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	key, err := ssh.ParseRawPrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("reading the %s %s: %w; it must be an SSH private key without a passphrase", what, name, err)
	}
	return key, nil
}
