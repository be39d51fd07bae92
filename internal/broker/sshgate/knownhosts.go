package sshgate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// KnownHosts are the host keys of targets, in files of OpenSSH's format (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), @cert-authority and @revoked included.
// A file that changes is read again with the next session; while one cannot be read, nothing of it is believed.
type KnownHosts struct {
	files []string

	lock        sync.Mutex
	seen        []wholefile.State
	check       ssh.HostKeyCallback
	authorities map[string]bool // file:line of lines with @cert-authority
}

// NewKnownHosts reads the files.
func NewKnownHosts(files ...string) (*KnownHosts, error) {
	k := &KnownHosts{files: files}
	return k, k.refresh()
}

// refresh reads the files again if one has changed. The lock is held, or nobody knows k yet.
func (k *KnownHosts) refresh() error {
	seen, now := make([]wholefile.State, len(k.files)), time.Now()
	for i, name := range k.files {
		var err error
		if seen[i], err = wholefile.Look(name, now); err != nil {
			return fmt.Errorf("reading the host keys of targets: %w", err)
		}
	}
	if k.check != nil && slices.EqualFunc(k.seen, seen, wholefile.State.Same) {
		return nil
	}
	check, err := knownhosts.New(k.files...)
	if err != nil {
		return fmt.Errorf("reading the host keys of targets: %w", err)
	}
	authorities := map[string]bool{}
	for _, name := range k.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading the host keys of targets: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for n := 1; lines.Scan(); n++ {
			if strings.HasPrefix(strings.TrimSpace(lines.Text()), "@cert-authority") {
				authorities[fmt.Sprintf("%s:%d", name, n)] = true
			}
		}
	}
	k.seen, k.check, k.authorities = seen, check, authorities
	return nil
}

// unknownKey is a key that no host has; asking about it tells which ones are on record.
type unknownKey struct{}

func (unknownKey) Type() string                        { return "none" }
func (unknownKey) Marshal() []byte                     { return []byte("none") }
func (unknownKey) Verify([]byte, *ssh.Signature) error { return errors.New("no key") }

// For returns the check for a target (host:port), and the algorithms to ask for: those of the keys that are on record, since a target that shows another of its
// keys would look like an impostor. A target of which nothing is on record is an error.
func (k *KnownHosts) For(address string) (ssh.HostKeyCallback, []string, error) {
	k.lock.Lock()
	defer k.lock.Unlock()
	if err := k.refresh(); err != nil {
		return nil, nil, err
	}
	var known *knownhosts.KeyError
	if err := k.check(address, &net.TCPAddr{IP: net.IPv4zero}, unknownKey{}); !errors.As(err, &known) || len(known.Want) == 0 {
		return nil, nil, fmt.Errorf("no host key is on record for %s, so it cannot be told from an impostor. An administrator adds it to %s, for example by ssh-keyscan and a comparison with the target's own /etc/ssh/ssh_host_ed25519_key.pub",
			address, strings.Join(k.files, " or "))
	}
	var algorithms, plain []string
	for _, want := range known.Want {
		if k.authorities[fmt.Sprintf("%s:%d", want.Filename, want.Line)] {
			algorithms = []string{ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01, ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01}
			continue
		}
		if want.Key.Type() == ssh.KeyAlgoRSA {
			plain = append(plain, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			plain = append(plain, want.Key.Type())
		}
	}
	check := k.check
	return func(address string, remote net.Addr, key ssh.PublicKey) error {
		if err := check(address, remote, key); err != nil {
			return impostor(address, key, err)
		}
		return nil
	}, append(algorithms, plain...), nil
}

// hostKeyError is why a target was not believed. Its text is for the user.
type hostKeyError struct{ text string }

func (e *hostKeyError) Error() string { return e.text }

// impostor says what is wrong with a host key.
func impostor(address string, key ssh.PublicKey, err error) error {
	const advice = "Nothing was sent to it. If the target was set up anew, an administrator replaces its key in the gateway's known hosts; if not, somebody may be in between."
	var mismatch *knownhosts.KeyError
	var revoked *knownhosts.RevokedError
	switch {
	case errors.As(err, &revoked):
		return &hostKeyError{fmt.Sprintf("the host key of %s is revoked (%s:%d). %s", address, revoked.Revoked.Filename, revoked.Revoked.Line, advice)}
	case errors.As(err, &mismatch) && len(mismatch.Want) > 0:
		var lines []string
		for _, want := range mismatch.Want[:min(len(mismatch.Want), 4)] {
			lines = append(lines, fmt.Sprintf("%s %s (%s:%d)", want.Key.Type(), ssh.FingerprintSHA256(want.Key), want.Filename, want.Line))
		}
		return &hostKeyError{fmt.Sprintf("the host key of %s has changed: it shows %s %s, and on record is %s. %s", address, key.Type(), ssh.FingerprintSHA256(key), strings.Join(lines, ", "), advice)}
	}
	return &hostKeyError{fmt.Sprintf("the host key of %s is not believed: %v. %s", address, err, advice)}
}
