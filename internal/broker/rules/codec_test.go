package rules

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func full(t testing.TB) *Book {
	n := network("n", "10.0.0.0/8", "2001:db8::/32")
	n.Network.Members[0].Weight, n.Network.Members[0].Order = 3, 2
	n.Network.Exhausted, n.Network.Note = UseDefault, "München"
	b := put(t, new(Book), n, assign("db", "n"), Value{Policy: &Policy{Name: "p", Fleet: "f"}}, network("gone"),
		Value{Override: &Override{Network: "n", Members: members("f/x"), Until: noon.Add(time.Hour), Note: "outage"}})
	b, err := b.Remove(Key{KindNetwork, "gone"}, alice, noon)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEncodeAndDecode(t *testing.T) {
	b := full(t)
	again, err := Decode(Encode(b))
	if err != nil || !again.Equal(b) {
		t.Fatalf("read back: %v\n%s", err, Encode(again))
	}
	if n, _ := again.Get(Key{KindNetwork, "n"}); n.Value.Network.Exhausted != UseDefault || n.Value.Network.Members[0].Weight != 3 || n.Operator != "alice" {
		t.Errorf("read back: %+v", n)
	}
	if o, _ := again.Get(Key{KindOverride, "n"}); !o.Value.Override.Until.Equal(noon.Add(time.Hour)) {
		t.Errorf("read back: %+v", o.Value.Override)
	}
	if empty, err := Decode(Encode(new(Book))); err != nil || !empty.Equal(&Book{}) {
		t.Errorf("an empty one: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	const head = `{"format":1,"seen":{"a":5},"entries":[`
	tests := map[string]string{
		"":                              "EOF",
		"{}":                            "format 0",
		`{"format":2}`:                  "format 2",
		`{"format":1,"later":1}`:        "unknown field",
		`{"format":1}{"format":1}`:      "something follows",
		`{"format":1,"seen":{"a":0}}`:   "which cannot be",
		`{"format":1,"seen":{"a b":1}}`: "which cannot be",
		`{"format":1,"seen":"a"}`:       "cannot unmarshal string",
		head + `{"kind":"policy","name":"p","fleet":"f","origin":"a","number":6}]}`:                                                                  "nobody has seen",
		head + `{"kind":"policy","name":"p","fleet":"f","origin":"b","number":1}]}`:                                                                  "nobody has seen",
		head + `{"kind":"law","name":"p","fleet":"f","origin":"a","number":1}]}`:                                                                     "the kind \"law\" is not known",
		head + `{"kind":"network","name":"p","origin":"a","number":1}]}`:                                                                             "no gateway is named",
		head + `{"kind":"network","name":"p","origin":"a","number":1,"subnets":["x"]}]}`:                                                             "is no subnet",
		head + `{"kind":"assignment","name":"DB","network":"n","origin":"a","number":1}]}`:                                                           "canonical",
		head + `{"kind":"policy","name":"","removed":true,"origin":"a","number":1}]}`:                                                                "has no name",
		head + `{"kind":"policy","name":"p","fleet":"f","origin":"a","number":1,"reason":"\n"}]}`:                                                    "one line",
		head + `{"kind":"policy","name":"p","fleet":"f","origin":"a","number":1},{"kind":"policy","name":"p","fleet":"f","origin":"a","number":1}]}`: "there twice",
	}
	for text, says := range tests {
		if b, err := Decode([]byte(text)); err == nil || b != nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "rules.") {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
	if _, err := Decode(make([]byte, MaxEncoded+1)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("one that is too long: %v", err)
	}
}

// FuzzDecode: what can be read can be written, merged and used, and comes out the same.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(full(f)), Encode(new(Book)))
	f.Add([]byte(`{"format":1,"seen":{"a":5,"b":3},"entries":[{"kind":"policy","name":"p","fleet":"f","origin":"a","number":4},{"kind":"policy","name":"p","removed":true,"origin":"b","number":3}]}`),
		[]byte(`{"format":1,"seen":{"a":5},"entries":[{"kind":"policy","name":"p","fleet":"g","origin":"a","number":4}]}`))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		a, err := Decode(one)
		if err != nil {
			return
		}
		if again, err := Decode(Encode(a)); err != nil || !again.Equal(a) {
			t.Fatalf("written and read again: %v", err)
		}
		table, _ := a.Compile()
		table.Find("db", addr("10.1.2.3"), noon)
		a.Contests()
		b, err := Decode(other)
		if err != nil {
			return
		}
		ab, err1 := Merge(a, b)
		ba, err2 := Merge(b, a)
		if (err1 == nil) != (err2 == nil) || err1 == nil && !ab.Equal(ba) {
			t.Fatalf("%v %v\n%s\n%s", err1, err2, one, other)
		}
	})
}
