package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/store/storetest"
)

func TestFound(t *testing.T) {
	fake := storetest.New(nil)
	first, err := store.Found(t.Context(), fake.Connect(), "prod")
	if err != nil || len(first.ID) != 32 {
		t.Fatal(first, err)
	}
	again, err := store.Found(t.Context(), fake.Connect(), "prod")
	if err != nil || again != first {
		t.Errorf("the second node founds %+v, %v, and the first %+v", again, err, first)
	}
	if _, err := store.Found(t.Context(), fake.Connect(), "test"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("another cluster founds in this store: %v", err)
	}
	if err := store.Verify(t.Context(), fake.Connect(), first); err != nil {
		t.Error(err)
	}
	stranger := store.ClusterID{Cluster: "prod", ID: "0"} // the same name, another founding
	if err := store.Verify(t.Context(), fake.Connect(), stranger); !errors.Is(err, store.ErrForeign) {
		t.Errorf("verifying: %v", err)
	}
	fake.Wipe()
	if err := store.Verify(t.Context(), fake.Connect(), first); !errors.Is(err, store.ErrEmpty) {
		t.Errorf("verifying after a wipe: %v", err)
	}
}

func TestGuardRefusesAnEmptyStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fake := storetest.New(nil)
		inner, board := fake.Connect(), new(problem.Board)
		id, err := store.Found(t.Context(), inner, "prod")
		if err != nil {
			t.Fatal(err)
		}
		guarded := store.Guard(inner, id, board)
		if _, err := guarded.Commit(t.Context(), put("a", "1")); err != nil {
			t.Fatal(err)
		}
		watch := guarded.Watch(t.Context(), "", 0)
		if batch := <-watch; !batch.Resync || len(batch.Events) != 2 {
			t.Fatalf("batch %+v", batch)
		}
		fake.Wipe()
		synctest.Wait()
		if active := board.List(); len(active) != 1 || active[0].Kind.Code != "store.empty" {
			t.Errorf("problems %+v", active)
		}
		for name, call := range map[string]func() error{
			"Get":    func() error { _, _, err := guarded.Get(t.Context(), "a"); return err },
			"List":   func() error { _, _, err := guarded.List(t.Context(), ""); return err },
			"Commit": func() error { _, err := guarded.Commit(t.Context(), put("a", "2")); return err },
		} {
			if err := call(); !errors.Is(err, store.ErrEmpty) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, found, _ := inner.Get(t.Context(), "a"); found {
			t.Error("something was written into the empty store")
		}
		time.Sleep(time.Hour) // of the bubble
		select {
		case batch := <-watch:
			t.Errorf("the watch believed the empty store: %+v", batch)
		default:
		}
	})
}

func TestGuardProtectsItsRecord(t *testing.T) {
	fake := storetest.New(nil)
	id, err := store.Found(t.Context(), fake.Connect(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	guarded := store.Guard(fake.Connect(), id, new(problem.Board))
	for _, op := range []store.Op{store.Delete{Key: store.ClusterIDKey}, store.Put{Key: store.ClusterIDKey}} {
		if _, err := guarded.Commit(t.Context(), store.Txn{Then: []store.Op{op}}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", op, err)
		}
	}
	conflict := store.Txn{If: []store.Condition{{Key: "a", Revision: 99}}, Then: []store.Op{store.Put{Key: "a"}}}
	if _, err := guarded.Commit(t.Context(), conflict); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an ordinary conflict: %v", err)
	}
}
