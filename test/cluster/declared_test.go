package cluster

import (
	"fmt"
	"strings"
	"testing"
)

const fourNodes = `- {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.10.0.11], voter: true}
- {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.10.0.12], voter: true}
- {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.10.0.13], voter: true}
- {name: node4, lnn: 4, interfaces: [eth0], addresses: [10.10.0.14], voter: false}`

// TestMajorityLost turns off two of four nodes at once, which are two of the three that host the store. The others lapse: nobody can
// know that the two are dead. An operator says so, has the store rebuilt from the member that is left, and all addresses are with
// the two survivors. The dead come back with their old data, and join anew.
func TestMajorityLost(t *testing.T) {
	l := startLab(t, 4, cast{nodes: 4, clients: 1, resolver: "none", services: "10.10.0.4", list: fourNodes}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3, 3)
	survivors, dead := []string{"node1", "node4"}, []string{"node2", "node3"}
	for _, node := range dead {
		w.leave(t, node)
	}
	l.do(t, "partition", "node2", "/", "node3", "/", "node1,node4,client1")
	for _, node := range dead {
		l.do(t, "kill", node)
	}
	l.do(t, "heal")
	for _, node := range survivors {
		eventually(t, node+" has let go of everything", func() error {
			held, err := l.kernel(node)
			if err == nil && len(held) > 0 {
				err = fmt.Errorf("it has %v", held)
			}
			return err
		})
	}
	declare := []string{"holdfast", "node", "declare-dead", "node2", "node3", "--reason", "turned off by hand", "--yes", "--wait", "2s"}
	eventually(t, "the word is taken, and the store does not answer", func() error { // the others lapse a moment before the dead count as unheard
		r, err := l.try("node1", declare...)
		if err == nil && (r.code == 0 || !strings.Contains(r.complaints, "--force-store")) {
			err = fmt.Errorf("it ended with %d:\n%s%s", r.code, r.out, r.complaints)
		}
		return err
	})
	r, err := l.try("node4", append(declare, "--force-store")...)
	if err != nil || r.code == 0 || !strings.Contains(r.complaints, "hosts no member") {
		t.Fatalf("a node without a member rebuilds the store: %d %v:\n%s%s", r.code, err, r.out, r.complaints)
	}
	dry := l.must(t, "node1", append(declare, "--force-store", "--dry-run")...)
	if !strings.Contains(dry, "node1: may hold by the word of node4") || !strings.Contains(dry, "rebuilt from the member of node1") {
		t.Errorf("the dry run says:\n%s", dry)
	}
	t.Log(l.must(t, "node1", "holdfast", "node", "declare-dead", "node2", "node3", "--reason", "turned off by hand", "--yes", "--force-store", "--wait", "20s"))
	l.spread(t, survivors, 6, 6)
	l.must(t, "node4", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "7")
	for _, node := range dead {
		l.do(t, "start", node)
		w.join(t, node)
	}
	l.spread(t, l.nodes, 3, 3, 3, 3)
	(&grown{lab: l}).members(t, l.nodes, "node1", "node2", "node3")
	w.check(t)
}
