package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/store/storetest"
)

type pool struct {
	Owner string   `json:"owner"`
	Epoch uint64   `json:"epoch"`
	Next  []string `json:"next,omitempty"`
}

func TestRecords(t *testing.T) {
	s := storetest.New(nil).Connect()
	want := pool{Owner: "node1", Epoch: 7, Next: []string{"node2"}}
	op, err := store.PutOp("pools/a", want, 0)
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Commit(t.Context(), store.Txn{If: []store.Condition{store.Absent("pools/a")}, Then: []store.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	got, found, err := store.GetRecord[pool](t.Context(), s, "pools/a")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(store.Record[pool]{Key: "pools/a", Value: want, Revision: made}, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if _, err := s.Commit(t.Context(), store.Txn{If: []store.Condition{got.Unchanged()}, Then: []store.Op{op}}); err != nil {
		t.Error(err)
	}
	if _, err := s.Commit(t.Context(), store.Txn{If: []store.Condition{got.Unchanged()}, Then: []store.Op{op}}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a record that was changed since counts as unchanged: %v", err)
	}
	if _, found, err := store.GetRecord[pool](t.Context(), s, "pools/none"); found || err != nil {
		t.Errorf("an absent record: %v, %v", found, err)
	}

	// One damaged record hides no other.
	for key, value := range map[string]string{"pools/b": `{`, "pools/c": `{"owner":"node3","epoch":1}`} {
		if _, err := s.Commit(t.Context(), put(key, value)); err != nil {
			t.Fatal(err)
		}
	}
	records, _, err := store.ListRecords[pool](t.Context(), s, "pools/")
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), `"pools/b"`) {
		t.Errorf("error %v", err)
	}
	if len(records) != 2 || records[0].Key != "pools/a" || records[1].Value.Owner != "node3" {
		t.Errorf("records %+v", records)
	}
	if _, err := store.PutOp("a", make(chan int), 0); err == nil {
		t.Error("a channel was encoded")
	}
}

func TestRecordsAreReadStrictly(t *testing.T) {
	for value, says := range map[string]string{
		`{"owner":"a","epoch":1}`:                  "",
		` {"owner":"a","epoch":1} ` + "\n":         "",
		`{"owner":"a","epoch":1,"forbidden":true}`: `unknown field "forbidden"`, // from a newer version
		`{"owner":"a","epoch":-1}`:                 `field "epoch" cannot be a number -1`,
		`{"owner":3}`:                              `field "owner" cannot be a number`,
		`{"owner":"a"}{"owner":"b"}`:               "something follows the value",
		`{"owner":"a"`:                             "unexpected EOF",
		``:                                         "EOF",
	} {
		_, err := store.DecodeRecord[pool](store.Entry{Key: "pools/a", Revision: 12, Value: []byte(value)})
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", value, err)
			}
			continue
		}
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `"pools/a" at revision 12`) {
			t.Errorf("%s: %v, want it to say %q", value, err, says)
		}
		if err != nil && (strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "store_test")) {
			t.Errorf("%s: the error speaks of the program: %v", value, err)
		}
	}
}

// What decodes must encode and decode to the same again.
func FuzzDecodeRecord(f *testing.F) {
	for _, seed := range []string{`{"owner":"a","epoch":1}`, `{"next":["a",null]}`, `null`, `[]`, `{"owner":"\ud800"}`, `{"epoch":18446744073709551615}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		record, err := store.DecodeRecord[pool](store.Entry{Key: "a", Value: value})
		if err != nil {
			return
		}
		data, err := json.Marshal(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := store.DecodeRecord[pool](store.Entry{Key: "a", Value: data})
		if err != nil {
			t.Fatalf("%q became %q, which does not decode: %v", value, data, err)
		}
		if len(record.Value.Next) == 0 {
			record.Value.Next = nil // an empty list is left out
		}
		if diff := cmp.Diff(record, again); diff != "" {
			t.Errorf("%q changed (-before +after):\n%s", value, diff)
		}
	})
}

func TestLeaseLivesAreWholeSeconds(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, time.Second: time.Second, time.Second + 1: 2 * time.Second, time.Minute: time.Minute,
	} {
		if got := store.WholeSeconds(asked); got != want {
			t.Errorf("%v: %v, want %v", asked, got, want)
		}
	}
}
