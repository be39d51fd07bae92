package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// MaxEncoded bounds an encoded Book, in bytes.
const MaxEncoded = 64 << 20

// format is the version of the encoding.
const format = 1

type wireBook struct {
	Format  int               `json:"format"`
	Seen    map[string]uint64 `json:"seen"`
	Entries []wireEntry       `json:"entries"`
}

type wireEntry struct {
	Kind     Kind         `json:"kind"`
	Name     string       `json:"name"`
	Origin   string       `json:"origin"`
	Number   uint64       `json:"number"`
	Operator string       `json:"operator,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Removed  bool         `json:"removed,omitempty"`
	Subnets  []string     `json:"subnets,omitempty"`
	Members  []wireMember `json:"gateways,omitempty"`
	Default  bool         `json:"on_exhausted_default,omitempty"`
	Note     string       `json:"note,omitempty"`
	Network  string       `json:"network,omitempty"`
	Fleet    string       `json:"fleet,omitempty"`
	Until    int64        `json:"until,omitempty"` // seconds since 1970
}

type wireMember struct {
	Fleet   string `json:"fleet"`
	Gateway string `json:"gateway"`
	Order   int    `json:"order,omitempty"`
	Weight  int    `json:"weight,omitempty"`
}

func (e *Entry) wire() wireEntry {
	w := wireEntry{
		Kind: e.Key.Kind, Name: e.Key.Name, Origin: e.Origin, Number: e.Number, Operator: e.Operator, Reason: e.Reason, Removed: e.Removed,
	}
	switch v := e.Value; {
	case v.Network != nil:
		for _, subnet := range v.Network.Subnets {
			w.Subnets = append(w.Subnets, subnet.String())
		}
		w.Members, w.Default, w.Note = wireMembers(v.Network.Members), v.Network.Exhausted == UseDefault, v.Network.Note
	case v.Assignment != nil:
		w.Network = v.Assignment.Network
	case v.Policy != nil:
		w.Fleet = v.Policy.Fleet
	case v.Override != nil:
		w.Members, w.Note = wireMembers(v.Override.Members), v.Override.Note
		if !v.Override.Until.IsZero() {
			w.Until = v.Override.Until.Unix()
		}
	}
	return w
}

func wireMembers(members []Member) (wires []wireMember) {
	for _, m := range members {
		wires = append(wires, wireMember{m.Fleet, m.Gateway, m.Order, m.Weight})
	}
	return wires
}

// text is the entry as canonical text.
func (e *Entry) text() string {
	text, err := json.Marshal(e.wire())
	if err != nil {
		panic("rules: an entry cannot be written as text: " + err.Error()) // strings, numbers and lists always can
	}
	return string(text)
}

// Encode writes a Book as JSON, for a file and for other brokers. Equal Books have equal text.
func Encode(b *Book) []byte {
	w := wireBook{Format: format, Seen: b.seen, Entries: []wireEntry{}}
	for _, key := range b.keys() {
		for i := range b.kept[key] {
			w.Entries = append(w.Entries, b.kept[key][i].wire())
		}
	}
	text, err := json.Marshal(w)
	if err != nil {
		panic("rules: a book cannot be written as text: " + err.Error()) // as in text
	}
	return text
}

// Decode reads what Encode wrote. Everything is checked as if it were saved anew, but for what concerns several rules at once, which a
// merge may have brought about and which Compile flags.
func Decode(text []byte) (*Book, error) {
	if len(text) > MaxEncoded {
		return nil, fmt.Errorf("reading rules: they have %d bytes, at most %d are taken", len(text), MaxEncoded)
	}
	var w wireBook
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // of a later version: what it means is not known, and dropping it would lose it
	if err := decoder.Decode(&w); err != nil {
		return nil, fmt.Errorf("reading rules: %s", plain(err))
	}
	if decoder.More() {
		return nil, fmt.Errorf("reading rules: something follows after their end")
	}
	if w.Format != format {
		return nil, fmt.Errorf("reading rules: they are in format %d, and this version knows %d", w.Format, format)
	}
	if len(w.Seen) > MaxOrigins {
		return nil, fmt.Errorf("reading rules: %d brokers have made changes, at most %d are taken", len(w.Seen), MaxOrigins)
	}
	b := &Book{seen: map[string]uint64{}, kept: map[Key][]Entry{}}
	for origin, number := range w.Seen {
		if err := checkName("broker", origin, MaxTarget); err != nil || number == 0 || number > maxNumber {
			return nil, fmt.Errorf("reading rules: %.40q has seen up to %d, which cannot be", origin, number)
		}
		b.seen[origin] = number
	}
	for i := range w.Entries {
		e, err := w.Entries[i].entry()
		if err != nil {
			return nil, fmt.Errorf("reading rules: entry %d: %w", i+1, err)
		}
		if e.Number == 0 || e.Number > b.seen[e.Origin] {
			return nil, fmt.Errorf("reading rules: entry %d, %s, has a number that nobody has seen", i+1, e.Key)
		}
		if slices.ContainsFunc(b.kept[e.Key], func(o Entry) bool { return same(o, e) }) {
			return nil, fmt.Errorf("reading rules: entry %d, %s, is there twice", i+1, e.Key)
		}
		b.kept[e.Key] = append(b.kept[e.Key], e)
		if len(b.kept[e.Key]) > MaxOrigins {
			return nil, fmt.Errorf("reading rules: %s has more than %d changes that compete", e.Key, MaxOrigins)
		}
	}
	for _, entries := range b.kept {
		slices.SortFunc(entries, rank)
	}
	for kind, limit := range limits {
		if n := b.count(kind, Key{}); n > limit {
			return nil, fmt.Errorf("reading rules: there are %d of the kind %s, at most %d are taken", n, kind, limit)
		}
	}
	return b, nil
}

func (w *wireEntry) entry() (Entry, error) {
	e := Entry{Origin: w.Origin, Number: w.Number, Operator: w.Operator, Reason: w.Reason, Removed: w.Removed, Key: Key{w.Kind, w.Name}}
	for field, text := range map[string]string{"operator": w.Operator, "reason": w.Reason} {
		if err := checkText(e.Key.String(), field, text); err != nil {
			return e, err
		}
	}
	if _, ok := limits[w.Kind]; !ok {
		return e, fmt.Errorf("the kind %.20q is not known", w.Kind)
	}
	value, err := w.value()
	if err != nil {
		return e, err
	}
	if value, err = value.clean(); err != nil && !w.Removed {
		return e, err
	}
	if w.Removed {
		if err := checkName(string(w.Kind), w.Name, MaxTarget); err != nil {
			return e, err
		}
		value = Value{}
	} else if value.Key() != e.Key {
		return e, fmt.Errorf("%s is not in its canonical form", e.Key)
	}
	e.Value = value
	e.content = e.text()
	return e, nil
}

func (w *wireEntry) value() (Value, error) {
	members := make([]Member, len(w.Members))
	for i, m := range w.Members {
		members[i] = Member{Ref: fleet.Ref{Fleet: m.Fleet, Gateway: m.Gateway}, Order: m.Order, Weight: m.Weight}
	}
	switch w.Kind {
	case KindNetwork:
		n := &Network{Name: w.Name, Note: w.Note, Members: members}
		if w.Default {
			n.Exhausted = UseDefault
		}
		for _, text := range w.Subnets {
			subnet, err := netip.ParsePrefix(text)
			if err != nil {
				return Value{}, fmt.Errorf("network %.50q: %.60q is no subnet", w.Name, text)
			}
			n.Subnets = append(n.Subnets, subnet)
		}
		return Value{Network: n}, nil
	case KindAssignment:
		return Value{Assignment: &Assignment{Target: w.Name, Network: w.Network}}, nil
	case KindPolicy:
		return Value{Policy: &Policy{Name: w.Name, Fleet: w.Fleet}}, nil
	default:
		o := &Override{Network: w.Name, Members: members, Note: w.Note}
		if w.Until != 0 {
			o.Until = time.Unix(w.Until, 0).UTC()
		}
		return Value{Override: o}, nil
	}
}

// plain words an error of the decoder without the names of types.
func plain(err error) string {
	text := err.Error()
	if before, _, found := strings.Cut(text, " into Go "); found {
		text = before
	}
	return strings.TrimPrefix(text, "json: ")
}
