// Package door is where requesters of other machines come to a broker: an SSH server on which nothing can be done but ask.
//
// It guarantees that
//
//   - whoever comes through has proved a key that the settings list, or a certificate of an authority that they list, for the user name that he
//     came with, and is known by that name;
//   - there is no shell, no forwarding and no file: a client may open sessions and begin the subsystem "holdfast-broker" in them, and each is handed
//     on as a connection (the Door is a net.Listener) that says who is at its other end;
//   - connections, those that have not proved anything yet in particular, sessions and times are bounded.
//
// Who is known is asked anew for each connection. One that is through ends by its own, or after a time. A Door is safe for concurrent use.
package door

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
)

// Subsystem is what clients begin.
const Subsystem = "holdfast-broker"

// Limits bound a Door. Zero values become the defaults.
type Limits struct {
	Starting           int           // connections that have proved nothing yet; default 64
	StartingPerAddress int           // of one address (of IPv6: one /64); default 16
	Connections        int           // that are through; default 256
	OfOne              int           // of those, of one name; default 32
	Sessions           int           // of one connection at a time; default 4
	Handshake          time.Duration // default 20 s
	Total              time.Duration // of a connection; default 10 min
}

func (l Limits) withDefaults() Limits {
	for _, n := range []struct {
		at      *int
		instead int
	}{{&l.Starting, 64}, {&l.StartingPerAddress, 16}, {&l.Connections, 256}, {&l.OfOne, 32}, {&l.Sessions, 4}} {
		if *n.at == 0 {
			*n.at = n.instead
		}
	}
	if l.Handshake == 0 {
		l.Handshake = 20 * time.Second
	}
	if l.Total == 0 {
		l.Total = 10 * time.Minute
	}
	return l
}

// Door is the listener.
type Door struct {
	inner  net.Listener
	known  func() settings.Door
	log    *slog.Logger
	limits Limits
	ctx    context.Context
	stop   context.CancelFunc
	ready  chan net.Conn
	all    sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	starting map[netip.Addr]int
	count    int // of those that start
	through  int
	of       map[string]int // those, by name
}

// New opens a Door on a listener. Known is who is known, and the host key; it is asked for each connection.
func New(inner net.Listener, known func() settings.Door, log *slog.Logger, limits Limits) *Door {
	d := &Door{inner: inner, known: known, log: log, limits: limits.withDefaults(), ready: make(chan net.Conn), starting: map[netip.Addr]int{}, of: map[string]int{}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.all.Add(1)
	go d.accept()
	return d
}

// Addr is where it listens.
func (d *Door) Addr() net.Addr { return d.inner.Addr() }

// Accept is the next session of somebody who is known.
func (d *Door) Accept() (net.Conn, error) {
	select {
	case conn := <-d.ready:
		return conn, nil
	case <-d.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends everything and waits for that.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	err := d.inner.Close()
	d.all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (d *Door) accept() {
	defer d.all.Done()
	for {
		conn, err := d.inner.Accept()
		switch {
		case err == nil:
			d.take(conn)
		case d.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // out of file descriptors, mostly
			d.log.Warn("the broker's SSH listener cannot take a connection", "error", err)
			select {
			case <-d.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// take begins to serve a connection, or closes it where a limit is reached.
func (d *Door) take(conn net.Conn) {
	from := sshgate.Place(conn.RemoteAddr())
	d.mu.Lock()
	full := d.closed || d.count >= d.limits.Starting || d.starting[from] >= d.limits.StartingPerAddress
	if !full {
		d.count++
		d.starting[from]++
		d.all.Add(1)
	}
	d.mu.Unlock()
	if full {
		_ = conn.Close()
		return
	}
	go func() {
		defer d.all.Done()
		d.handle(conn, sync.OnceFunc(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.count--
			if d.starting[from]--; d.starting[from] == 0 {
				delete(d.starting, from)
			}
		}))
	}()
}

// enter takes a place among those that are through, where nobody takes more than his share.
func (d *Door) enter(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.through >= d.limits.Connections || d.of[name] >= d.limits.OfOne {
		return false
	}
	d.through++
	d.of[name]++
	return true
}

func (d *Door) leave(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.through--
	if d.of[name]--; d.of[name] == 0 {
		delete(d.of, name)
	}
}

// handle serves one connection to its end.
func (d *Door) handle(conn net.Conn, settled func()) {
	defer conn.Close()
	defer settled()
	stop := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(d.limits.Handshake)) // what cannot be set fails with the first read
	known := d.known()
	if known.HostKey == nil {
		return // the settings are being taken away
	}
	config := &ssh.ServerConfig{Config: sshgate.Algorithms(), ServerVersion: "SSH-2.0-Holdfast", MaxAuthTries: 20, PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		return identify(&known, meta, key, time.Now())
	}}
	config.AddHostKey(known.HostKey)
	client, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		d.log.Debug("a requester was not let in", "client", conn.RemoteAddr(), "error", err)
		return
	}
	settled()
	if !d.enter(client.User()) {
		d.log.Warn("a requester of the broker has too many connections, or all have", "who", client.User(), "client", conn.RemoteAddr())
		return
	}
	defer d.leave(client.User())
	_ = conn.SetDeadline(time.Now().Add(d.limits.Total))
	go ssh.DiscardRequests(requests)
	who := api.Identity{Name: client.User(), Certified: client.Permissions.Extensions[extensionCertified] != "", Says: client.Permissions.Extensions[extensionSays] + " from " + conn.RemoteAddr().String()}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	slots := make(chan struct{}, d.limits.Sessions)
	for n := range channels {
		if n.ChannelType() != "session" {
			_ = n.Reject(ssh.Prohibited, "nothing is forwarded here: this is a Holdfast broker")
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = n.Reject(ssh.ResourceShortage, fmt.Sprintf("at most %d sessions at a time", d.limits.Sessions))
			continue
		}
		channel, asked, err := n.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() {
			defer func() { <-slots }()
			d.session(channel, asked, who)
		})
	}
}

// session waits for the subsystem and carries what is said there.
func (d *Door) session(channel ssh.Channel, requests <-chan *ssh.Request, who api.Identity) {
	defer channel.Close()
	var carried sync.WaitGroup
	defer carried.Wait()
	begun := false
	for r := range requests {
		var name struct{ Text string }
		right := r.Type == "subsystem" && ssh.Unmarshal(r.Payload, &name) == nil && name.Text == Subsystem && !begun
		if r.WantReply {
			_ = r.Reply(right, nil)
		}
		if right {
			begun = true
			carried.Go(func() { d.carry(channel, who) })
		} else if r.Type == "shell" || r.Type == "exec" || r.Type == "subsystem" {
			_, _ = channel.Stderr().Write([]byte("holdfast: this is a broker, where nothing runs: use holdfast ssh --broker\r\n"))
			if !begun {
				return
			}
		}
	}
}

// carry hands a session on as a connection.
func (d *Door) carry(channel ssh.Channel, who api.Identity) {
	defer channel.Close()
	near, far := net.Pipe()
	defer near.Close()
	select {
	case d.ready <- &session{Conn: far, who: who}:
	case <-d.ctx.Done():
		far.Close()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(near, channel)
		_ = near.Close()
	}()
	_, _ = io.Copy(channel, near)
	_ = channel.Close()
	<-done
}

// session is a connection of somebody who is known.
type session struct {
	net.Conn
	who api.Identity
}

func (s *session) Identity() api.Identity { return s.who }

// What a proof leaves behind for the connection.
const (
	extensionCertified = "certified"
	extensionSays      = "says"
)

var errUnknown = errors.New("the key is of nobody whom this broker knows")

// identify tells whether a key makes somebody known by the user name that he came with.
func identify(known *settings.Door, meta ssh.ConnMetadata, key ssh.PublicKey, now time.Time) (*ssh.Permissions, error) {
	certificate, certified := key.(*ssh.Certificate)
	if !certified {
		for _, r := range known.Requesters {
			for _, k := range r.Keys {
				if r.Name == meta.User() && bytes.Equal(k.Marshal(), key.Marshal()) {
					return &ssh.Permissions{Extensions: map[string]string{extensionSays: "ssh key " + ssh.FingerprintSHA256(key)}}, nil
				}
			}
		}
		return nil, errUnknown
	}
	for _, a := range known.Authorities {
		if !bytes.Equal(a.Key.Marshal(), certificate.SignatureKey.Marshal()) {
			continue
		}
		if err := vouched(a, certificate, meta, now); err != nil {
			return nil, err
		}
		return &ssh.Permissions{Extensions: map[string]string{
			extensionCertified: "yes", extensionSays: fmt.Sprintf("ssh certificate %.100q serial %d of %s", certificate.KeyId, certificate.Serial, ssh.FingerprintSHA256(a.Key)),
		}}, nil
	}
	return nil, errUnknown
}

// vouched tells whether an authority may vouch for a user name, and does.
func vouched(a settings.Authority, certificate *ssh.Certificate, meta ssh.ConnMetadata, now time.Time) error {
	allowed := false
	for _, p := range a.Names {
		allowed = allowed || p.Matches(meta.User())
	}
	if !allowed {
		return fmt.Errorf("the authority may not vouch for %.60q", meta.User())
	}
	if certificate.CertType != ssh.UserCert || len(certificate.ValidPrincipals) == 0 {
		return errors.New("the certificate is none for users, or names nobody")
	}
	checker := ssh.CertChecker{Clock: func() time.Time { return now }, SupportedCriticalOptions: []string{"source-address"}}
	if err := checker.CheckCert(meta.User(), certificate); err != nil {
		return err
	}
	return fromSource(certificate, meta.RemoteAddr())
}

// fromSource tells whether a certificate may be used from an address.
func fromSource(certificate *ssh.Certificate, from net.Addr) error {
	list, bound := certificate.CriticalOptions["source-address"]
	if !bound {
		return nil
	}
	at, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return errors.New("it is not known from where the certificate is used")
	}
	for part := range bytes.SplitSeq([]byte(list), []byte(",")) {
		if prefix, err := netip.ParsePrefix(string(part)); err == nil && prefix.Contains(at.Addr().Unmap()) {
			return nil
		}
		if one, err := netip.ParseAddr(string(part)); err == nil && one == at.Addr().Unmap() {
			return nil
		}
	}
	return fmt.Errorf("the certificate is not for use from %s", at.Addr())
}
