package client

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/sshgate"
)

// HostKeyFile is the key by which `holdfast broker connect` proves itself to the user's own ssh, in the user's folder for SSH.
const HostKeyFile = "holdfast_connect_key"

// LocalHostKey reads that key from a folder, and makes it where there is none.
func LocalHostKey(folder string) (ssh.Signer, error) {
	name := filepath.Join(folder, HostKeyFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostKey(folder, name); err == nil {
			text, err = os.ReadFile(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key by which this command proves itself to ssh: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("the key %s, by which this command proves itself to ssh, cannot be read: %w; remove it, and a new one is made", name, err)
	}
	return signer, nil
}

// makeHostKey makes the key. Of two that do so at once one wins.
func makeHostKey(folder, name string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "holdfast broker connect")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(folder, HostKeyFile+".*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Connect answers the user's own ssh, which speaks to in and out, and passes everything on to the gateway until either ends.
func Connect(in io.Reader, out io.Writer, hostKey ssh.Signer, gateway ssh.Conn, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) error {
	config := &ssh.ServerConfig{Config: sshgate.Algorithms(), NoClientAuth: true, ServerVersion: "SSH-2.0-Holdfast"}
	config.AddHostKey(hostKey)
	user, userChannels, userRequests, err := ssh.NewServerConn(stdio{in, out}, config)
	if err != nil {
		_ = gateway.Close()
		return fmt.Errorf("speaking with the ssh that started this command: %w", err)
	}
	pass(side{user, userChannels, userRequests}, side{gateway, channels, requests})
	return nil
}

// stdio is a connection over two streams. It has no deadlines: who is at the other end started this process.
type stdio struct {
	io.Reader
	io.Writer
}

// Close closes what can be closed, which ends a read that waits.
func (s stdio) Close() error {
	var failures []error
	for _, end := range []any{s.Reader, s.Writer} {
		if c, ok := end.(io.Closer); ok {
			failures = append(failures, c.Close())
		}
	}
	return errors.Join(failures...)
}

type nowhere struct{}

func (nowhere) Network() string { return "stdio" }
func (nowhere) String() string  { return "stdio" }

func (stdio) LocalAddr() net.Addr              { return nowhere{} }
func (stdio) RemoteAddr() net.Addr             { return nowhere{} }
func (stdio) SetDeadline(time.Time) error      { return nil }
func (stdio) SetReadDeadline(time.Time) error  { return nil }
func (stdio) SetWriteDeadline(time.Time) error { return nil }
