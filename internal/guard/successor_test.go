package guard

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// says sends a message to the guard.
func says(t *testing.T, conn *os.File, list ...message) {
	t.Helper()
	for _, m := range list {
		if _, err := conn.Write(m.bytes()); err != nil {
			t.Fatal(err)
		}
	}
}

// hears reads until the guard has said something of a kind.
func hears(t *testing.T, conn *os.File, want kind) {
	t.Helper()
	for {
		m, err := receive(conn)
		if err != nil {
			t.Fatalf("the guard ended the connection: %v", err)
		}
		if m.kind == want {
			return
		}
	}
}

// TestSuccessor: a process that the agent has named takes over without a silence, and the end of the one before is no death any more.
// Its own is, though.
func TestSuccessor(t *testing.T) {
	n := newNode(t)
	first := n.dial()
	says(t, first, message{kind: kindHello, version: version})
	says(t, first, movingMessages(moved())...)
	says(t, first, message{kind: kindDeadline, deadline: Forever})
	hears(t, first, kindSeen)
	n.take()

	if got := n.refusedBy(n.dial()); !strings.Contains(got, "an agent is connected already") {
		t.Errorf("a process that nobody named was told %q", got)
	}
	says(t, first, message{kind: kindSuccessor, pid: int32(os.Getpid())}, message{kind: kindDeadline, deadline: Forever})
	hears(t, first, kindSeen)
	heir := n.dial()
	says(t, heir, message{kind: kindHello, version: version})
	hears(t, heir, kindWelcome)
	says(t, heir, movingMessages(moved())...)
	says(t, heir, message{kind: kindGoodbye}, message{kind: kindDeadline, deadline: now() + int64(time.Hour)}) // it has no say yet
	hears(t, heir, kindSeen)
	says(t, heir, message{kind: kindTake}, message{kind: kindDeadline, deadline: Forever})
	hears(t, heir, kindSeen)
	if _, err := receive(first); err == nil {
		t.Error("the agent that was replaced is still connected")
	}
	_ = first.Close()
	says(t, heir, message{kind: kindDeadline, deadline: Forever})
	hears(t, heir, kindSeen)
	if got := n.holds(); got != everything || len(n.did()) > 0 {
		t.Errorf("it holds %s, and the guard did %v", got, n.did())
	}
	_ = heir.Close()
	n.untilAtRest()
}

// TestSuccessorThatFails: one that goes before it took over changes nothing, and the agent's death is one while it waits.
func TestSuccessorThatFails(t *testing.T) {
	n := newNode(t)
	first := n.dial()
	says(t, first, message{kind: kindHello, version: version})
	says(t, first, movingMessages(moved())...)
	says(t, first, message{kind: kindSuccessor, pid: int32(os.Getpid())}, message{kind: kindDeadline, deadline: Forever})
	hears(t, first, kindSeen)
	n.take()
	for range 2 {
		heir := n.dial()
		says(t, heir, message{kind: kindHello, version: version})
		hears(t, heir, kindWelcome)
		_ = heir.Close()
	}
	says(t, first, message{kind: kindDeadline, deadline: Forever})
	hears(t, first, kindSeen)
	if got := n.holds(); got != everything || len(n.did()) > 0 {
		t.Errorf("it holds %s, and the guard did %v", got, n.did())
	}
	heir := n.dial()
	says(t, heir, message{kind: kindHello, version: version})
	hears(t, heir, kindWelcome)
	_ = first.Close()
	n.untilAtRest()
}

// moved are the addresses that move in these tests.
func moved() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8"), netip.MustParseAddr("fd00::7")}
}
