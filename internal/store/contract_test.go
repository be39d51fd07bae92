package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/store/storetest"
)

func startEmbedded(t *testing.T, options store.MemberOptions) *store.Member {
	t.Helper()
	member, err := store.StartMember(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = member.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := member.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return member
}

func TestEmbeddedMemberKeepsTheContract(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	storetest.Contract(t, func(t *testing.T) store.Store { return openClient(t, id, options.ListenClient) })
}

func TestThreeExternalMembersKeepTheContract(t *testing.T) {
	c := startCluster(t, 3)
	storetest.Contract(t, func(t *testing.T) store.Store { return c.open() })
}

func TestGuardedMembersKeepTheContract(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	cluster, err := store.Found(t.Context(), openClient(t, id, options.ListenClient), "test")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Contract(t, func(t *testing.T) store.Store {
		return store.Guard(openClient(t, id, options.ListenClient), cluster, new(problem.Board))
	})
}
