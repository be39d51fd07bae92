package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// grownYAML is what an operator adds to the configuration that `holdfast init` wrote. A span of three seconds, as elsewhere here.
const grownYAML = `cluster: {name: grown, heartbeat-multiplier: 30}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.10.0.11]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.10.0.0/24
        sc-service-name: ssip.lab
        sc-service-addrs: [10.10.0.4]
        pools:
          - name: pool0
            alloc-method: dynamic
            ranges: [10.10.0.100-10.10.0.105]
            ifaces: ["1:eth0"]
            sc-dns-zone: cluster.lab
`

// grown is a cluster that did not come from the lab but from holdfast init, on the lab's machines.
type grown struct {
	*lab
	dir    string
	agents map[string]*program
}

func (g *grown) directory(node string) string { return filepath.Join(g.dir, node) }

func (g *grown) startAgent(t *testing.T, node string) {
	t.Helper()
	g.agents[node] = g.start(t, node, "holdfast", "agent", "--dir", g.directory(node))
}

// members waits until the store has these members by the word of each node, all well, and no change is under way.
func (g *grown) members(t *testing.T, nodes []string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the store's members are %v", want), func() error {
		for _, node := range nodes {
			s, err := g.status(node)
			if err != nil {
				return err
			}
			var have []string
			for _, m := range s.Store.Members {
				if m.Healthy && !m.Learner {
					have = append(have, m.Name)
				}
			}
			slices.Sort(have)
			if !slices.Equal(have, want) || s.Store.Change != "" {
				return fmt.Errorf("on %s they are %+v; change: %s", node, s.Store.Members, s.Store.Change)
			}
		}
		return nil
	})
}

// join takes a node in as docs/commands.md says.
func (g *grown) join(t *testing.T, lnn int) {
	t.Helper()
	node, address := fmt.Sprintf("node%d", lnn), fmt.Sprintf("10.10.0.1%d", lnn)
	g.must(t, "node1", "holdfast", "identity", "issue", node, "--address", address, "--out", g.directory(node)+"/identity", "--authority", g.directory("node1")+"/identity")
	g.must(t, "node1", "holdfast", "node", "create", node, "--lnn", fmt.Sprint(lnn), "--interfaces", "eth0", "--addresses", address)
	g.must(t, "node1", "holdfast", "network", "pools", "modify", pool0, "--add-ifaces", fmt.Sprintf("%d:eth0", lnn))
	file := g.must(t, "node1", "holdfast", "get")
	if err := os.WriteFile(g.directory(node)+"/cluster.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	g.startAgent(t, node)
}

// TestClusterGrowsFromOneNode makes a cluster of one node with holdfast init, takes two more in, and turns the power of the first one
// off: the store is on all three by then, so the cluster goes on. Then a disk is lost under one member; and at last the store goes back
// to one member, on another node than at first.
func TestClusterGrowsFromOneNode(t *testing.T) {
	whole := t // agents outlive the subtest that starts them
	g := &grown{lab: startLab(t, 3, "lab: {nodes: 3, clients: 1, resolver: none}\n", "--no-wait"), dir: t.TempDir(), agents: map[string]*program{}}
	t.Cleanup(func() {
		for node, agent := range g.agents {
			if out := agent.stop(); t.Failed() {
				t.Logf("the end of the agent's log on %s:\n%s", node, out[max(0, len(out)-6000):])
			}
		}
	})
	for _, node := range g.nodes {
		g.do(t, "stop", "--agent", node)
	}
	g.must(t, "node1", "holdfast", "init", "--cluster", "grown", "--node", "node1", "--address", "10.10.0.11", "--interface", "eth0", "--dir", g.directory("node1"))
	g.startAgent(t, "node1")
	eventually(t, "one node serves", func() error {
		_, err := g.get("node1", "holdfast", "apply", writeFile(t, "cluster.yaml", grownYAML))
		return err
	})
	w := g.watch(t)
	g.members(t, []string{"node1"}, "node1")
	g.spread(t, []string{"node1"}, 6)

	g.join(t, 2)
	eventually(t, "node1 says what the change waits for", func() error {
		s, err := g.status("node1")
		if err == nil && len(s.Store.Members) != 1 {
			t.Fatalf("with two nodes the store has the members %+v", s.Store.Members)
		}
		return err
	})
	g.join(t, 3)
	g.members(t, g.nodes, "node1", "node2", "node3")
	g.spread(t, g.nodes, 2, 2, 2)

	t.Run("the first node dies", func(t *testing.T) {
		w.leave(t, "node1")
		g.do(t, "kill", "node1")
		g.spread(t, []string{"node2", "node3"}, 3, 3)
		g.must(t, "node3", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "7")
	})
	g.do(t, "start", "node1")
	g.do(t, "stop", "--agent", "node1")
	g.startAgent(t, "node1")
	w.join(t, "node1")
	g.members(t, g.nodes, "node1", "node2", "node3")

	t.Run("a disk is lost", func(t *testing.T) {
		g.agents["node3"].stop()
		if err := os.RemoveAll(g.directory("node3") + "/store"); err != nil {
			t.Fatal(err)
		}
		g.startAgent(whole, "node3")
		eventually(t, "node3 says that its member lost its data", func() error { return g.problem("node3", "store.member-lost", "") })
		eventually(t, "the problem is over", func() error {
			if g.problem("node3", "store.member-lost", "") == nil {
				return fmt.Errorf("it is there")
			}
			return nil
		})
		g.members(t, g.nodes, "node1", "node2", "node3")
	})
	t.Run("to one member", func(t *testing.T) {
		g.must(t, "node2", "holdfast", "node", "modify", "node1", "--voter", "false")
		g.must(t, "node2", "holdfast", "node", "modify", "node3", "--voter", "false")
		g.members(t, g.nodes, "node2")
		for _, node := range []string{"node1", "node3"} {
			eventually(t, node+" has set its data aside", func() error {
				if aside, _ := filepath.Glob(g.directory(node) + "/store.removed-*"); len(aside) != 1 {
					return fmt.Errorf("there is %v", aside)
				}
				return nil
			})
			eventually(t, node+", which hosts no member any more, has no problem with the store", func() error {
				problems, err := g.problems(node)
				for _, p := range problems {
					if strings.HasPrefix(p.Code, "store.") {
						return fmt.Errorf("%+v", p)
					}
				}
				return err
			})
		}
		g.must(t, "node1", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "9")
	})
	w.check(t)
}
