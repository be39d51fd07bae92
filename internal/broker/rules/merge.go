package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rank orders changes of the same thing that did not know of each other, the one that counts first.
func rank(x, y Entry) int {
	return cmp.Or(cmp.Compare(y.Number, x.Number), cmp.Compare(y.Origin, x.Origin), cmp.Compare(y.content, x.content))
}

// Merge brings two Books together. It refuses what would be beyond the bounds; then nothing is taken over and both stay as they are.
//
// A change is kept if both have it, or if one has it and the other has not heard of it. A change that one has heard of and does not keep
// was replaced there by one that knew it.
func Merge(a, b *Book) (*Book, error) {
	m := &Book{seen: maps.Clone(a.seen), kept: make(map[Key][]Entry, max(len(a.kept), len(b.kept)))}
	if m.seen == nil {
		m.seen = map[string]uint64{}
	}
	for origin, number := range b.seen {
		m.seen[origin] = max(m.seen[origin], number)
	}
	if len(m.seen) > MaxOrigins {
		return nil, fmt.Errorf("merging rules: together %d brokers have made changes, at most %d are taken; make the same changes on fewer brokers", len(m.seen), MaxOrigins)
	}
	for key, entries := range a.kept {
		if kept := join(entries, b.kept[key], a.seen, b.seen); len(kept) > 0 {
			m.kept[key] = kept
		}
	}
	for key, entries := range b.kept {
		if _, done := a.kept[key]; done {
			continue
		}
		if kept := join(entries, nil, b.seen, a.seen); len(kept) > 0 {
			m.kept[key] = kept
		}
	}
	return m, nil
}

// join is what is kept of the changes of one thing that two Books have.
func join(a, b []Entry, seenA, seenB map[string]uint64) []Entry {
	if slices.EqualFunc(a, b, same) {
		return a // nobody changes it
	}
	var kept []Entry
	for i := range a {
		if survives(&a[i], b, seenB) {
			kept = append(kept, a[i])
		}
	}
	for i := range b {
		if survives(&b[i], a, seenA) && !slices.ContainsFunc(kept, func(e Entry) bool { return same(e, b[i]) }) {
			kept = append(kept, b[i])
		}
	}
	slices.SortFunc(kept, rank)
	return kept
}

// survives reports whether a change is kept beside what another Book keeps and has seen. Two changes with one number from one origin
// come of two brokers under one name; both are kept, so that none gets lost unseen.
func survives(e *Entry, others []Entry, seen map[string]uint64) bool {
	return e.Number > seen[e.Origin] ||
		slices.ContainsFunc(others, func(o Entry) bool { return o.Origin == e.Origin && o.Number == e.Number })
}

func same(x, y Entry) bool {
	return x.Number == y.Number && x.Origin == y.Origin && x.content == y.content
}

// Trimmed is the Book without the oldest of too many removals. What merges have brought is trimmed before it is kept.
func (b *Book) Trimmed() *Book {
	c := &Book{seen: b.seen, kept: maps.Clone(b.kept)}
	c.forget()
	return c
}

// Equal reports whether two Books have the same rules and have heard of the same changes.
func (b *Book) Equal(other *Book) bool {
	return maps.Equal(b.seen, other.seen) && maps.EqualFunc(b.kept, other.kept, func(x, y []Entry) bool { return slices.EqualFunc(x, y, same) })
}

// Contest is a thing that was changed in several places without knowledge of each other.
type Contest struct {
	Key    Key
	Counts Entry   // the change that counts
	Lost   []Entry // those that do not; at least one
}

// String says what counts, what lost, and what to do.
func (c Contest) String() string {
	lost := make([]string, len(c.Lost))
	for i := range c.Lost {
		lost[i] = verb(&c.Lost[i]) + " " + c.Lost[i].Stamp()
	}
	return fmt.Sprintf("%s was changed in %d places at once: the %s %s counts; lost: the %s. Set it once more to decide.",
		c.Key, len(c.Lost)+1, verb(&c.Counts), c.Counts.Stamp(), strings.Join(lost, ", the "))
}

func verb(e *Entry) string {
	if e.Removed {
		return "removal"
	}
	return "setting"
}

// Contests are the things that are contested, sorted by key. They stay until somebody changes them once more.
func (b *Book) Contests() []Contest {
	var contests []Contest
	for _, key := range b.keys() {
		if entries := b.kept[key]; len(entries) > 1 {
			contests = append(contests, Contest{Key: key, Counts: entries[0], Lost: entries[1:]})
		}
	}
	return contests
}
