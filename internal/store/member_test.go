package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/store"
)

func TestMemberTakesUpItsData(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	s := openClient(t, id, options.ListenClient)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for run, want := range []string{"", "run 0", "run 1"} {
		member, err := store.StartMember(options)
		if err != nil {
			t.Fatal(err)
		}
		entry, _, err := s.Get(ctx, "a")
		if err != nil || string(entry.Value) != want {
			t.Errorf("run %d finds %q, %v", run, entry.Value, err)
		}
		if _, err := s.Commit(ctx, put("a", "run "+string(rune('0'+run)))); err != nil {
			t.Errorf("run %d: %v", run, err)
		}
		if err := member.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-member.Stopped():
		default:
			t.Error("closed and not stopped")
		}
		if err := member.Wait(ctx); err != nil && !errors.Is(err, store.ErrClosed) {
			t.Errorf("waiting for a closed member: %v", err)
		}
	}
}

func TestDataDirectoryHasOneUser(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	second := options
	second.ListenClient, second.ListenPeer = []string{freeAddress(t)}, []string{freeAddress(t)}
	if _, err := store.StartMember(second); err == nil || !strings.Contains(err.Error(), "another agent uses the data directory") {
		t.Errorf("a second member on the same data: %v", err)
	}
	third := memberOptions(t, id, 1)[0]
	third.ListenClient = options.ListenClient
	if _, err := store.StartMember(third); err == nil || !strings.Contains(err.Error(), "another program listens there") {
		t.Errorf("a second member on the same address: %v", err)
	}
}

// One of three starts alone, as in a cluster that is being switched on: it listens, and does not pretend to be ready.
func TestFirstOfThreeWaitsForAMajority(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 3)
	member, err := store.StartMember(options[0])
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := member.Wait(ctx); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "node1 node2 node3") {
		t.Errorf("waiting alone: %v", err)
	}
}

func TestMemberOptionsAreChecked(t *testing.T) {
	id := newIdentity(t)
	for name, c := range map[string]struct {
		spoil func(*store.MemberOptions)
		says  string
	}{
		"not among the members": {func(o *store.MemberOptions) { o.Name = "node9" }, "not among the members [node1]"},
		"no directory":          {func(o *store.MemberOptions) { o.Dir = "" }, "data directory"},
		"no client address":     {func(o *store.MemberOptions) { o.ListenClient = nil }, "client listen address"},
		"no certificates":       {func(o *store.MemberOptions) { o.Files = store.Files{} }, "never speaks in the clear"},
		"a host name":           {func(o *store.MemberOptions) { o.ListenClient = []string{"localhost:1"} }, "give address:port"},
		"no port":               {func(o *store.MemberOptions) { o.ListenPeer = []string{"127.0.0.1"} }, "give address:port"},
		"a foreign address":     {func(o *store.MemberOptions) { o.ListenClient = []string{"192.0.2.1:1"} }, "the address is not on this node now"},
		"a missing certificate": {func(o *store.MemberOptions) { o.Files.NodeCert = "/nonexistent/node.crt" }, "/nonexistent/node.crt"},
	} {
		options := memberOptions(t, id, 1)[0] // its own ports: a refused member may still be letting go of its
		c.spoil(&options)
		if member, err := store.StartMember(options); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
			if member != nil {
				_ = member.Close()
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	id := newIdentity(t)
	for name, c := range map[string]struct {
		spoil func(*store.Options)
		says  string
	}{
		"no endpoints":        {func(o *store.Options) { o.Endpoints = nil }, "0 endpoints, expected 1 to 16"},
		"too many":            {func(o *store.Options) { o.Endpoints = make([]string, 17) }, "17 endpoints"},
		"in the clear":        {func(o *store.Options) { o.Endpoints = []string{"http://10.0.0.1:2379"} }, "only https"},
		"a path":              {func(o *store.Options) { o.Endpoints = []string{"https://10.0.0.1:2379/v3"} }, "and nothing else"},
		"no port":             {func(o *store.Options) { o.Endpoints = []string{"10.0.0.1"} }, "give host:port"},
		"IPv6 without":        {func(o *store.Options) { o.Endpoints = []string{"fd00::1"} }, "brackets"},
		"no TLS":              {func(o *store.Options) { o.TLS = nil }, "mutual TLS only"},
		"no cluster":          {func(o *store.Options) { o.Cluster = "" }, "cannot be a cluster name"},
		"a cluster in a tree": {func(o *store.Options) { o.Cluster = "a/b" }, "cannot be a cluster name"},
	} {
		options := store.Options{Endpoints: []string{"https://10.0.0.1:2379"}, TLS: id.ClientTLS(), Cluster: "test"}
		c.spoil(&options)
		if s, err := store.Open(options); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
}

// Two clusters may share one etcd.
func TestClustersDoNotSeeEachOther(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	ours := openClient(t, id, options.ListenClient)
	theirs := openClient(t, id, options.ListenClient, func(o *store.Options) { o.Cluster = "test2" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := ours.Commit(ctx, put("a", "1")); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := theirs.List(ctx, ""); err != nil || len(entries) != 0 {
		t.Errorf("the other cluster sees %v, %v", entries, err)
	}
	if entries, _, err := ours.List(ctx, ""); err != nil || len(entries) != 1 || entries[0].Key != "a" {
		t.Errorf("this cluster sees %v, %v", entries, err)
	}
}

func TestMetricsCount(t *testing.T) {
	id := newIdentity(t)
	options := memberOptions(t, id, 1)[0]
	startEmbedded(t, options)
	registry := prometheus.NewRegistry()
	s := openClient(t, id, options.ListenClient, func(o *store.Options) { o.Registerer = registry })
	if _, err := s.Commit(t.Context(), put("a", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(store.Options{Endpoints: options.ListenClient, TLS: id.ClientTLS(), Cluster: "test", Registerer: registry}); err == nil {
		t.Error("two stores share one registerer")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := uint64(0)
	for _, family := range families {
		if family.GetName() == "holdfast_store_call_duration_seconds" {
			for _, metric := range family.GetMetric() {
				counted += metric.GetHistogram().GetSampleCount()
			}
		}
	}
	if counted < 2 { // the writer's lease and the commit
		t.Errorf("%d calls were counted", counted)
	}
}
