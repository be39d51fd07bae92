package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/store"
)

// Two of three members are lost for good. The third goes on alone with all that it has; the lost ones, if they come back with their
// data, are told that they were removed, and a new member can join.
func TestOneOfThreeGoesOnAlone(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 3)
	members := make([]*store.Member, 3)
	for i := range options {
		var err error
		if members[i], err = store.StartMember(options[i]); err != nil {
			t.Fatal(err)
		}
	}
	closeAll := func(from int) {
		for _, m := range members[from:] {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, m := range members {
		if err := m.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s := openClient(t, id, options[0].ListenClient)
	var last int64
	for n := range 20 {
		var err error
		if last, err = s.Commit(ctx, put("a", fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
	}
	for members[0].Revision() < last { // the client spoke to this member, but it need not lead
		if ctx.Err() != nil {
			t.Fatalf("its copy ends at %d, want %d", members[0].Revision(), last)
		}
		time.Sleep(time.Millisecond)
	}
	identity := members[0].ID()
	closeAll(1)
	short, stop := context.WithTimeout(ctx, time.Second)
	if _, err := s.Commit(short, put("a", "lost")); err == nil {
		t.Fatal("one of three writes")
	}
	stop()
	if err := members[0].Close(); err != nil {
		t.Fatal(err)
	}
	alone := options[0]
	alone.Alone, alone.Peers = true, map[string]string{options[0].Name: options[0].Peers[options[0].Name]}
	survivor, err := store.StartMember(alone)
	if err != nil {
		t.Fatal(err)
	}
	members = append(members[:0], survivor)
	defer func() { closeAll(0) }()
	if err := survivor.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if survivor.ID() != identity || survivor.Revision() < last {
		t.Errorf("it is member %x at revision %d, and was %x at %d", survivor.ID(), survivor.Revision(), identity, last)
	}
	entry, _, err := s.Get(ctx, "a")
	if err != nil || string(entry.Value) != "19" {
		t.Errorf("it has %q, %v", entry.Value, err)
	}
	if _, err := s.Commit(ctx, put("a", "alone")); err != nil {
		t.Error(err)
	}
	returned, err := store.StartMember(options[1])
	if err == nil { // it may notice at its start already
		select {
		case <-returned.Stopped():
		case <-ctx.Done():
			t.Error("a lost member that came back goes on")
		}
		if err := returned.Err(); err == nil {
			t.Error("a lost member that came back does not say why it ended")
		}
		_ = returned.Close()
	}
	if present, err := survivor.Members(ctx); err != nil || len(present) != 1 {
		t.Errorf("the members are %+v, %v", present, err)
	}
}
