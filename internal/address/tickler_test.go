package address

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/linux/tickle/tickletest"
	"github.com/holdfast/holdfast/internal/problem"
)

// tickling is a Tickler with a host in memory, in a bubble.
type tickling struct {
	*Tickler
	host        *tickletest.Fake
	board       *problem.Board
	mu          sync.Mutex
	permitted   bool
	established []Connection
	woken       []string
	start       time.Time
}

func inTickling(t *testing.T, test func(t *testing.T, k *tickling)) {
	bubble.Test(t, func(t *testing.T) {
		k := &tickling{host: tickletest.New(one.Local.Addr(), three.Local.Addr()), board: &problem.Board{}, permitted: true, start: time.Now()}
		k.Tickler = NewTickler(TicklerOptions{
			Sender: k.host, Board: k.board, Permit: func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.permitted },
			Established: func(visit func(Connection)) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				for _, c := range k.established {
					visit(c)
				}
				return nil
			},
			Woke: func(a netip.Addr, n int) { k.woken = append(k.woken, fmt.Sprintf("%d of %v", n, a)) },
		})
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		test(t, k)
		stop()
		<-done
	})
}

// sent is when, in milliseconds since the start, what was sent.
func (k *tickling) sent() string {
	var list []string
	for _, s := range k.host.Sent() {
		list = append(list, fmt.Sprintf("%d: %v to %v", s.At.Sub(k.start).Milliseconds(), s.Connection.Local.Addr(), s.Connection.Remote))
	}
	return fmt.Sprint(list)
}

func (k *tickling) take(planned bool) {
	k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return planned })
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func TestClientsAreWokenFourTimes(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one, three}})
		k.take(false)
		const to = ": 10.0.0.7 to 10.0.0.50:700"
		if got, want := k.sent(), "[0"+to+" 200"+to+" 1000"+to+" 2000"+to+"]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		if got := fmt.Sprint(k.woken); got != "[1 of 10.0.0.7]" {
			t.Errorf("told %s", got)
		}
		if k.tables.Len() != 1 || len(k.tables.Of(three.Local.Addr())) != 1 {
			t.Error("the table of what was taken is kept, or that of what was not is gone")
		}
		k.take(false) // and there is nobody left to wake
		if got := k.sent(); got != "[]" {
			t.Errorf("sent %s after the table was used", got)
		}
	})
}

// After a planned move the old owner has reset the clients; only those of which it says by then that it could not are woken.
func TestPlannedMoveWakesOnlyWhoIsLeft(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one, two}})
		time.Sleep(recently)
		k.start = time.Now()
		k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return true })
		time.Sleep(100 * time.Millisecond)
		k.Receive(ownerSeven, Push{Sequence: 2, Closed: []Connection{one}})
		time.Sleep(10 * time.Second)
		const to = ": 10.0.0.7 to 10.0.0.51:701"
		if got, want := k.sent(), "[200"+to+" 1000"+to+" 2000"+to+"]"; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})
}

// What the old owner could not reset because it came too late is told after the address is here already.
func TestLateConnectionsAreWoken(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.take(true)
		k.start = time.Now()
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one, three}})
		time.Sleep(10 * time.Millisecond)
		if got := k.sent(); got != "[0: 10.0.0.7 to 10.0.0.50:700]" {
			t.Errorf("sent %s; want the one whose address is here", got)
		}
	})
}

// A client that was reset and reached the old owner once more is told of when the course of the move runs already. It does not wait for
// the next round, and the others are not woken sooner.
func TestLateConnectionsAreWokenAtOnceInACourse(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one}})
		time.Sleep(recently)
		k.start = time.Now()
		k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return true })
		time.Sleep(5 * time.Millisecond)
		k.Receive(ownerSeven, Push{Sequence: 2, Opened: []Connection{two, three}})
		time.Sleep(10 * time.Millisecond)
		if got := k.sent(); got != "[5: 10.0.0.7 to 10.0.0.51:701]" {
			t.Errorf("sent %s; want the late one whose address is here", got)
		}
		time.Sleep(500 * time.Millisecond)
		if got := k.sent(); got != "[200: 10.0.0.7 to 10.0.0.50:700 200: 10.0.0.7 to 10.0.0.51:701]" {
			t.Errorf("sent %s in the course", got)
		}
	})
}

// The word on who came late may be there before the address is.
func TestLateConnectionsAreWokenAtOnceWhenTheAddressComes(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one}})
		time.Sleep(recently)
		k.Receive(ownerSeven, Push{Sequence: 2, Opened: []Connection{two, three}})
		time.Sleep(3 * time.Millisecond)
		k.start = time.Now()
		k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return true })
		time.Sleep(10 * time.Millisecond)
		if got := k.sent(); got != "[0: 10.0.0.7 to 10.0.0.51:701]" {
			t.Errorf("sent %s; want the one that was told a moment ago", got)
		}
	})
}

func TestWakingStops(t *testing.T) {
	const to = ": 10.0.0.7 to 10.0.0.50:700"
	for name, c := range map[string]struct {
		happens func(*tickling)
		want    string
	}{
		"when the address leaves":            {func(k *tickling) { k.Here(func(netip.Addr) bool { return false }) }, "[0" + to + "]"},
		"when the right to hold is gone":     {func(k *tickling) { k.mu.Lock(); defer k.mu.Unlock(); k.permitted = false }, "[0" + to + "]"},
		"when the client has connected anew": {func(k *tickling) { k.mu.Lock(); defer k.mu.Unlock(); k.established = []Connection{one} }, "[0" + to + "]"},
		"not when another address leaves":    {func(k *tickling) { k.Here(func(a netip.Addr) bool { return a == one.Local.Addr() }) }, "[0" + to + " 200" + to + " 1000" + to + " 2000" + to + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			inTickling(t, func(t *testing.T, k *tickling) {
				k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one}})
				k.Taken([]netip.Addr{one.Local.Addr(), three.Local.Addr()}, func(netip.Addr) bool { return false })
				time.Sleep(100 * time.Millisecond)
				c.happens(k)
				time.Sleep(10 * time.Second)
				if got := k.sent(); got != c.want {
					t.Errorf("sent %s, want %s", got, c.want)
				}
			})
		})
	}
}

// Many clients are woken in batches with pauses, all of them.
func TestManyAreWokenAtAPace(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		var many []Connection
		for i := range 3 * tickleBatch {
			many = append(many, Connection{Local: one.Local, Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 700)})
		}
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: many})
		k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return false })
		time.Sleep(100 * time.Millisecond)
		at := map[time.Duration]int{}
		for _, s := range k.host.Sent() {
			at[s.At.Sub(k.start)]++
		}
		if len(at) != 3 || at[0] != tickleBatch || at[ticklePause] != tickleBatch || at[2*ticklePause] != tickleBatch {
			t.Errorf("sent %v", at)
		}
	})
}

func TestTickleFailuresAreReported(t *testing.T) {
	inTickling(t, func(t *testing.T, k *tickling) {
		k.host.Fail(errors.Join(unix.EPERM))
		k.Receive(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one}})
		k.Taken([]netip.Addr{one.Local.Addr()}, func(netip.Addr) bool { return false })
		time.Sleep(100 * time.Millisecond)
		if list := k.board.List(); len(list) != 1 || list[0].Kind != problemTickle {
			t.Errorf("the board has %+v", list)
		}
		k.host.Fail(nil)
		time.Sleep(time.Second)
		if list := k.board.List(); len(list) != 0 {
			t.Errorf("it works again, and the board has %+v", list)
		}
	})
}

// kernelOfSockets is what a Tracker asks: connections, and destroying them.
type kernelOfSockets struct {
	connections []Connection
	fail        error
}

func (k *kernelOfSockets) each(visit func(Connection)) error {
	for _, c := range k.connections {
		visit(c)
	}
	return nil
}

func (k *kernelOfSockets) destroy(on func(netip.Addr) bool) (ended []Connection, err error) {
	if k.fail != nil {
		return nil, k.fail
	}
	var rest []Connection
	for _, c := range k.connections {
		if on(c.Local.Addr()) {
			ended = append(ended, c)
		} else {
			rest = append(rest, c)
		}
	}
	k.connections = rest
	return ended, nil
}

func TestTrackerResetsOnlyWhatLeft(t *testing.T) {
	other := from("10.0.0.99:22", "10.0.0.50:22")
	k := &kernelOfSockets{connections: []Connection{one, three, other}}
	board := &problem.Board{}
	tracker := NewTracker(TrackerOptions{Established: k.each, Destroy: k.destroy, Board: board})
	owned := func(a netip.Addr) bool { return a == one.Local.Addr() }
	elsewhere := func(a netip.Addr) bool { return a == three.Local.Addr() }

	tracker.Here([]netip.Addr{one.Local.Addr(), three.Local.Addr()}) // the records are behind: it is about to come here
	if tracked, err := tracker.Look(owned, elsewhere); err != nil || len(tracked) != 1 || !tracked[one] || len(k.connections) != 3 {
		t.Errorf("tracked %v, %v, and %v are left", tracked, err, k.connections)
	}
	tracker.Here([]netip.Addr{one.Local.Addr()})
	if _, err := tracker.Look(owned, elsewhere); err != nil || len(k.connections) != 2 {
		t.Errorf("the connections of an address that is elsewhere are still there: %v, %v", k.connections, err)
	}
	if ended := tracker.Reset([]netip.Addr{one.Local.Addr()}); len(ended) != 1 || len(k.connections) != 1 || k.connections[0] != other {
		t.Errorf("reset %v, and %v are left", ended, k.connections)
	}
	k.fail = errors.New("no")
	tracker.Reset([]netip.Addr{one.Local.Addr()})
	if list := board.List(); len(list) != 1 || list[0].Kind != problemSocketsKept {
		t.Errorf("the board has %+v", list)
	}
}
