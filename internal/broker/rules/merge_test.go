package rules

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustMerge(t rapid.TB, a, b *Book) *Book {
	m, err := Merge(a, b)
	if err != nil {
		t.Fatalf("merging: %v", err)
	}
	return m
}

// site is some brokers that change their books, hear of each other's now and then, and forget old removals.
type site struct {
	books []*Book
	clock []time.Time // each has its own, and they are wrong
}

func drawSite(t *rapid.T) *site {
	n := rapid.IntRange(2, 4).Draw(t, "brokers")
	s := &site{books: make([]*Book, n), clock: make([]time.Time, n)}
	for i := range s.books {
		s.books[i] = new(Book)
		s.clock[i] = noon.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "clock")) * time.Microsecond)
	}
	for range rapid.IntRange(0, 25).Draw(t, "steps") {
		s.step(t)
	}
	return s
}

func (s *site) step(t *rapid.T) {
	i := rapid.IntRange(0, len(s.books)-1).Draw(t, "broker")
	by := Author{Origin: fmt.Sprint("b", i), Reason: rapid.SampledFrom([]string{"", "why"}).Draw(t, "reason")}
	name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
	s.clock[i] = s.clock[i].Add(time.Duration(rapid.IntRange(-1, 2).Draw(t, "passed")) * time.Microsecond)
	var next *Book
	var err error
	switch rapid.IntRange(0, 6).Draw(t, "what") {
	case 0, 1, 2:
		v := network(name, rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16"}).Draw(t, "subnet"))
		next, err = s.books[i].Put(v, by, s.clock[i])
	case 3:
		next, err = s.books[i].Remove(Key{KindNetwork, name}, by, s.clock[i])
	case 4:
		next, err = s.books[i].Put(assign("t", name), by, s.clock[i])
	case 5:
		j := rapid.IntRange(0, len(s.books)-1).Draw(t, "other")
		next, err = Merge(s.books[i], s.books[j])
	case 6:
		next = forgotten(s.books[i])
	}
	if err == nil {
		s.books[i] = next
	}
}

// forgotten is a book that has forgotten all removals that nothing competes with, which is more than any bound makes it.
func forgotten(b *Book) *Book {
	c := b.Trimmed()
	for key, entries := range c.kept {
		if len(entries) == 1 && entries[0].Removed {
			delete(c.kept, key)
		}
	}
	return c
}

// What Merge promises: the order and the number of merges do not matter.
func TestMergeIsAJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSite(t)
		pick := func(what string) *Book { return s.books[rapid.IntRange(0, len(s.books)-1).Draw(t, what)] }
		a, b, c := pick("a"), pick("b"), pick("c")
		ab := mustMerge(t, a, b)
		if ba := mustMerge(t, b, a); !ab.Equal(ba) || !bytes.Equal(Encode(ab), Encode(ba)) {
			t.Fatalf("not commutative:\n%s\n%s", Encode(ab), Encode(ba))
		}
		if left, right := mustMerge(t, ab, c), mustMerge(t, a, mustMerge(t, b, c)); !left.Equal(right) {
			t.Fatalf("not associative:\n%s\n%s", Encode(left), Encode(right))
		}
		if !mustMerge(t, a, a).Equal(a) || !mustMerge(t, ab, b).Equal(ab) {
			t.Fatalf("not idempotent:\n%s", Encode(ab))
		}
		if again, err := Decode(Encode(ab)); err != nil || !again.Equal(ab) {
			t.Fatalf("read back: %v\n%s", err, Encode(ab))
		}
	})
}

// Brokers that have all heard of each other have one book, and nothing that was changed without knowledge of the change that counts got
// lost unseen: it is among what lost.
func TestBrokersConvergeAndTellWhatLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSite(t)
		all := new(Book)
		for _, b := range s.books {
			all = mustMerge(t, all, b)
		}
		for _, b := range s.books {
			for key, entries := range b.kept {
				for i := range entries {
					e := &entries[i]
					if kept := all.kept[key]; contains(kept, e) {
						continue
					}
					replaced := false
					for _, other := range s.books {
						replaced = replaced || other.seen[e.Origin] >= e.Number && !contains(other.kept[key], e)
					}
					if !replaced {
						t.Fatalf("%s %s is gone, and nobody had replaced it", key, e.Stamp())
					}
				}
			}
		}
		for _, contest := range all.Contests() {
			for i := range contest.Lost {
				if rank(contest.Counts, contest.Lost[i]) >= 0 {
					t.Fatalf("%s counts although %s ranks before it", contest.Counts.Stamp(), contest.Lost[i].Stamp())
				}
			}
		}
		all.Compile() // whatever the merge brought about can be used
	})
}

func contains(entries []Entry, e *Entry) bool {
	for i := range entries {
		if same(entries[i], *e) {
			return true
		}
	}
	return false
}

// SPP error 60418: rules could be edited on the primary only, so with it down they could not be edited at all. Here any broker takes a
// change while the others are down; it has its effect there at once, is audited, and is everywhere after they meet.
func TestReport18RulesChangeOnAnyBroker(t *testing.T) {
	common := put(t, new(Book), network("n", "10.0.0.0/8"))
	bob := Author{Origin: "broker-b", Operator: "bob", Reason: "gw1 is dead"}
	replica, err := common.Put(Value{Override: &Override{Network: "n", Members: members("f/up")}}, bob, noon.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if m := compiled(t, replica).Find("", addr("10.1.1.1"), noon); m.Members[0].Gateway != "up" {
		t.Errorf("on the broker where it was changed, %v", m)
	}
	merged := mustMerge(t, common, replica)
	e, ok := merged.Get(Key{KindOverride, "n"})
	if !ok || e.Stamp() != "of 2026-03-01 12:01:00 by bob on broker broker-b" || e.Reason != "gw1 is dead" || len(merged.Contests()) != 0 {
		t.Errorf("after they met: %v %s, contests %v", ok, e.Stamp(), merged.Contests())
	}
}

// Two change one rule without knowledge of each other: the later counts, the other is told, and setting it once more decides.
func TestContest(t *testing.T) {
	common := put(t, new(Book), network("n", "10.0.0.0/8"))
	change := func(b *Book, origin string, after time.Duration, v Value) *Book {
		next, err := b.Put(v, Author{Origin: origin, Operator: "op-" + origin}, noon.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	a := change(common, "a", time.Minute, network("n", "10.0.0.0/9"))
	b := change(common, "b", 2*time.Minute, network("n", "10.0.0.0/10"))
	c, err := common.Remove(Key{KindNetwork, "n"}, Author{Origin: "c"}, noon.Add(3*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	m := mustMerge(t, a, b)
	if e, _ := m.Get(Key{KindNetwork, "n"}); e.Origin != "b" {
		t.Errorf("the change of %s counts", e.Origin)
	}
	want := "network n was changed in 2 places at once: the setting of 2026-03-01 12:02:00 by op-b on broker b counts; " +
		"lost: the setting of 2026-03-01 12:01:00 by op-a on broker a. Set it once more to decide."
	if got := m.Contests(); len(got) != 1 || got[0].String() != want {
		t.Errorf("told: %v", got)
	}
	removed := mustMerge(t, m, c)
	if _, there := removed.Get(Key{KindNetwork, "n"}); there || len(removed.Contests()[0].Lost) != 2 || !strings.Contains(removed.Contests()[0].String(), "the removal of 2026-03-01 12:03:00 on broker c counts") {
		t.Errorf("with a later removal: %v", removed.Contests())
	}
	if len(removed.Entries()) != 0 {
		t.Errorf("entries %v", removed.Entries())
	}
	decided := change(removed, "a", 0, network("n", "10.0.0.0/9")) // its clock is behind, and yet it counts: it knows the others
	for _, old := range []*Book{a, b, c, m, removed} {
		all := mustMerge(t, old, decided)
		if e, ok := all.Get(Key{KindNetwork, "n"}); !ok || e.Origin != "a" || len(all.Contests()) != 0 {
			t.Errorf("after it was decided: %v, %v", e.Stamp(), all.Contests())
		}
	}
}

// One subnet in two networks, brought about by a merge: the later change has it everywhere, and the other one is flagged.
func TestMergedSubnetTwice(t *testing.T) {
	a, _ := new(Book).Put(network("first", "10.0.0.0/8", "11.0.0.0/8"), Author{Origin: "a"}, noon)
	b, _ := new(Book).Put(network("second", "10.0.0.0/8"), Author{Origin: "b"}, noon.Add(time.Second))
	for _, m := range []*Book{mustMerge(t, a, b), mustMerge(t, b, a)} {
		table, faults := m.Compile()
		if got := table.Find("", addr("10.1.1.1"), noon).Network + table.Find("", addr("11.1.1.1"), noon).Network; got != "secondfirst" {
			t.Errorf("found %s", got)
		}
		if len(faults) != 1 || faults[0].String() != "network first: the subnet 10.0.0.0/8 also belongs to network second, whose change is the later one and has it; take it out of one of them" {
			t.Errorf("faults %v", faults)
		}
	}
}

// A target that is assigned to a network which was removed elsewhere meanwhile goes nowhere rather than anywhere, and it is flagged.
func TestMergedAssignmentToNothing(t *testing.T) {
	common := put(t, new(Book), network("n", "10.0.0.0/8"))
	a := put(t, common, assign("db", "n"))
	b, err := common.Remove(Key{KindNetwork, "n"}, Author{Origin: "b"}, noon)
	if err != nil {
		t.Fatal(err)
	}
	table, faults := mustMerge(t, a, b).Compile()
	if m := table.Find("db", addr("10.1.1.1"), noon); !m.Missing || m.Network != "n" {
		t.Errorf("found %v", m)
	}
	if len(faults) != 1 || faults[0].String() != "assignment db: there is no network n any more; make it again, or remove this" {
		t.Errorf("faults %v", faults)
	}
}

// Removals are bounded; what they removed does not come back when they are forgotten, not even from a broker that still has it.
func TestTombstonesAreBounded(t *testing.T) {
	b := new(Book)
	for i := range 7 {
		b = put(t, b, Value{Policy: &Policy{Name: fmt.Sprint("p", i), Fleet: "f"}})
	}
	old := b
	for i := range 7 {
		var err error
		if b, err = b.Remove(Key{KindPolicy, fmt.Sprint("p", i)}, alice, noon); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustMerge(t, forgotten(b), old); len(got.Entries()) != 0 {
		t.Errorf("%d entries came back", len(got.Entries()))
	}
	c := new(Book)
	c.seen, c.kept = map[string]uint64{}, map[Key][]Entry{}
	for i := range MaxTombstones + 50 {
		e := Entry{Origin: "a", Number: uint64(i + 1), Removed: true, Key: Key{KindPolicy, fmt.Sprint("p", i)}}
		c.kept[e.Key], c.seen["a"] = []Entry{e}, e.Number
	}
	c = put(t, c, Value{Policy: &Policy{Name: "new", Fleet: "f"}})
	if n := len(c.kept); n != MaxTombstones+1 {
		t.Errorf("%d are kept", n)
	}
	if _, oldest := c.kept[Key{KindPolicy, "p0"}]; oldest {
		t.Error("the oldest one is not among those that went")
	}
}

func TestBoundsOfABook(t *testing.T) {
	full := &Book{seen: map[string]uint64{}, kept: map[Key][]Entry{}}
	for i := range MaxOrigins {
		full.seen[fmt.Sprint(i)] = 1
	}
	if _, err := full.Put(network("n"), alice, noon); err == nil || !strings.Contains(err.Error(), "64 brokers have made changes") {
		t.Errorf("a change of one broker too many: %v", err)
	}
	one := put(t, new(Book), network("n"))
	if _, err := Merge(full, one); err == nil || !strings.Contains(err.Error(), "together 65 brokers") {
		t.Errorf("merging with one broker too many: %v", err)
	}
	future := &Book{seen: map[string]uint64{"a": maxNumber}, kept: map[Key][]Entry{}}
	if _, err := future.Put(network("n"), alice, noon); err == nil || !strings.Contains(err.Error(), "used up the numbers") {
		t.Errorf("a change after the last number: %v", err)
	}
	many := &Book{kept: map[Key][]Entry{}}
	for i := range MaxPolicies {
		key := Key{KindPolicy, fmt.Sprint(i)}
		many.kept[key] = []Entry{{Key: key, Value: Value{Policy: &Policy{}}}}
	}
	if _, err := many.Put(Value{Policy: &Policy{Name: "n", Fleet: "f"}}, alice, noon); err == nil || !strings.Contains(err.Error(), "there are 1000 of its kind") {
		t.Errorf("one policy too many: %v", err)
	}
	if _, err := many.Put(Value{Policy: &Policy{Name: "7", Fleet: "f"}}, alice, noon); err != nil {
		t.Errorf("changing one of as many as there may be: %v", err)
	}
}
