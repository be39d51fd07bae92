package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestReport4OldOwnerLetsGo plays the ways in which an old owner kept an address that another node had by then
// (https://github.com/metallb/metallb/issues/589, 598, 740, 2838; https://github.com/kube-vip/kube-vip/issues/996, 1579, 1775).
// One lab serves them, in order.
func TestReport4OldOwnerLetsGo(t *testing.T) {
	whole := t
	l := startLab(t, 4, cast{nodes: 4, clients: 2, resolver: "none"}.file())
	w := l.watch(t)
	t.Run("killed and started again", func(t *testing.T) { l.killedAgent(t, whole, w) })
	t.Run("isolated", func(t *testing.T) { l.isolated(t, w) })
	t.Run("the smaller part of a partition", func(t *testing.T) { l.partitioned(t, w) })
}

// killedAgent: the agent dies by kill -9, others take over, and something puts an address that is another's by now on the
// node; the first thing that the new agent does is to take it off.
func (l *lab) killedAgent(t, whole *testing.T, w *watcher) {
	before, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	survivors := without(l.nodes, "node2")
	l.do(t, "kill", "--agent", "node2")
	l.spread(t, survivors, 4, 4, 4)
	l.holdsNothing(t, "node2")
	w.check(t)
	w.leave(t, "node2")
	stale := ""
	for address, node := range before {
		if node == "node2" {
			stale = address
		}
	}
	l.must(t, "node2", "ip", "addr", "add", stale+"/32", "dev", "eth0")
	file := t.TempDir() + "/monitor"
	monitor := l.start(t, "node2", "sh", "-c", `exec ip -o monitor address >"$0"`, file)
	log := &loopLog{program: monitor, file: file}
	// The monitor says nothing until something happens; make something happen until it does.
	eventually(t, "the monitor sees", func() error {
		if _, err := l.get("node2", "ip", "addr", "change", stale+"/32", "dev", "eth0"); err != nil {
			return err
		}
		if log.lines() == 0 {
			return fmt.Errorf("it has said nothing")
		}
		return nil
	})
	mark := log.lines()
	l.do(t, "start", "--agent", "node2")
	eventually(t, "the stale address is off", func() error {
		held, err := l.kernel("node2")
		if err == nil && slices.Contains(held, stale) {
			err = fmt.Errorf("it has %v", held)
		}
		return err
	})
	l.spread(t, l.nodes, 3, 3, 3, 3)
	deleted, added := -1, -1
	for i, line := range log.all()[mark:] {
		if gone := strings.HasPrefix(line, "Deleted "); gone && strings.Contains(line, stale+"/32") && deleted < 0 {
			deleted = i
		} else if !gone && strings.Contains(line, "/32") && !strings.Contains(line, stale+"/32") && added < 0 {
			added = i
		}
	}
	if deleted < 0 || added >= 0 && added < deleted {
		t.Errorf("the stale address went off at line %d, the first address came at line %d:\n%s", deleted, added, strings.Join(log.all()[mark:], "\n"))
	}
	w.join(whole, "node2")
}

// isolated: the switch drops all frames of a node. It lets go by itself before others take, and serves again when it is back.
func (l *lab) isolated(t *testing.T, w *watcher) {
	before, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	l.do(t, "cut", "node3")
	survivors := without(l.nodes, "node3")
	l.spread(t, survivors, 4, 4, 4)
	l.holdsNothing(t, "node3")
	report := w.check(t)
	for address, node := range before {
		if node == "node3" && report.order("node3", address, true) < 0 {
			t.Errorf("%s never went off node3", address)
		}
	}
	// It knows what is wrong with it.
	if err := l.problem("node3", "node.lapsed", ""); err != nil {
		t.Error(err)
	}
	l.do(t, "heal", "node3")
	l.spread(t, l.nodes, 3, 3, 3, 3)
	w.check(t)
}

// partitioned: two nodes of four are with the majority of the store's members, two are not.
func (l *lab) partitioned(t *testing.T, w *watcher) {
	l.spread(t, l.nodes, 3, 3, 3, 3)
	l.do(t, "partition", "node1,node2,client1", "/", "node3,node4,client2")
	l.spread(t, []string{"node1", "node2"}, 6, 6)
	l.holdsNothing(t, "node3")
	l.holdsNothing(t, "node4")
	w.check(t)
	l.do(t, "heal")
	l.spread(t, l.nodes, 3, 3, 3, 3)
	w.check(t)
}

// holdsNothing waits until a node's kernel has no moving address.
func (l *lab) holdsNothing(t *testing.T, node string) {
	t.Helper()
	eventually(t, node+" holds nothing", func() error {
		held, err := l.kernel(node)
		if err == nil && len(held) > 0 {
			err = fmt.Errorf("its kernel has %v", held)
		}
		return err
	})
}

// TestThawedNodeOwnsNothing freezes a node, or its agent alone, until others have taken over, and thaws it. From then on it
// must not act as the owner of anything that is another's now: no announcement, no address, no answer, also not to questions
// that lay in its sockets meanwhile. The pool is rebalanced by hand only, so nothing comes back by itself.
func TestThawedNodeOwnsNothing(t *testing.T) {
	needCapture(t)
	whole := t
	l := startLab(t, 4, cast{nodes: 4, clients: 1, resolver: "none", pool: "rebalance-policy: manual"}.file())
	w := l.watch(t)
	for _, c := range []struct {
		name   string
		freeze []string
	}{{"agent", []string{"--agent"}}, {"whole node", nil}} {
		t.Run(c.name, func(t *testing.T) {
			l.must(t, "node1", "holdfast", "network", "pools", "rebalance-ips", pool0)
			_, service := l.spread(t, l.nodes, 3, 3, 3, 3)
			ssip := slices.Sorted(maps.Keys(service))[0]
			victim := service[ssip]
			asked := without(l.nodes, victim)[0]
			mac := l.mac(t, victim)
			frames := l.capture(t, "client1", "udp port 53")
			// The client knows the way, so that its questions reach the frozen node's sockets at once.
			l.must(t, "client1", "dig", "+short", "@"+ssip, "cluster.lab")
			if c.freeze == nil { // the guard stands still as well
				w.leave(t, victim)
			}
			l.do(t, append(append([]string{"freeze"}, c.freeze...), victim)...)
			if r, err := l.try("client1", "dig", "+tries=1", "+time=1", "@"+ssip, "frozen.cluster.lab"); err != nil {
				t.Fatal(err)
			} else {
				t.Logf("asked while frozen, dig ended with %d", r.code)
			}
			l.spread(t, without(l.nodes, victim), 4, 4, 4)
			l.holdsNothing(t, victim) // by the guard, or by the lifetimes
			mark := len(frames.frames(t))
			_, all := frames.packets(t)
			l.do(t, append(append([]string{"thaw"}, c.freeze...), victim)...)
			w.join(whole, victim)
			l.state(t, asked, victim, "up")
			pool, service := l.spread(t, l.nodes, 4, 4, 4, 0)
			for _, f := range frames.frames(t)[mark:] {
				if owner := pool[f.address.String()] + service[f.address.String()]; owner != "" && owner != victim && f.from == mac {
					t.Errorf("after the thaw %s announced %s (%s), which is with %s", victim, f.address, f.kind, owner)
				}
			}
			packets, _ := frames.packets(t)
			for _, packet := range packets[len(all):] {
				if strings.Contains(string(packet), "\x06frozen\x07cluster") && fmt.Sprintf("% x", packet[6:12]) == strings.ReplaceAll(mac, ":", " ") {
					t.Errorf("after the thaw %s answered a question that it was asked before: % x", victim, packet)
				}
			}
			w.check(t)
		})
	}
}
