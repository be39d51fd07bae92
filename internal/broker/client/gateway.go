// Package client is the user's side of a session: it reaches the gateway that a broker has chosen, shows it the token, and carries what the user's
// own programs say.
//
// It guarantees that a token is shown only to a gateway that has proved one of the host keys that the broker named, that it stands in no argument
// and no variable of a program, and that it is of no use to whoever reads it all the same: it is bound to a key that is made for the one session and
// does not leave the process, or a folder that only the user reads and that goes with the session.
//
// It knows no broker: who asks one, and what is done when a gateway does not answer, is its caller's.
package client

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/sshgate"
)

// Gateway is a gateway as a launch answers it.
type Gateway struct {
	Name      string
	Addresses []string
	Port      uint16
	HostKeys  []string // as in authorized_keys; without one nothing is begun
	Token     string
}

// Key is the key of one session, to which its token is bound.
type Key struct {
	private ed25519.PrivateKey
	signer  ssh.Signer
}

// NewKey makes one.
func NewKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, err
	}
	return &Key{private, signer}, nil
}

// Public is its public half, as in authorized_keys.
func (k *Key) Public() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.signer.PublicKey())))
}

// maxBanner bounds what is read of an SSH server before it says which version it speaks.
const maxBanner = 8 << 10

// Knock finds the address at which a gateway answers as an SSH server does, within the context.
func Knock(ctx context.Context, g Gateway) (address string, err error) {
	var failures []error
	for _, at := range g.Addresses {
		conn, err := dial(ctx, at, g.Port, len(g.Addresses))
		if err == nil {
			err = speaksSSH(conn)
			_ = conn.Close()
		}
		if err == nil {
			return at, nil
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return "", errors.New("no address of it is known")
	}
	return "", errors.Join(failures...)
}

// dial connects to one address of several, with its share of the time.
func dial(ctx context.Context, at string, port uint16, of int) (net.Conn, error) {
	deadline, bounded := ctx.Deadline()
	if bounded {
		deadline = time.Now().Add(time.Until(deadline) / time.Duration(of))
	}
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", net.JoinHostPort(at, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	if bounded {
		_ = conn.SetDeadline(deadline) // what cannot be set fails with the first read
	}
	return conn, nil
}

func speaksSSH(conn net.Conn) error {
	lines := bufio.NewReaderSize(conn, maxBanner)
	for read := 0; read < maxBanner; {
		line, err := lines.ReadString('\n')
		if read += len(line); strings.HasPrefix(line, "SSH-2.0-") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s takes a connection and does not answer as an SSH server: %w", conn.RemoteAddr(), err)
		}
	}
	return fmt.Errorf("%s answers, but not as an SSH server", conn.RemoteAddr())
}

// keys are the host keys that a broker has named.
func (g Gateway) keys() (keys []ssh.PublicKey, err error) {
	for _, text := range g.HostKeys {
		if key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text)); err == nil { // others are of a kind that this version does not know
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("the broker names no host key of the gateway %s, so that it cannot be told from an impostor", g.Name)
	}
	return keys, nil
}

// pinned accepts the host keys that a broker has named, and no other.
func (g Gateway) pinned() (ssh.HostKeyCallback, []string, error) {
	keys, err := g.keys()
	if err != nil {
		return nil, nil, err
	}
	var algorithms []string
	for _, key := range keys {
		if key.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			algorithms = append(algorithms, key.Type())
		}
	}
	return func(_ string, _ net.Addr, shown ssh.PublicKey) error {
		for _, key := range keys {
			if string(key.Marshal()) == string(shown.Marshal()) {
				return nil
			}
		}
		return fmt.Errorf("the gateway %s shows the host key %s, which the broker does not know: somebody may stand in between", g.Name, ssh.FingerprintSHA256(shown))
	}, algorithms, nil
}

// Enter opens the SSH connection to a gateway, with the token. What the gateway says before that is given to say.
func Enter(ctx context.Context, g Gateway, key *Key, say func(string)) (ssh.Conn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	callback, algorithms, err := g.pinned()
	if err != nil {
		return nil, nil, nil, err
	}
	config := &ssh.ClientConfig{
		Config: sshgate.Algorithms(), User: g.Token, Auth: []ssh.AuthMethod{ssh.PublicKeys(key.signer)}, HostKeyCallback: callback, HostKeyAlgorithms: algorithms,
		ClientVersion: "SSH-2.0-Holdfast", BannerCallback: func(text string) error { say(strings.TrimSpace(text)); return nil },
	}
	var failures []error
	for _, at := range g.Addresses {
		conn, err := dial(ctx, at, g.Port, len(g.Addresses))
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
			client, channels, requests, failure := ssh.NewClientConn(conn, conn.RemoteAddr().String(), config)
			if stop() && failure == nil {
				_ = conn.SetDeadline(time.Time{})
				return client, channels, requests, nil
			}
			_ = conn.Close()
			err = errors.Join(failure, ctx.Err())
		}
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return nil, nil, nil, errors.New("no address of it is known")
	}
	return nil, nil, nil, errors.Join(failures...)
}
