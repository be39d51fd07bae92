package address

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func from(local, remote string) Connection {
	return Connection{Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort(remote)}
}

var (
	one   = from("10.0.0.7:2049", "10.0.0.50:700")
	two   = from("10.0.0.7:2049", "10.0.0.51:701")
	three = from("10.0.0.8:445", "10.0.0.50:702")
)

var sameConnections = cmp.Comparer(func(a, b Connection) bool { return a == b })

func set(connections ...Connection) map[Connection]bool {
	all := map[Connection]bool{}
	for _, c := range connections {
		all[c] = true
	}
	return all
}

func TestTrack(t *testing.T) {
	own, loop := from("10.0.0.7:1", "10.0.0.7:2"), from("10.0.0.7:1", "127.0.0.1:2")
	tracked, omitted := Track(set(one), []Connection{two, one, own, loop, one})
	if diff := cmp.Diff(set(one, two), tracked); diff != "" || omitted != 0 {
		t.Errorf("%d omitted; tracked (-want +got):\n%s", omitted, diff)
	}
}

// At the bound of an address those that were followed stay, and new ones are left out and counted.
func TestTrackAtTheBound(t *testing.T) {
	many := func(local string, n, from int) []Connection {
		var list []Connection
		for i := from; i < from+n; i++ {
			remote := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 700)
			list = append(list, Connection{Local: netip.MustParseAddrPort(local), Remote: remote})
		}
		return list
	}
	full := many("10.0.0.7:2049", MaxPerAddress, 0)
	tracked, omitted := Track(nil, full)
	if len(tracked) != MaxPerAddress || omitted != 0 {
		t.Fatalf("%d tracked, %d omitted", len(tracked), omitted)
	}
	fresh := many("10.0.0.7:2049", 5, MaxPerAddress)
	after, omitted := Track(tracked, append(append(fresh, full...), three))
	if omitted != 5 || len(after) != MaxPerAddress+1 || !after[three] || after[fresh[0]] {
		t.Errorf("%d omitted, %d tracked; want the five new ones of the full address left out, and the other address not", omitted, len(after))
	}
	var node []Connection
	for i := range 6 {
		node = append(node, many(fmt.Sprintf("10.0.1.%d:1", i), MaxPerAddress, 0)...)
	}
	if tracked, omitted := Track(nil, node); len(tracked) != MaxPerNode || omitted != MaxPerAddress {
		t.Errorf("%d tracked of a node, %d omitted", len(tracked), omitted)
	}
}

// One story of a stream: a full message, differences, a message that is lost, and the full one that follows.
func TestOutbox(t *testing.T) {
	var o Outbox
	expect := func(what string, wanted map[Connection]bool, want Push) {
		t.Helper()
		got, any := o.Next(wanted)
		if diff := cmp.Diff(want, got, sameConnections); diff != "" || !any {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if _, second := o.Next(wanted); second {
			t.Errorf("%s: a second message while one is under way", what)
		}
	}
	expect("the beginning", set(one), Push{Sequence: 1, Full: true, Opened: []Connection{one}})
	o.Answered(true)
	if push, any := o.Next(set(one)); any {
		t.Errorf("nothing changed, and yet %+v", push)
	}
	expect("one came, one went", set(two), Push{Sequence: 2, Opened: []Connection{two}, Closed: []Connection{one}})
	o.Answered(true)
	expect("everything went", nil, Push{Sequence: 3, Closed: []Connection{two}})
	o.Answered(false)
	expect("after a loss", set(three), Push{Sequence: 4, Full: true, Opened: []Connection{three}})
	o.Answered(false)
	expect("after a loss, with nothing", nil, Push{Sequence: 5, Full: true})
	o.Answered(true)
	if !o.Idle() {
		t.Error("the successor has nothing, and the stream is not idle")
	}
}

var ownerSeven = Source{LNN: 1, Incarnation: 7}

func TestTables(t *testing.T) {
	var tables Tables
	take := func(from Source, push Push, wantLost bool, wantFresh ...string) {
		t.Helper()
		fresh, lost := tables.Take(from, push)
		if got := fmt.Sprint(addressesOf(fresh)); lost != wantLost || got != fmt.Sprint(wantFresh) {
			t.Errorf("%+v: lost %v, new for %v; want %v, %v", push, lost, got, wantLost, wantFresh)
		}
	}
	take(ownerSeven, Push{Sequence: 4, Opened: []Connection{one}}, true) // it has not begun
	take(ownerSeven, Push{Sequence: 5, Full: true, Opened: []Connection{one, three}}, false, "10.0.0.7", "10.0.0.8")
	take(ownerSeven, Push{Sequence: 6, Opened: []Connection{two, one}, Closed: []Connection{three}}, false, "10.0.0.7")
	if diff := cmp.Diff([]Connection{one, two}, tables.Of(netip.MustParseAddr("10.0.0.7")), sameConnections); diff != "" || tables.Len() != 2 {
		t.Errorf("%d kept (-want +got):\n%s", tables.Len(), diff)
	}
	take(ownerSeven, Push{Sequence: 8, Closed: []Connection{one, two}}, true) // 7 is missing
	if tables.Len() != 2 {
		t.Error("a message after a gap changed something")
	}
	take(ownerSeven, Push{Sequence: 9, Closed: []Connection{one}}, true) // until it begins anew
	take(ownerSeven, Push{Sequence: 10, Full: true, Opened: []Connection{three}}, false, "10.0.0.8")
	if tables.Len() != 1 || len(tables.Of(netip.MustParseAddr("10.0.0.7"))) != 0 {
		t.Errorf("after a full message %d are kept", tables.Len())
	}
}

// Samba bug 15994 (https://bugzilla.samba.org/show_bug.cgi?id=15994), the other half of public report 7: the list of connections was
// erased during the release, so that the taker had nobody to tickle. Here the old owner starts anew, owns nothing, and says so; what
// it said in its life before is kept until the address was taken.
func TestReport7ListIsKeptUntilTaken(t *testing.T) {
	var tables Tables
	addr := netip.MustParseAddr("10.0.0.7")
	tables.Take(ownerSeven, Push{Sequence: 1, Full: true, Opened: []Connection{one}})
	tables.Take(Source{LNN: 1, Incarnation: 8}, Push{Sequence: 1, Full: true})
	start := time.Now()
	yes, no := func(netip.Addr, Source) bool { return true }, func(netip.Addr, Source) bool { return false }
	tables.Prune(start, no)
	tables.Prune(start.Add(TableGrace-1), no)
	if len(tables.Of(addr)) != 1 {
		t.Fatal("the table is gone although the address was not taken")
	}
	tables.Prune(start.Add(TableGrace), yes) // it is needed after all, which begins the grace anew
	tables.Prune(start.Add(TableGrace+1), no)
	if len(tables.Of(addr)) != 1 {
		t.Error("the table is gone although it was just needed")
	}
	tables.Prune(start.Add(2*TableGrace+1), no)
	if tables.Len() != 0 {
		t.Error("a table that nobody needs is kept for ever")
	}
}

// Whatever is lost, the tables come to what the owner wants once messages arrive again.
func TestStreamConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Outbox
		var tables Tables
		all := []Connection{one, two, three}
		exchange := func(wanted map[Connection]bool, arrives, answered bool) bool {
			push, any := o.Next(wanted)
			if !any {
				return false
			}
			lost := true
			if arrives {
				_, lost = tables.Take(ownerSeven, push)
			}
			o.Answered(arrives && answered && !lost)
			return true
		}
		wanted := map[Connection]bool{}
		for range rapid.IntRange(0, 30).Draw(t, "messages") {
			wanted = set(rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[Connection]).Draw(t, "wanted")...)
			exchange(wanted, rapid.Bool().Draw(t, "arrives"), rapid.Bool().Draw(t, "answered"))
			if rapid.IntRange(0, 9).Draw(t, "successor restarts") == 0 {
				tables = Tables{}
				wanted = map[Connection]bool{} // and something changes, so that the owner speaks
				exchange(wanted, true, true)
			}
		}
		for i := 0; exchange(wanted, true, true); i++ {
			if i > 3 {
				t.Fatal("the stream does not come to rest")
			}
		}
		var got []Connection
		for _, addr := range []string{"10.0.0.7", "10.0.0.8"} {
			got = append(got, tables.Of(netip.MustParseAddr(addr))...)
		}
		if want := slices.SortedFunc(maps.Keys(wanted), compareConnections); !slices.Equal(want, got) || tables.Len() != len(want) {
			t.Fatalf("the successor has %v, the owner wants %v", got, want)
		}
	})
}

// More than one message holds goes in several.
func TestLongTableInParts(t *testing.T) {
	wanted := map[Connection]bool{}
	for i := range 2*MaxPush + 7 {
		wanted[Connection{Local: one.Local, Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 700)}] = true
	}
	var o Outbox
	var tables Tables
	for parts := 1; ; parts++ {
		push, any := o.Next(wanted)
		if !any {
			if parts != 4 || tables.Len() != len(wanted) {
				t.Errorf("%d messages, %d of %d arrived", parts-1, tables.Len(), len(wanted))
			}
			return
		}
		if len(push.Opened)+len(push.Closed) > MaxPush {
			t.Fatalf("a message of %d", len(push.Opened))
		}
		_, lost := tables.Take(ownerSeven, push)
		o.Answered(!lost)
	}
}

func TestCourses(t *testing.T) {
	start := time.Now()
	a, b := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8")
	var c courses
	c.start(a, false, start)
	c.start(b, true, start)
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, "[{10.0.0.7 true false}]"},
		{100 * time.Millisecond, "[]"},
		{200 * time.Millisecond, "[{10.0.0.7 false false} {10.0.0.8 false false}]"},
		{time.Second, "[{10.0.0.7 false false} {10.0.0.8 false false}]"},
		{5 * time.Second, "[{10.0.0.7 false true} {10.0.0.8 false true}]"},
	} {
		list := []string{}
		for _, r := range c.due(start.Add(step.after)) {
			list = append(list, fmt.Sprintf("{%v %v %v}", r.address, r.first, r.last))
		}
		if got := fmt.Sprint(list); got != step.want {
			t.Errorf("after %v: %s, want %s", step.after, got, step.want)
		}
	}
	if at, running := c.next(); running {
		t.Errorf("something is due at %v after the end", at)
	}
	c.start(a, false, start)
	if c.stop(a); c.runs(a) || len(c.due(start.Add(time.Hour))) > 0 {
		t.Error("a course went on after it was stopped")
	}
}
