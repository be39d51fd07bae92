package agent

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// handoverPair are the two ends of a handover: the running agent's, and the new one's.
func handoverPair(t *testing.T) (running, next *net.UnixConn) {
	t.Helper()
	name := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
	listener, err := net.ListenUnix("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if next, err = net.DialUnix("unix", nil, name); err != nil {
		t.Fatal(err)
	}
	if running, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { running.Close(); next.Close() })
	return running, next
}

// TestOneOfTheTwoGoesOn: a new agent that takes the offer has it, though it dies right afterwards; one that is too late cannot take it any
// more, and one that says nothing has not.
func TestOneOfTheTwoGoesOn(t *testing.T) {
	taken := []byte{byteTaken}
	running, next := handoverPair(t)
	if _, err := next.Write(taken); err != nil {
		t.Fatal(err)
	}
	next.Close()
	if err := readTaken(running); err != nil {
		t.Errorf("it was taken, and the running agent went on: %v", err)
	}

	running, next = handoverPair(t)
	if err := offer(running, handoverRight{}, time.Millisecond); err == nil {
		t.Error("the running agent ended although nobody had taken its place")
	}
	if _, err := next.Write(taken); err == nil {
		t.Error("it was taken after the running agent had gone on")
	}
}
