package door

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/broker/grants"
	"github.com/holdfast/holdfast/internal/broker/settings"
)

// patience is longer than anything here takes.
const patience = 20 * time.Second

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// certify makes a certificate for a key, as edit has it.
func certify(t *testing.T, key, authority ssh.Signer, edit func(*ssh.Certificate)) ssh.Signer {
	t.Helper()
	c := &ssh.Certificate{
		Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "anna's laptop", Serial: 7, ValidPrincipals: []string{"anna"},
		ValidAfter: uint64(time.Now().Add(-time.Hour).Unix()), ValidBefore: uint64(time.Now().Add(time.Hour).Unix()),
	}
	if edit != nil {
		edit(c)
	}
	if err := c.SignCert(rand.Reader, authority); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(c, key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// place is a door with whom it knows.
type place struct {
	*Door
	host ssh.Signer
}

func open(t *testing.T, known settings.Door, limits Limits) *place {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	known.HostKey = newKey(t)
	p := &place{New(listener, func() settings.Door { return known }, slog.New(slog.DiscardHandler), limits), known.HostKey}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// knock comes to the door as somebody, with a key or certificate.
func (p *place) knock(t *testing.T, user string, key ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	client, err := ssh.Dial("tcp", p.Addr().String(), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(p.host.PublicKey()), Timeout: patience,
	})
	if err == nil {
		t.Cleanup(func() { _ = client.Close() })
	}
	return client, err
}

// ask begins a session with the subsystem.
func ask(t *testing.T, client *ssh.Client) (*ssh.Session, error) {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	return session, session.RequestSubsystem(Subsystem)
}

// TestWhoComesThrough: by which keys and certificates somebody is known, and by which nobody is.
func TestWhoComesThrough(t *testing.T) {
	anna, bert, stranger, authority, other := newKey(t), newKey(t), newKey(t), newKey(t), newKey(t)
	p := open(t, settings.Door{
		Requesters:  []settings.Requester{{Name: "anna", Keys: []ssh.PublicKey{anna.PublicKey()}}, {Name: "bert", Keys: []ssh.PublicKey{bert.PublicKey()}}},
		Authorities: []settings.Authority{{Key: authority.PublicKey(), Names: []grants.Pattern{"anna", "ops-*"}}},
	}, Limits{})
	fresh := newKey(t)
	for _, c := range []struct {
		why, user string
		key       ssh.Signer
		through   bool
	}{
		{"a key that is listed", "anna", anna, true},
		{"a key that is another's", "anna", bert, false},
		{"a key that nobody knows", "anna", stranger, false},
		{"a name in other letters", "Anna", anna, false},
		{"no name", "", anna, false},
		{"a certificate of the authority", "anna", certify(t, fresh, authority, nil), true},
		{"one for another name", "bert", certify(t, fresh, authority, nil), false},
		{"one for a name that the authority may not vouch for", "root", certify(t, fresh, authority, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"root"} }), false},
		{"one for a name of a pattern", "ops-7", certify(t, fresh, authority, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"ops-7"} }), true},
		{"one for everybody", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.ValidPrincipals = nil }), false},
		{"one of another authority", "anna", certify(t, fresh, other, nil), false},
		{"one by a requester's own key", "anna", certify(t, fresh, anna, nil), false},
		{"one that has run out", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.ValidBefore = uint64(time.Now().Add(-time.Minute).Unix()) }), false},
		{"one that is not valid yet", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.ValidAfter = uint64(time.Now().Add(time.Minute).Unix()) }), false},
		{"one for hosts", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }), false},
		{"one for use from here", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) {
			c.CriticalOptions = map[string]string{"source-address": "192.0.2.0/24,127.0.0.1"}
		}), true},
		{"one for use from elsewhere", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"source-address": "192.0.2.0/24"} }), false},
		{"one with an option that is not known", "anna", certify(t, fresh, authority, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "true"} }), false},
		{"a listed key with a certificate of nobody's", "anna", certify(t, anna, other, nil), false},
	} {
		t.Run(c.why, func(t *testing.T) {
			client, err := p.knock(t, c.user, c.key)
			if c.through != (err == nil) {
				t.Fatalf("%v", err)
			}
			if err != nil {
				return
			}
			if _, err := ask(t, client); err != nil {
				t.Fatal(err)
			}
			conn, err := p.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			who := conn.(api.Identified).Identity()
			if _, certified := c.key.PublicKey().(*ssh.Certificate); who.Name != c.user || who.Certified != certified || who.Says == "" {
				t.Errorf("%+v", who)
			}
		})
	}
}

// TestWhatIsSaidIsCarried: a session is a connection, both ways, until either end closes it.
func TestWhatIsSaidIsCarried(t *testing.T) {
	anna := newKey(t)
	p := open(t, settings.Door{Requesters: []settings.Requester{{Name: "anna", Keys: []ssh.PublicKey{anna.PublicKey()}}}}, Limits{})
	client, err := p.knock(t, "anna", anna)
	if err != nil {
		t.Fatal(err)
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	in, _ := session.StdinPipe()
	out, _ := session.StdoutPipe()
	if err := session.RequestSubsystem(Subsystem); err != nil {
		t.Fatal(err)
	}
	conn, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = in.Write([]byte("who is alive?")) }()
	text := make([]byte, len("who is alive?"))
	if _, err := io.ReadFull(conn, text); err != nil || string(text) != "who is alive?" {
		t.Fatalf("%q, %v", text, err)
	}
	go func() { _, _ = conn.Write([]byte("gw2")); _ = conn.Close() }()
	if answer, err := io.ReadAll(out); err != nil || string(answer) != "gw2" {
		t.Fatalf("%q, %v", answer, err)
	}
}

// TestNothingElseCanBeDone: no command, no shell, no other subsystem, no forwarding.
func TestNothingElseCanBeDone(t *testing.T) {
	anna := newKey(t)
	p := open(t, settings.Door{Requesters: []settings.Requester{{Name: "anna", Keys: []ssh.PublicKey{anna.PublicKey()}}}}, Limits{})
	client, err := p.knock(t, "anna", anna)
	if err != nil {
		t.Fatal(err)
	}
	for what, try := range map[string]func(*ssh.Session) error{
		"a command":         func(s *ssh.Session) error { return s.Run("id") },
		"a shell":           func(s *ssh.Session) error { return s.Shell() },
		"another subsystem": func(s *ssh.Session) error { return s.RequestSubsystem("sftp") },
		"a variable":        func(s *ssh.Session) error { return s.Setenv("LD_PRELOAD", "x") },
		"a terminal":        func(s *ssh.Session) error { return s.RequestPty("xterm", 24, 80, nil) },
		"the subsystem twice": func(s *ssh.Session) error {
			return errors.Join(s.RequestSubsystem(Subsystem), s.RequestSubsystem(Subsystem))
		},
	} {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		var says bytes.Buffer
		session.Stderr = &says
		if what == "the subsystem twice" {
			go func() {
				if conn, err := p.Accept(); err == nil {
					_ = conn.Close()
				}
			}()
		}
		if err := try(session); err == nil {
			t.Errorf("%s is to be had", what)
		}
		_ = session.Close()
	}
	if conn, err := client.Dial("tcp", p.Addr().String()); err == nil {
		t.Error("a connection was forwarded")
		_ = conn.Close()
	}
	if listener, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a port was opened")
		_ = listener.Close()
	}
}

// TestBounds: what is more than a door takes is closed or refused, and what goes makes room.
func TestBounds(t *testing.T) {
	anna, bert := newKey(t), newKey(t)
	known := settings.Door{Requesters: []settings.Requester{{Name: "anna", Keys: []ssh.PublicKey{anna.PublicKey()}}, {Name: "bert", Keys: []ssh.PublicKey{bert.PublicKey()}}}}

	t.Run("connections that prove nothing, from one address", func(t *testing.T) {
		p := open(t, known, Limits{Starting: 4, StartingPerAddress: 2})
		var held []net.Conn
		for range 2 {
			held = append(held, silent(t, p))
		}
		if _, err := p.knock(t, "anna", anna); err == nil {
			t.Fatal("a third one is taken")
		}
		_ = held[0].Close()
		again(t, func() bool { _, err := p.knock(t, "anna", anna); return err == nil })
	})
	t.Run("one that proves nothing is cut off", func(t *testing.T) {
		p := open(t, known, Limits{Handshake: 50 * time.Millisecond})
		conn := silent(t, p)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatalf("it is not closed: %v", err)
		}
	})
	t.Run("of one name, so that others have room", func(t *testing.T) {
		p := open(t, known, Limits{Connections: 3, OfOne: 2})
		first, err := p.knock(t, "anna", anna)
		if err != nil {
			t.Fatal(err)
		}
		second, err := p.knock(t, "anna", anna)
		if err != nil {
			t.Fatal(err)
		}
		// What has proved its key is through for the client before it is counted; sessions tell.
		for _, client := range []*ssh.Client{first, second} {
			mayAsk(t, p, client, true)
		}
		if third, err := p.knock(t, "anna", anna); err == nil {
			mayAsk(t, p, third, false)
		}
		other, err := p.knock(t, "bert", bert)
		if err != nil {
			t.Fatal(err)
		}
		mayAsk(t, p, other, true)
		if more, err := p.knock(t, "bert", bert); err == nil {
			mayAsk(t, p, more, false) // all places are taken
		}
		_ = first.Close()
		again(t, func() bool {
			client, err := p.knock(t, "anna", anna)
			if err != nil {
				return false
			}
			session, err := client.NewSession()
			if err == nil {
				_ = session.Close()
			}
			return err == nil
		})
	})
	t.Run("sessions of one connection", func(t *testing.T) {
		p := open(t, known, Limits{Sessions: 2})
		client, err := p.knock(t, "anna", anna)
		if err != nil {
			t.Fatal(err)
		}
		var held []*ssh.Session
		for range 2 {
			session, err := client.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, session)
		}
		if _, err := client.NewSession(); err == nil {
			t.Fatal("a third one is taken")
		}
		_ = held[0].Close()
		again(t, func() bool { _, err := client.NewSession(); return err == nil })
	})
}

// silent connects and says nothing, and returns when it has its place.
func silent(t *testing.T, p *place) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, len("SSH-2.0-"))); err != nil {
		t.Fatal(err)
	}
	return conn
}

// mayAsk tells whether a connection has a place.
func mayAsk(t *testing.T, p *place, client *ssh.Client, want bool) {
	t.Helper()
	session, err := client.NewSession()
	if err == nil {
		_ = session.Close()
	}
	if want != (err == nil) {
		t.Fatalf("want %v: %v", want, err)
	}
}

// again tries until it succeeds: the server learns by itself that a client has gone.
func again(t *testing.T, try func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !try(); {
		if time.Now().After(end) {
			t.Fatal("what has gone makes no room")
		}
	}
}

// TestClosing ends those who are through and those who wait, and waits for them.
func TestClosing(t *testing.T) {
	anna := newKey(t)
	p := open(t, settings.Door{Requesters: []settings.Requester{{Name: "anna", Keys: []ssh.PublicKey{anna.PublicKey()}}}}, Limits{})
	client, err := p.knock(t, "anna", anna)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, client); err != nil { // and nobody accepts it
		t.Fatal(err)
	}
	silent(t, p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
	_ = client.Wait()
}
