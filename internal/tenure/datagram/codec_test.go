package datagram

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/tenure"
)

func TestMessageOnTheWire(t *testing.T) {
	m := tenure.Message{Kind: tenure.Heartbeat, Lapsed: true, Subject: 258, Incarnation: 7, Number: 8, Span: 300 * time.Millisecond,
		Interval: 100 * time.Millisecond, Life: 9, Version: 10}
	var b [MessageSize]byte
	if err := Encode(&b, &m); err != nil {
		t.Fatal(err)
	}
	want := "01 01 01 00 0102 000493e0 000186a0 0000000000000007 0000000000000008 0000000000000009 000000000000000a"
	if got := hex.EncodeToString(b[:]); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("it is %s, want %s", got, want)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	good := tenure.Message{Kind: tenure.Denial, Reason: tenure.DeniedHeard, Subject: 1, Span: MaxSpan, Interval: MaxSpan}
	for name, change := range map[string]func(*tenure.Message){
		"no kind":                  func(m *tenure.Message) { m.Kind = 0 },
		"an unknown kind":          func(m *tenure.Message) { m.Kind = tenure.Farewell + 1 },
		"an unknown reason":        func(m *tenure.Message) { m.Reason = tenure.DeniedLater + 1 },
		"no subject":               func(m *tenure.Message) { m.Subject = 0 },
		"a subject too high":       func(m *tenure.Message) { m.Subject = MaxLNN + 1 },
		"a span too long":          func(m *tenure.Message) { m.Span = MaxSpan + time.Microsecond },
		"a span before its start":  func(m *tenure.Message) { m.Span = -time.Microsecond },
		"half a microsecond":       func(m *tenure.Message) { m.Span = 500 },
		"an interval too long":     func(m *tenure.Message) { m.Interval = MaxSpan + time.Microsecond },
		"half an interval":         func(m *tenure.Message) { m.Interval = 1500 },
		"an interval that is less": func(m *tenure.Message) { m.Interval = -1 },
	} {
		m, b := good, [MessageSize]byte{}
		change(&m)
		if err := Encode(&b, &m); err == nil {
			t.Errorf("%s is encoded", name)
		}
	}
	var encoded [MessageSize]byte
	if err := Encode(&encoded, &good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*[MessageSize]byte){
		"another version":      func(b *[MessageSize]byte) { b[0] = 2 },
		"no kind":              func(b *[MessageSize]byte) { b[1] = 0 },
		"an unknown kind":      func(b *[MessageSize]byte) { b[1] = 200 },
		"an unknown flag":      func(b *[MessageSize]byte) { b[2] |= 2 },
		"an unknown reason":    func(b *[MessageSize]byte) { b[3] = 200 },
		"no subject":           func(b *[MessageSize]byte) { b[4], b[5] = 0, 0 },
		"a span too long":      func(b *[MessageSize]byte) { b[6] = 255 },
		"an interval too long": func(b *[MessageSize]byte) { b[10] = 255 },
	} {
		b, m := encoded, tenure.Message{}
		change(&b)
		if err := Decode(&m, &b); err == nil {
			t.Errorf("%s is decoded, as %+v", name, m)
		}
	}
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microseconds := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(MaxSpan/time.Microsecond)).Draw(t, "microseconds")) * time.Microsecond
		})
		number := rapid.Uint64Range(0, math.MaxUint64)
		m := tenure.Message{
			Kind: tenure.Kind(rapid.Uint8Range(uint8(tenure.Heartbeat), uint8(tenure.Farewell)).Draw(t, "kind")), Lapsed: rapid.Bool().Draw(t, "lapsed"),
			Reason:  tenure.Denied(rapid.Uint8Range(0, uint8(tenure.DeniedLater)).Draw(t, "reason")),
			Subject: rapid.IntRange(1, MaxLNN).Draw(t, "subject"), Incarnation: tenure.Incarnation(number.Draw(t, "incarnation")), Number: number.Draw(t, "number"),
			Span: microseconds.Draw(t, "span"), Interval: microseconds.Draw(t, "interval"), Life: number.Draw(t, "life"), Version: number.Draw(t, "version"),
		}
		var b [MessageSize]byte
		var back tenure.Message
		if err := Encode(&b, &m); err != nil {
			t.Fatal(err)
		}
		if err := Decode(&back, &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Error(diff)
		}
	})
}

// FuzzDecode: what is decoded, is encoded as it was.
func FuzzDecode(f *testing.F) {
	var b [MessageSize]byte
	for kind := tenure.Heartbeat; kind <= tenure.Farewell; kind++ {
		m := tenure.Message{Kind: kind, Subject: int(kind), Incarnation: 1, Number: 2, Span: time.Second, Interval: time.Millisecond, Life: 3, Version: 4}
		if err := Encode(&b, &m); err != nil {
			f.Fatal(err)
		}
		f.Add(b[:])
	}
	f.Add(make([]byte, MessageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != MessageSize {
			return
		}
		var m tenure.Message
		var again [MessageSize]byte
		if Decode(&m, (*[MessageSize]byte)(b)) != nil {
			return
		}
		if err := Encode(&again, &m); err != nil || again != [MessageSize]byte(b) {
			t.Errorf("%x is decoded as %+v, and that encoded as %x, %v", b, m, again, err)
		}
	})
}
