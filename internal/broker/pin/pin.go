// Package pin lets two programs of a fleet know each other by the SHA-256 of their certificates, and by nothing else: no names, no
// authorities, no dates. Each makes its own certificate; an operator carries the fingerprints from one to the other.
//
// It guarantees that a client speaks only to the holder of the certificate that was pinned, and that a server says whose certificate
// a caller has proved to hold. Who may do what is for the caller of this package. Keys are files that only their owner reads.
// Everything here may be used from several goroutines.
package pin

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

// ParseFingerprint reads 64 hexadecimal digits, in which colons may stand, with or without "sha256:" before them.
func ParseFingerprint(text string) (f Fingerprint, err error) {
	digits := strings.ReplaceAll(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "sha256:"), ":", "")
	if n, err := hex.Decode(f[:], []byte(digits[:min(len(digits), 2*len(f))])); err != nil || n != len(f) || len(digits) != 2*len(f) {
		return Fingerprint{}, fmt.Errorf("%.80q is not the SHA-256 fingerprint of a certificate: that has 64 hexadecimal digits", text)
	}
	return f, nil
}

// String is "sha256:" and the digits.
func (f Fingerprint) String() string { return "sha256:" + hex.EncodeToString(f[:]) }

// Of is the fingerprint of whoever is at the other end; false if they have shown no certificate.
func Of(s *tls.ConnectionState) (Fingerprint, bool) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return Fingerprint{}, false
	}
	return sha256.Sum256(s.PeerCertificates[0].Raw), true
}

// ErrUntrusted marks a certificate that is not the pinned one.
var ErrUntrusted = errors.New("the certificate is not the one that was linked")

// Client is the TLS of a caller that speaks only to the holder of one certificate. With a certificate of its own it proves who it is.
func Client(want Fingerprint, own *tls.Certificate) *tls.Config {
	c := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is checked by its fingerprint, in VerifyConnection
		MinVersion:         tls.VersionTLS12,
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(&s, want) },
	}
	if own != nil {
		c.Certificates = []tls.Certificate{*own}
	}
	return c
}

func verify(s *tls.ConnectionState, want Fingerprint) error {
	got, shown := Of(s)
	if !shown {
		return fmt.Errorf("%w: there is none", ErrUntrusted)
	}
	if got != want {
		return fmt.Errorf("%w: %s came, %s was linked", ErrUntrusted, got, want)
	}
	return nil
}

// Server is the TLS of a server that asks its callers who they are, and lets the handler judge (Of). Whoever shows a certificate has
// proved to hold its key.
func Server(own tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert}
}
