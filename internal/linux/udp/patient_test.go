package udp

import (
	"errors"
	"os"
	"testing"
)

func listenPatient(t testing.TB, x *Exchange) *Patient {
	t.Helper()
	s := listenService(t, "127.0.0.1:0")
	fd, err := s.Share() // s closes its own
	if err != nil {
		t.Fatal(err)
	}
	shared, err := Adopt(fd)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPatient(shared, x)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// A patient reader takes what waits at once, waits for what does not, and is not held up by what came between two calls.
func TestPatience(t *testing.T) {
	x := NewExchange(4, 32)
	p, one := listenPatient(t, x), listen(t, "127.0.0.1:0")
	for round := range 50 {
		ask(t, one, p.Socket, "early")
		if n, err := p.Receive(); n != 1 || err != nil || string(x.Datagram(0)) != "early" {
			t.Fatalf("round %d: %d, %v", round, n, err)
		}
		type took struct {
			n   int
			err error
		}
		waiting, done := make(chan struct{}), make(chan took, 1)
		go func() {
			close(waiting)
			n, err := p.Receive()
			done <- took{n, err}
		}()
		<-waiting
		ask(t, one, p.Socket, "late")
		if got := <-done; got.n != 1 || got.err != nil {
			t.Fatalf("round %d: %+v", round, got)
		}
	}
}

// An interruption ends the wait, and those after it, until it is over; what has come meanwhile is received then. Closing ends it for good.
func TestInterruptions(t *testing.T) {
	x := NewExchange(4, 32)
	p, one := listenPatient(t, x), listen(t, "127.0.0.1:0")
	done := make(chan error, 1)
	go func() { _, err := p.Receive(); done <- err }()
	if err := p.Interrupt(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
	ask(t, one, p.Socket, "meanwhile")
	if n, err := p.Receive(); n != 0 || !errors.Is(err, ErrInterrupted) {
		t.Errorf("while interrupted: %d, %v", n, err)
	}
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	if n, err := p.Receive(); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
	go func() { _, err := p.Receive(); done <- err }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || errors.Is(err, ErrInterrupted) {
		t.Errorf("closed: %v", err)
	}
}

// A file that is no socket is refused, and closed.
func TestImpatient(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := (&Socket{fd: int(file.Fd())}).Share()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := NewPatient(&Socket{fd: fd}, NewExchange(1, 1)); err == nil {
		t.Errorf("%+v", p)
	}
}

// What the kernel drops, because nobody reads, is counted at the socket, whoever has it.
func TestOverflow(t *testing.T) {
	const sent = 1 << 12
	x := NewExchange(4, 1500)
	p, one := listenPatient(t, x), listen(t, "127.0.0.1:0")
	if n, err := p.Overflowed(); n != 0 || err != nil {
		t.Fatalf("at first %d, %v", n, err)
	}
	for range sent {
		ask(t, one, p.Socket, string(make([]byte, 1500)))
	}
	lost, err := p.Overflowed()
	if lost == 0 || err != nil {
		t.Fatalf("%d lost, %v", lost, err)
	}
	ask(t, one, p.Socket, string(make([]byte, 1500)))
	if again, err := p.Overflowed(); again != lost+1 || err != nil {
		t.Errorf("%d lost, then %d, %v", lost, again, err)
	}
	read := 0
	for {
		n, err := x.Receive(p.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		read += n
	}
	if read+int(lost) != sent {
		t.Errorf("%d were read and %d lost, of %d", read, lost, sent)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Overflowed(); err == nil {
		t.Error("a closed socket has a count")
	}
}
