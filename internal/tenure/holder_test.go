package tenure

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

const margin = 100 * time.Millisecond

// step is one event and what the holder must say right after it.
type step struct {
	at      int // milliseconds
	event   HolderEvent
	holds   bool
	untilMS int // 0: not compared
}

func TestHolder(t *testing.T) {
	renewed := func(sent int) LeaseRenewed { return LeaseRenewed{Sent: at(sent), TTL: time.Second} }
	granted := func(by, sent int) Granted { return Granted{Observer: by, Sent: at(sent), Span: time.Second} }
	// An acknowledgement of one second counts 1000 ms - 1 ms of drift - 100 ms of margin from its sending.
	for _, test := range []struct {
		name      string
		observers []int
		steps     []step
	}{
		{"a cluster of one holds without leases", nil, []step{{0, Tick{}, true, 0}, {3_600_000, Tick{}, true, 0}}},
		{"nothing is held before the first acknowledgement", []int{2, 3}, []step{{0, Tick{}, false, 0}, {10, renewed(0), true, 899}}},
		{"the lease counts from the sending, not from the receipt", []int{2, 3}, []step{{500, renewed(0), true, 899}, {898, Tick{}, true, 899}, {899, Tick{}, false, 0}}},
		{"an acknowledgement does not revive what had lapsed when it arrived", []int{2, 3}, []step{{0, renewed(0), true, 899}, {900, renewed(700), false, 0}, {901, renewed(901), false, 0}}},
		{"an older acknowledgement does not shorten a newer one", []int{2, 3}, []step{{300, renewed(200), true, 1099}, {400, renewed(100), true, 1099}}},
		{"half of the others suffice when the store is silent", []int{2, 3, 4, 5}, []step{
			{0, renewed(0), true, 899}, {500, granted(2, 450), true, 899}, {510, granted(3, 460), true, 1349}, {1348, Tick{}, true, 1349}, {1349, Tick{}, false, 0}}},
		{"fewer than half do not", []int{2, 3, 4, 5}, []step{{0, renewed(0), true, 899}, {500, granted(2, 450), true, 899}, {899, Tick{}, false, 0}}},
		{"a refusal takes the grant away", []int{2, 3}, []step{
			{0, renewed(0), true, 899}, {500, granted(2, 500), true, 1399}, {600, Refused{Observer: 2}, true, 899}, {899, Tick{}, false, 0}}},
		{"a stranger's grant does not count", []int{2, 3}, []step{{0, renewed(0), true, 899}, {500, granted(9, 500), true, 899}}},
		{"grants of a node that left no longer count", []int{2, 3, 4}, []step{
			{0, renewed(0), true, 899}, {500, granted(2, 500), true, 899}, {500, granted(3, 500), true, 1399},
			{600, ObserversChanged{Observers: []int{2, 4}}, true, 1399}, {600, ObserversChanged{Observers: []int{4, 5}}, true, 899}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := NewHolder(7, test.observers, margin)
			for i, s := range test.steps {
				got := h.Step(s.event, at(s.at))
				if got.MayHold != s.holds || s.untilMS != 0 && !got.Until.Equal(at(s.untilMS)) {
					t.Fatalf("step %d, %#v at %d ms: may hold %v until %v (%s); want %v until %d ms", i, s.event, s.at, got.MayHold, got.Until.Sub(epoch), got.Reason, s.holds, s.untilMS)
				}
				if got.Reason == "" {
					t.Fatalf("step %d says no reason", i)
				}
			}
		})
	}
}

func TestObserver(t *testing.T) {
	o := NewObserver(at(0), time.Second)
	want := func(what string, got Answer, yes bool) {
		t.Helper()
		if got.Yes != yes || !yes && got.Reason == "" {
			t.Errorf("%s: got %+v, want %v", what, got, yes)
		}
	}
	want("a node that just started listens before it grants", o.Grant(1, 5, time.Second, at(999)), false)
	want("and before it confirms: it may have granted before it died", o.Confirm(1, 5, at(999)), false)
	want("then it grants", o.Grant(1, 5, time.Second, at(1000)), true)
	want("while the grant lasts it confirms nothing", o.Confirm(1, 5, at(2000)), false)
	want("an earlier incarnation it does: a later one proves it over", o.Confirm(1, 4, at(2000)), true)
	want("after it, it does", o.Confirm(1, 5, at(2002)), true)
	want("and never grants that one again", o.Grant(1, 5, time.Second, at(9000)), false)
	want("nor an earlier one", o.Grant(1, 3, time.Second, at(9000)), false)
	want("but a later one", o.Grant(1, 6, time.Second, at(9000)), true)
	o.Learn(1, 6)
	if got := o.Grant(1, 6, time.Second, at(9001)); got.Yes || !got.Final {
		t.Errorf("what is proved over is refused for good: %+v", got)
	}
}

func TestInquiryNeedsAMajorityOfTheOthers(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 15: 8, 16: 9} {
		q := NewInquiry(1, 4, n)
		given := 0
		for lnn := 2; !q.Down(); lnn++ {
			q.Confirmed(lnn)
			q.Confirmed(lnn) // the same voice twice counts once
			given++
		}
		if given != want || Need(n)+Majority(n) != n+1 {
			t.Errorf("of %d others %d confirmations made it down, want %d; %d suffice to hold", n, given, want, Need(n))
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a node confirmed its own death")
		}
	}()
	NewInquiry(1, 4, 3).Confirmed(1)
}
