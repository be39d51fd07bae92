package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// How often everything is looked at while nothing may change. Many looks are more than ten seconds' worth, several times the
// longest life of anything that would run out.
const (
	manyLooks = 60
	someLooks = 20
)

// nothingMoves looks at all nodes many times while the store is not there. The kernels must not give up or get anything
// meanwhile, be it only for a moment: the watcher has seen every change.
func (l *lab) nothingMoves(t *testing.T, w *watcher, nodes []string, held map[string][]string, looks int) {
	t.Helper()
	before := len(w.check(t).Seen)
	for range looks {
		for _, node := range nodes {
			now, err := l.kernel(node)
			if err != nil || fmt.Sprint(now) != fmt.Sprint(held[node]) {
				t.Fatalf("%s had %v and has %v %v", node, held[node], now, err)
			}
		}
		pause()
	}
	if seen := w.check(t).Seen; len(seen) != before {
		t.Fatalf("addresses came or went: %v", seen[before:])
	}
}

// held is what each node's kernel has.
func (l *lab) held(t *testing.T, nodes []string) map[string][]string {
	t.Helper()
	held := map[string][]string{}
	for _, node := range nodes {
		var err error
		if held[node], err = l.kernel(node); err != nil {
			t.Fatal(err)
		}
	}
	return held
}

// refused runs a change that must be refused with an error that speaks of the store, and change nothing.
func (l *lab) refused(t *testing.T, node string) {
	t.Helper()
	before := l.must(t, node, "holdfast", "get")
	r, err := l.try(node, "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "7")
	if err != nil {
		t.Fatal(err)
	}
	if r.code == 0 || !strings.Contains(r.complaints, "store") {
		t.Errorf("without the store a change ended with %d: %s%s", r.code, r.out, r.complaints)
	}
	if after := l.must(t, node, "holdfast", "get"); after != before {
		t.Errorf("the refused change is in effect:\n%s", after)
	}
}

// TestEmbeddedStoreWithoutMajority turns off two of the three nodes of five that host the store. What the others hold stays,
// by their word to each other; what the dead held is taken by their successors on record, without the store; then nothing moves, and
// with one member back it goes on.
func TestEmbeddedStoreWithoutMajority(t *testing.T) {
	l := startLab(t, 5, cast{nodes: 5, clients: 1, resolver: "none", services: "10.10.0.4", list: fiveNodes}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3, 3, 3)
	rest := []string{"node3", "node4", "node5"}
	before := l.held(t, rest)
	stay, err := l.holdings("node3")
	if err != nil {
		t.Fatal(err)
	}
	stay = slices.DeleteFunc(stay, func(h holding) bool { // what one of the dead holds and the other is next of waits for the store
		return h.Kind != "dynamic" || !slices.Contains(rest, h.Node) && !slices.Contains(rest, h.NextNode)
	})
	for _, node := range []string{"node1", "node2"} {
		w.leave(t, node)
	}
	// Both at once: with one dead the other two would decide who takes over.
	l.do(t, "partition", "node1,node2", "/", "node3,node4,node5,client1")
	l.do(t, "kill", "node1")
	l.do(t, "kill", "node2")
	l.do(t, "heal")
	eventually(t, "the successors have what the dead held", func() error {
		var all []string
		for _, node := range rest {
			now, err := l.kernel(node)
			if err != nil {
				return err
			}
			all = append(all, now...)
		}
		for _, h := range stay {
			if !slices.Contains(all, h.Address) {
				return fmt.Errorf("%s, which %s had and %s is next of, is not held", h.Address, h.Node, h.NextNode)
			}
		}
		return nil
	})
	held := l.held(t, rest)
	for _, node := range rest {
		for _, address := range before[node] {
			if !slices.Contains(held[node], address) {
				t.Errorf("%s had %s and has it no more", node, address)
			}
		}
		eventually(t, node+" says that the store is silent", func() error { return l.problem(node, "node.store-silent", "") })
	}
	l.nothingMoves(t, w, rest, held, manyLooks)
	l.refused(t, "node4")
	l.do(t, "start", "node1")
	w.join(t, "node1")
	pool, _ := l.spread(t, without(l.nodes, "node2"), 4, 4, 4, 3)
	for _, node := range rest {
		for _, address := range held[node] {
			if now := pool[address]; now != node && now != "node1" && now != "" {
				t.Errorf("%s moved from %s to %s", address, node, now)
			}
		}
	}
	l.must(t, "node4", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "7")
}

const fiveNodes = `- {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.10.0.11], voter: true}
- {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.10.0.12], voter: true}
- {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.10.0.13], voter: true}
- {name: node4, lnn: 4, interfaces: [eth0], addresses: [10.10.0.14], voter: false}
- {name: node5, lnn: 5, interfaces: [eth0], addresses: [10.10.0.15], voter: false}`

// externalStore is an etcd of three members, on the clients of a lab.
type externalStore struct {
	lab     *lab
	files   string
	initial string
	members [3]*program
}

const externalYAML = `heartbeat-interval-ms: 50
store: {endpoints: ["10.10.0.201:2379", "10.10.0.202:2379", "10.10.0.203:2379"]}`

// TestExternalStore runs a cluster on an etcd that the administrator runs, with certificates of the cluster's authority.
// The lab serves the tests that follow, in order.
func TestExternalStore(t *testing.T) {
	need(t, "etcd:etcd-server")
	whole := t
	l := startLab(t, 3, cast{nodes: 3, clients: 3, resolver: "none", cluster: externalYAML}.file(), "--no-wait")
	s := l.externalStore(t)
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3)
	if status, err := l.status("node1"); err != nil || status.Store.Mode != "external" {
		t.Errorf("the store is shown as %+v %v", status.Store, err)
	}
	for _, node := range l.nodes {
		if _, err := os.Stat(filepath.Join(l.dir, "nodes", node, "store")); err == nil {
			t.Errorf("%s hosts a member although the store is external", node)
		}
	}
	t.Run("one member frozen", func(t *testing.T) {
		held := l.held(t, l.nodes)
		for _, member := range s.members {
			member.signal(syscall.SIGSTOP)
			l.nothingMoves(t, w, l.nodes, held, someLooks)
			member.signal(syscall.SIGCONT)
		}
		l.must(t, "node2", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "3")
	})
	t.Run("two members killed", func(t *testing.T) {
		held := l.held(t, l.nodes)
		s.members[0].kill()
		s.members[2].kill()
		for _, node := range l.nodes {
			eventually(t, node+" says that the store is silent", func() error { return l.problem(node, "node.store-silent", "") })
		}
		l.nothingMoves(t, w, l.nodes, held, manyLooks)
		l.refused(t, "node2")
		if out := strings.TrimSpace(l.must(t, "client2", "dig", "+short", "@10.10.0.4", "cluster.lab")); !strings.HasPrefix(out, "10.10.0.1") {
			t.Errorf("without the store the name is answered with %q", out)
		}
		s.start(whole, 0)
		s.start(whole, 2)
		l.recovered(t, w, held)
	})
	t.Run("all members killed", func(t *testing.T) {
		held := l.held(t, l.nodes)
		for _, member := range s.members {
			member.kill()
		}
		for _, node := range l.nodes {
			eventually(t, node+" says that the store is silent", func() error { return l.problem(node, "node.store-silent", "") })
		}
		l.nothingMoves(t, w, l.nodes, held, someLooks)
		for i := range s.members {
			s.start(whole, i)
		}
		l.recovered(t, w, held)
	})
	t.Run("empty after a restart", func(t *testing.T) {
		held := l.held(t, l.nodes)
		for i, member := range s.members {
			member.kill()
			if err := os.RemoveAll(s.data(i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range s.members {
			s.start(whole, i)
		}
		for _, node := range l.nodes {
			eventually(t, node+" says that the store has lost its records", func() error { return l.problem(node, "store.empty", "") })
		}
		l.nothingMoves(t, w, l.nodes, held, manyLooks)
		l.refused(t, "node3")
	})
}

// recovered waits until the store is back for everybody: nothing came or went, and a change works.
func (l *lab) recovered(t *testing.T, w *watcher, held map[string][]string) {
	t.Helper()
	before := len(w.check(t).Seen)
	for _, node := range l.nodes {
		eventually(t, node+" has the store again", func() error {
			if l.problem(node, "node.store-silent", "") == nil {
				return fmt.Errorf("it says that the store is silent")
			}
			_, err := l.get(node, "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", fmt.Sprint(20+len(node)))
			return err
		})
	}
	l.spread(t, l.nodes, 3, 3, 3)
	if seen := w.check(t).Seen; len(seen) != before {
		t.Errorf("with the store's return addresses came or went: %v", seen[before:])
	}
	if now := l.held(t, l.nodes); !maps.EqualFunc(now, held, func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("held were %v and are %v", held, now)
	}
}

// externalStore makes the members' certificates with the lab's authority and starts them.
func (l *lab) externalStore(t *testing.T) *externalStore {
	t.Helper()
	s := &externalStore{lab: l, files: t.TempDir()}
	var initial []string
	for i := range s.members {
		name := fmt.Sprintf("store%d", i+1)
		l.must(t, "client1", "holdfast", "identity", "issue", name, "--authority", filepath.Join(l.dir, "ca"),
			"--address", s.address(i), "--out", filepath.Join(s.files, name))
		initial = append(initial, fmt.Sprintf("%s=https://%s:2380", name, s.address(i)))
	}
	s.initial = strings.Join(initial, ",")
	for i := range s.members {
		s.start(t, i)
	}
	return s
}

func (s *externalStore) address(i int) string { return fmt.Sprintf("10.10.0.%d", 201+i) }
func (s *externalStore) data(i int) string    { return filepath.Join(s.files, fmt.Sprintf("data%d", i+1)) }

// start starts one member on what data it has.
func (s *externalStore) start(t *testing.T, i int) {
	t.Helper()
	name, at := fmt.Sprintf("store%d", i+1), s.address(i)
	file := func(name string) string { return filepath.Join(s.files, fmt.Sprintf("store%d", i+1), name) }
	s.members[i] = s.lab.start(t, fmt.Sprintf("client%d", i+1), "etcd", "--name", name, "--data-dir", s.data(i),
		"--listen-client-urls", "https://"+at+":2379", "--advertise-client-urls", "https://"+at+":2379",
		"--listen-peer-urls", "https://"+at+":2380", "--initial-advertise-peer-urls", "https://"+at+":2380",
		"--initial-cluster", s.initial, "--initial-cluster-state", "new",
		"--cert-file", file("node.crt"), "--key-file", file("node.key"), "--trusted-ca-file", file("ca.crt"), "--client-cert-auth",
		"--peer-cert-file", file("node.crt"), "--peer-key-file", file("node.key"), "--peer-trusted-ca-file", file("ca.crt"), "--peer-client-cert-auth")
}
