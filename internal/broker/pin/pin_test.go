package pin

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func made(t *testing.T, name string) (tls.Certificate, Fingerprint, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "below", name+".pem")
	if err := Make(file, name, time.Now()); err != nil {
		t.Fatal(err)
	}
	pair, fingerprint, err := Load(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return pair, fingerprint, file
}

// connected are the two ends of a connection. It is one of the kernel's, which has room for what nobody has read yet: a server ends its handshake with
// session tickets, which a client takes up when it reads for the first time, and with net.Pipe both would wait for ever.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, conn := range []net.Conn{near, far} {
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return near, far
}

// TestEachKnowsTheOther: whoever has the pinned certificate is spoken to, anybody else is not, and the server learns who calls.
func TestEachKnowsTheOther(t *testing.T) {
	server, known, _ := made(t, "server")
	client, caller, _ := made(t, "client")
	call := func(c *tls.Config) (Fingerprint, bool, error) {
		near, far := connected(t)
		done := make(chan error, 1)
		go func() { done <- tls.Client(near, c).Handshake() }()
		serving := tls.Server(far, Server(server))
		if err := serving.Handshake(); err != nil {
			return Fingerprint{}, false, errors.Join(err, <-done)
		}
		state := serving.ConnectionState()
		who, shown := Of(&state)
		return who, shown, <-done
	}
	if who, shown, err := call(Client(known, &client)); err != nil || !shown || who != caller {
		t.Errorf("%v %v %v", who, shown, err)
	}
	if _, shown, err := call(Client(known, nil)); err != nil || shown {
		t.Errorf("without a certificate: %v %v", shown, err)
	}
	if _, _, err := call(Client(caller, &client)); !errors.Is(err, ErrUntrusted) {
		t.Errorf("another server: %v", err)
	}
	if _, shown := Of(nil); shown {
		t.Error("who is there without TLS?")
	}
}

// TestFiles: a certificate that is there stays, and a key that others may read is none.
func TestFiles(t *testing.T) {
	_, first, file := made(t, "a")
	if err := Make(file, "a", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, again, err := Load(file, file); err != nil || again != first {
		t.Errorf("made anew: %v %v", again, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(file, file); err == nil || !strings.Contains(err.Error(), "may be read by others") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(file, file); err == nil || !strings.Contains(err.Error(), "are not a certificate and its key") {
		t.Errorf("%v", err)
	}
}

func FuzzParseFingerprint(f *testing.F) {
	f.Add("sha256:" + strings.Repeat("ab", 32))
	f.Add(strings.Repeat("AB:", 31) + "AB")
	f.Fuzz(func(t *testing.T, text string) {
		if fingerprint, err := ParseFingerprint(text); err == nil {
			if again, err := ParseFingerprint(fingerprint.String()); err != nil || again != fingerprint {
				t.Errorf("%q: %v, %v", text, again, err)
			}
		}
	})
}
