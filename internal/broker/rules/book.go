package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Author is who makes a change.
type Author struct {
	Origin   string // the broker; one that has lost its disk may go on under its name
	Operator string // who told it to
	Reason   string
}

// Entry is one change as a Book keeps it.
type Entry struct {
	Origin   string
	Number   uint64 // microseconds of the maker's clock since 1970, or one more than any number that it had seen
	Operator string
	Reason   string
	Removed  bool
	Key      Key
	Value    Value // empty if Removed

	content string // the whole as text: what the last comparison is by
}

// Book is all rules, with what is needed to bring two of them together. The zero Book has none.
//
// Its form is that of a dotted causal store: seen has, for each origin, the highest number of which this Book has heard, and what is
// kept under a key are the changes that none of those that were heard has replaced. A change that is covered by seen and not kept has
// been replaced. Each key has at most one change of each origin.
type Book struct {
	seen map[string]uint64
	kept map[Key][]Entry // sorted, the one that counts first
}

// Bounds of a Book.
const (
	MaxNetworks    = 20_000
	MaxAssignments = 100_000
	MaxPolicies    = 1_000
	MaxOrigins     = 64   // brokers that have ever made a change
	MaxTombstones  = 1000 // removals that are remembered to be reported when they compete; older ones have simply happened
)

// maxNumber is a clock that nobody's shows: above it a Book would run out of numbers.
const maxNumber = 1 << 62

// Entries are the changes that count, sorted by key; removals are not among them.
func (b *Book) Entries() []Entry {
	var entries []Entry
	for _, key := range b.keys() {
		if first := b.kept[key][0]; !first.Removed {
			entries = append(entries, first)
		}
	}
	return entries
}

func (b *Book) keys() []Key {
	return slices.SortedFunc(maps.Keys(b.kept), compareKeys)
}

func compareKeys(x, y Key) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
}

// Get is the change that counts under a key; false if there is none or it is a removal.
func (b *Book) Get(key Key) (Entry, bool) {
	entries := b.kept[key]
	if len(entries) == 0 || entries[0].Removed {
		return Entry{}, false
	}
	return entries[0], true
}

// Put is the Book in which a value has been set by an author, or why it cannot be.
func (b *Book) Put(value Value, by Author, now time.Time) (*Book, error) {
	value, err := value.clean()
	if err != nil {
		return nil, err
	}
	if err := b.fits(value); err != nil {
		return nil, err
	}
	return b.change(Entry{Key: value.Key(), Value: value}, by, now)
}

// Remove is the Book in which what is under a key has been removed by an author, or why it cannot be.
func (b *Book) Remove(key Key, by Author, now time.Time) (*Book, error) {
	if key.Kind == KindAssignment {
		key.Name = strings.ToLower(key.Name)
	}
	if len(b.kept[key]) == 0 || b.kept[key][0].Removed && len(b.kept[key]) == 1 {
		return nil, fmt.Errorf("there is no %s", key)
	}
	if key.Kind == KindNetwork {
		if names := b.leadingTo(key.Name); names != "" {
			return nil, fmt.Errorf("network %s cannot be removed while %s; remove or change that first", key.Name, names)
		}
	}
	return b.change(Entry{Key: key, Removed: true}, by, now)
}

// leadingTo says what leads to a network but its subnets.
func (b *Book) leadingTo(network string) string {
	count, first := 0, ""
	for key, entries := range b.kept {
		if a := entries[0].Value.Assignment; a != nil && a.Network == network {
			if count++; first == "" || key.Name < first {
				first = key.Name
			}
		}
	}
	_, overridden := b.Get(Key{KindOverride, network})
	switch {
	case count > 1:
		return fmt.Sprintf("%d targets are assigned to it, %s among them", count, first)
	case count == 1:
		return "target " + first + " is assigned to it"
	case overridden:
		return "it is overridden"
	}
	return ""
}

// fits checks a value against the rest of the Book.
func (b *Book) fits(value Value) error {
	key := value.Key()
	if b.count(key.Kind, key) >= limits[key.Kind] {
		return fmt.Errorf("%s: there are %d of its kind, and no more are taken; remove what is not needed", key, limits[key.Kind])
	}
	switch {
	case value.Network != nil:
		return b.subnetsFit(value.Network)
	case value.Assignment != nil:
		return b.exists(key, value.Assignment.Network)
	case value.Override != nil:
		return b.exists(key, value.Override.Network)
	}
	return nil
}

var limits = map[Kind]int{KindNetwork: MaxNetworks, KindAssignment: MaxAssignments, KindPolicy: MaxPolicies, KindOverride: MaxNetworks + 1}

// count is how many there are of a kind beside one.
func (b *Book) count(kind Kind, beside Key) (n int) {
	for key, entries := range b.kept {
		if key.Kind == kind && key != beside && !entries[0].Removed {
			n++
		}
	}
	return n
}

func (b *Book) exists(key Key, network string) error {
	if network == DefaultNetwork {
		return nil
	}
	if _, ok := b.Get(Key{KindNetwork, network}); !ok {
		return fmt.Errorf("%s: there is no network %s; make it first, or correct the name", key, network)
	}
	return nil
}

func (b *Book) subnetsFit(n *Network) error {
	for _, key := range b.keys() {
		other := b.kept[key][0].Value.Network
		if other == nil || other.Name == n.Name {
			continue
		}
		for _, subnet := range n.Subnets {
			if _, taken := slices.BinarySearchFunc(other.Subnets, subnet, comparePrefixes); taken {
				return fmt.Errorf("network %s: the subnet %s already belongs to network %s; a subnet is in one network, while larger and smaller ones may overlap it",
					n.Name, subnet, other.Name)
			}
		}
	}
	return nil
}

// change is the Book after an entry that has seen all that is in it.
func (b *Book) change(e Entry, by Author, now time.Time) (*Book, error) {
	if err := checkName("broker", by.Origin, MaxTarget); err != nil {
		return nil, err
	}
	if _, known := b.seen[by.Origin]; !known && len(b.seen) >= MaxOrigins {
		return nil, fmt.Errorf("%s: %d brokers have made changes, and no more are taken; make the change on one of them", e.Key, MaxOrigins)
	}
	for field, text := range map[string]string{"operator": by.Operator, "reason": by.Reason} {
		if err := checkText(e.Key.String(), field, text); err != nil {
			return nil, err
		}
	}
	highest := uint64(0)
	for _, number := range b.seen {
		highest = max(highest, number)
	}
	if highest >= maxNumber {
		return nil, fmt.Errorf("%s: a broker whose clock was in the far future has used up the numbers of changes; found the rules anew from a file", e.Key)
	}
	e.Number = max(highest+1, uint64(max(0, min(now.UnixMicro(), maxNumber-1))))
	e.Origin, e.Operator, e.Reason = by.Origin, by.Operator, by.Reason
	e.content = e.text()

	c := &Book{seen: maps.Clone(b.seen), kept: maps.Clone(b.kept)}
	if c.seen == nil {
		c.seen, c.kept = map[string]uint64{}, map[Key][]Entry{}
	}
	c.seen[by.Origin] = e.Number
	c.kept[e.Key] = []Entry{e}
	c.forget()
	return c, nil
}

// forget takes out the oldest of too many removals that nothing competes with. What they removed stays removed, because they are seen.
func (b *Book) forget() {
	var removals []Entry
	for _, entries := range b.kept {
		if len(entries) == 1 && entries[0].Removed {
			removals = append(removals, entries[0])
		}
	}
	if len(removals) <= MaxTombstones {
		return
	}
	slices.SortFunc(removals, rank)
	for _, removal := range removals[MaxTombstones:] {
		delete(b.kept, removal.Key)
	}
}

// Stamp says of a change who made it, and which number it has.
func (e *Entry) Stamp() string {
	by := ""
	if e.Operator != "" {
		by = " by " + e.Operator
	}
	return fmt.Sprintf("of %s%s on broker %s", time.UnixMicro(int64(min(e.Number, maxNumber))).UTC().Format("2006-01-02 15:04:05"), by, e.Origin)
}
