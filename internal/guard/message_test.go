package guard

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var sameMessage = cmp.Options{cmp.AllowUnexported(message{}), cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

// TestMessages: what is sent is what is read.
func TestMessages(t *testing.T) {
	for _, m := range []message{
		{kind: kindHello, version: version},
		{kind: kindMoving, first: true, last: true},
		{kind: kindMoving, last: true, moving: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")}},
		{kind: kindDeadline, deadline: Forever},
		{kind: kindDeadline},
		{kind: kindSeen, deadline: 12345},
		{kind: kindGoodbye},
		{kind: kindWelcome, version: version, text: "no silence at once"},
		{kind: kindSilenced, text: "the agent died"},
		{kind: kindRefused, text: strings.Repeat("x", maxText)},
	} {
		got, err := parse(m.bytes())
		if err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		if diff := cmp.Diff(m, got, sameMessage); diff != "" {
			t.Errorf("(-sent +read):\n%s", diff)
		}
	}
}

// TestMovingInParts: many addresses need several messages, none of which is longer than what is read at once.
func TestMovingInParts(t *testing.T) {
	for _, count := range []int{0, 1, partMoving, partMoving + 1, 3*partMoving + 7} {
		var all, got []netip.Addr
		for a := netip.MustParseAddr("10.0.0.0"); len(all) < count; a = a.Next() {
			all = append(all, a)
		}
		parts := movingMessages(all)
		for i, m := range parts {
			if len(m.bytes()) > maxMessage || m.first != (i == 0) || m.last != (i == len(parts)-1) {
				t.Errorf("of %d addresses, part %d of %d has %d bytes, first %v, last %v", count, i+1, len(parts), len(m.bytes()), m.first, m.last)
			}
			read, err := parse(m.bytes())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, read.moving...)
		}
		if diff := cmp.Diff(all, got, sameMessage); diff != "" {
			t.Errorf("(-sent +read):\n%s", diff)
		}
	}
}

// TestGarbage is refused, and nothing of it is taken in.
func TestGarbage(t *testing.T) {
	for _, b := range [][]byte{
		{}, {0}, {99}, {byte(kindHello)}, {byte(kindHello), 1, 1}, {byte(kindMoving)}, {byte(kindMoving), 4}, {byte(kindMoving), 1, 9},
		{byte(kindDeadline), 1}, {byte(kindDeadline), 255, 255, 255, 255, 255, 255, 255, 255}, {byte(kindGoodbye), 0}, {byte(kindWelcome)},
		append([]byte{byte(kindRefused)}, make([]byte, maxText+1)...), append([]byte{byte(kindMoving), 0}, make([]byte, 16*(partMoving+1))...),
	} {
		if m, err := parse(b); !errors.Is(err, errGarbage) {
			t.Errorf("%.20v was read as %+v, %v", b, m, err)
		}
	}
}

// FuzzParse: what is read can be written again, and is read as the same.
func FuzzParse(f *testing.F) {
	f.Add(message{kind: kindHello, version: version}.bytes())
	f.Add(movingMessages([]netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("::1")})[0].bytes())
	f.Add(message{kind: kindDeadline, deadline: Forever}.bytes())
	f.Add([]byte{byte(kindSilenced), 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		again, err := parse(m.bytes())
		if err != nil {
			t.Fatalf("%v was written as %v: %v", b, m.bytes(), err)
		}
		if diff := cmp.Diff(m, again, sameMessage); diff != "" {
			t.Errorf("(-once +again):\n%s", diff)
		}
	})
}
