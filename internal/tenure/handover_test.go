package tenure

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// passedOn is a peer as another process would have it: written down, read, and with times of another beginning.
func passedOn(t testing.TB, p *Peer) *Peer {
	t.Helper()
	data, err := json.Marshal(p.Export(func(at time.Time) int64 { return int64(at.Sub(epoch)) + 1 }))
	if err != nil {
		t.Fatal(err)
	}
	var s Memory
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return Import(s, func(n int64) time.Time { return epoch.Add(time.Duration(n - 1)) })
}

// TestReplacedPeersBehaveTheSame: histories in which every node is replaced again and again, between any two things that it learns,
// are the same to the last message as those in which nobody is.
func TestReplacedPeersBehaveTheSame(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	history := func(seed uint64, every int) (steps int, sum uint64) {
		all := fnv.New64a()
		stepped := func(x *seat, now time.Time, standing Standing) {
			incarnation, begun := x.peer.Incarnation()
			fmt.Fprintln(all, x.lnn, now.UnixNano(), standing, incarnation, begun, x.peer.Ended(), x.out.Messages, x.out.Findings)
			if steps++; every > 0 && steps%every == 0 {
				*x.peer = *passedOn(t, x.peer)
			}
		}
		failure, _ := play(t, seed, false, flaw{stepped: &stepped})
		if failure != "" {
			t.Fatalf("seed %d: %s", seed, failure)
		}
		return steps, all.Sum64()
	}
	for seed := range seeds {
		steps, want := history(seed, 0)
		if again, got := history(seed, 7+int(seed)%50); got != want || again != steps {
			t.Fatalf("seed %d: with replacements it is another history: %d steps, not %d", seed, again, steps)
		}
	}
}

// TestNothingIsLeftBehind: every field of a peer is handed over. One that is added has to be added to Memory as well, or a replaced
// agent forgets it.
func TestNothingIsLeftBehind(t *testing.T) {
	p := &Peer{}
	next := 1
	fill(t, reflect.ValueOf(p).Elem(), "Peer", &next)
	p.watches = map[int]*watch{}
	for _, w := range p.order {
		p.watches[w.lnn] = w
	}
	p.right.phase = lapsed
	for i := range p.right.beats { // a heartbeat is kept at the place that its number says
		p.right.beats[i].number = uint64(beats*10 + i)
	}
	p.right.asked = nil
	for lnn := range p.right.leases {
		p.right.asked = append(p.right.asked, lnn)
	}
	got := passedOn(t, p)
	if difference := cmp.Diff(p, got, cmp.Exporter(func(reflect.Type) bool { return true })); difference != "" {
		t.Errorf("what was handed over differs:\n%s", difference)
	}
}

// fill gives every field under v a value of its own that is not zero.
func fill(t *testing.T, v reflect.Value, path string, next *int) {
	t.Helper()
	*next++
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(epoch.Add(time.Duration(*next) * time.Second)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Field(i)
			fill(t, reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem(), path+"."+v.Type().Field(i).Name, next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), path, next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), path+"[0]", next)
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), fmt.Sprintf("%s[%d]", path, i), next)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, path+" key", next)
		fill(t, value, path+" value", next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(*next) + 1)
	case reflect.Int64:
		v.SetInt(int64(*next) + int64(MinInterval))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint64:
		v.SetUint(uint64(*next))
	case reflect.String:
		v.SetString(path)
	default:
		t.Fatalf("%s is of a kind that this test does not know: %s", path, v.Kind())
	}
}
