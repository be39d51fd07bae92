package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// wrongYAML has faults of many kinds; the comments say on which lines.
const wrongYAML = `cluster: {name: lab, heartbeat-interval-ms: 50}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.10.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.10.0.12]}
  - {name: node3, lnn: 3, interfaces: [eth0], addresses: [10.10.0.13]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.10.0.0/24
        sc-service-name: ssip.lab
        sc-service-addrs: [10.10.1.4]
        pools:
          - name: pool0
            alloc-method: dynamic
            ranges: [10.10.0.100-10.10.0.108, 10.11.0.1]
            ifaces: ["1:eth0", "2:eth0", "3:eth7"]
            sc-dns-zone: clus_ter.lab
          - name: pool1
            alloc-method: dynamic
            ranges: [10.10.0.105-10.10.0.120]
            ifaces: ["9:eth0"]
            sc-connect-policy: random
`

// TestBadInput gives a running cluster what it must refuse or survive. The lab serves the tests in order.
func TestBadInput(t *testing.T) {
	whole := t
	l := startLab(t, 3, cast{nodes: 3, clients: 2, resolver: "none", services: "10.10.0.4"}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3)
	t.Run("wrong YAML", func(t *testing.T) { l.wrongFiles(t) })
	t.Run("a missing capability", func(t *testing.T) { l.missingCapability(t) })
	t.Run("a second agent", func(t *testing.T) { l.secondAgent(t, w) })
	t.Run("a service address of a stranger", func(t *testing.T) { l.stranger(t) })
	t.Run("the only interface vanishes", func(t *testing.T) { l.interfaceVanishes(t) })
	t.Run("a full disk under the store", func(t *testing.T) { l.fullDisk(t, whole, w) })
	w.check(t)
}

// wrongFiles: all faults of a file at once, each with its line; nothing changes.
func (l *lab) wrongFiles(t *testing.T) {
	before, revision := l.must(t, "node1", "holdfast", "get"), l.revision(t, "node1")
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"meaning": {wrongYAML, []string{"line 12,", "10.10.1.4", "line 16,", "10.11.0.1", "line 17,", "eth7", "line 18,", "clus_ter", "line 21,", "overlap", "line 22,", "number 9", "line 23,", "random"}},
		"setting": {"cluster:\n  name: lab\n  colour: blue\n", []string{"line 3,", "colour"}},
		"syntax":  {"cluster: {name: lab\nnodes: [", []string{"line 2,", "YAML"}},
		"empty":   {"", []string{"empty"}},
		"binary":  {"\x00\xff\xfe\x7fELF", []string{"wrong.yaml", "UTF-8", "line 1"}},
	} {
		for _, flag := range []string{"", "--dry-run"} {
			argv := []string{"holdfast", "apply", writeFile(t, "wrong.yaml", c.file)}
			if flag != "" {
				argv = append(argv, flag)
			}
			r, err := l.try("node2", argv...)
			if err != nil {
				t.Fatal(err)
			}
			if r.code != 1 {
				t.Errorf("%s %s: apply ended with %d", name, flag, r.code)
			}
			for _, text := range c.want {
				if !strings.Contains(r.out+r.complaints, text) {
					t.Errorf("%s %s: apply says no %q:\n%s%s", name, flag, text, r.out, r.complaints)
				}
			}
			if strings.Contains(r.complaints, "panic") || strings.Contains(r.complaints, "cluster.") && strings.Contains(r.complaints, "main.go") {
				t.Errorf("%s: apply speaks of the program: %s", name, r.complaints)
			}
		}
	}
	for _, command := range []string{
		"network pools modify " + pool0 + " --add-ranges 192.0.2.1",
		"network pools modify " + pool0 + " --sc-dns-zone under_score.lab",
		"network pools modify " + pool0 + " --ifaces 1:eth9",
		"network pools modify groupnet7.subnet0.pool0 --sc-ttl 5",
		"network subnets modify " + subnet0 + " --sc-service-addrs 10.10.0.100",
		"network subnets modify " + subnet0 + " --sc-service-addrs 10.10.0.9-10.10.0.1",
	} {
		r, err := l.try("node3", append([]string{"holdfast"}, strings.Fields(command)...)...)
		if err != nil || r.code == 0 || strings.TrimSpace(r.complaints) == "" {
			t.Errorf("%s ended with %d: %s%s %v", command, r.code, r.out, r.complaints, err)
		}
	}
	if now := l.revision(t, "node1"); now != revision {
		t.Errorf("refused changes made revision %d of %d", now, revision)
	}
	if after := l.must(t, "node1", "holdfast", "get"); after != before {
		t.Errorf("refused changes left the configuration\n%s", after)
	}
}

// missingCapability: an agent that may not do its work says which right it lacks and how to grant it, and does not start.
func (l *lab) missingCapability(t *testing.T) {
	need(t, "setpriv:util-linux")
	for capability, name := range map[string]string{"net_raw": "CAP_NET_RAW", "net_admin": "CAP_NET_ADMIN"} {
		r, err := l.try("node1", "setpriv", "--bounding-set=-"+capability, "--inh-caps=-"+capability, "--",
			"holdfast", "agent", "--dir", l.dir+"/nodes/node1", "--socket", "/run/holdfast/second.sock")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{name, "AmbientCapabilities", "setcap"} {
			if r.code == 0 || !strings.Contains(r.complaints, text) {
				t.Errorf("without %s the agent ended with %d and says no %q: %s", name, r.code, text, r.complaints)
			}
		}
	}
	l.spread(t, l.nodes, 3, 3, 3)
}

// secondAgent: an agent that is started where one runs already says so and ends, and takes nothing from the one that runs.
func (l *lab) secondAgent(t *testing.T, w *watcher) {
	before, _ := l.spread(t, l.nodes, 3, 3, 3)
	log := len(w.check(t).Seen)
	for _, socket := range []string{"/run/holdfast/second.sock", "/run/holdfast/holdfast.sock"} {
		r, err := l.try("node1", "holdfast", "agent", "--dir", l.dir+"/nodes/node1", "--socket", socket)
		if err != nil {
			t.Fatal(err)
		}
		if r.code == 0 || !strings.Contains(r.complaints, "an agent runs with the directory") {
			t.Errorf("a second agent at %s ended with %d: %s", socket, r.code, r.complaints)
		}
	}
	for _, change := range w.check(t).Seen[log:] {
		t.Errorf("a second agent on node1, and %+v", change)
	}
	if after, _ := l.spread(t, l.nodes, 3, 3, 3); !maps.Equal(before, after) {
		t.Errorf("a second agent moved addresses from %v to %v", before, after)
	}
}

// stranger: a host outside the cluster has a service address before any node took it. It is left alone and reported; nobody
// answers twice; and when the stranger is gone the address is taken.
func (l *lab) stranger(t *testing.T) {
	need(t, "arping:iputils-arping")
	l.must(t, "client1", "ip", "addr", "add", "10.10.0.5/24", "dev", "eth0")
	r, err := l.try("node1", "holdfast", "network", "subnets", "modify", subnet0, "--add-sc-service-addrs", "10.10.0.5", "--wait", "2s")
	if err != nil || r.code != 0 && r.code != 4 {
		t.Fatalf("adding the address ended with %d: %s %v", r.code, r.complaints, err)
	}
	mac := l.mac(t, "client1")
	eventually(t, "a node reports the stranger", func() error {
		var err error
		for _, node := range l.nodes {
			if err = l.problem(node, "address.in-use", mac); err == nil {
				return nil
			}
		}
		return err
	})
	for range someLooks {
		for _, node := range l.nodes {
			if held, err := l.kernel(node); err != nil || slices.Contains(held, "10.10.0.5") {
				t.Fatalf("%s took the stranger's address: %v %v", node, held, err)
			}
		}
		pause()
	}
	// Several of the stranger's answers, and none of anybody else.
	out, err := l.try("client2", "arping", "-c", "3", "-w", "5", "-I", "eth0", "10.10.0.5")
	if lower := strings.ToLower(out.out); err != nil || !strings.Contains(lower, mac) || strings.Contains(lower, "02:00:0a:0a:00:0") && strings.Count(lower, "reply from")+strings.Count(lower, "bytes from") != strings.Count(lower, mac) {
		t.Errorf("arping has the answers:\n%s %v", out.out, err)
	}
	l.must(t, "client1", "ip", "addr", "del", "10.10.0.5/24", "dev", "eth0")
	eventually(t, "the address is taken now that it is free", func() error {
		_, service, err := l.agreed(l.nodes)
		if err == nil && service["10.10.0.5"] == "" {
			err = fmt.Errorf("it is with nobody: %v", service)
		}
		return err
	})
	l.digEach(t, []string{"10.10.0.5"}, []string{"cluster.lab"}, "status: NOERROR")
}

// interfaceVanishes: the interface of a node that holds addresses gets another name, as when a driver is loaded anew. What it
// held goes to the others and off the node; and when the interface is back, the node serves again.
func (l *lab) interfaceVanishes(t *testing.T) {
	l.must(t, "node2", "sh", "-c", "ip link set eth0 down && ip link set eth0 name lost0 && ip link set lost0 up")
	survivors := without(l.nodes, "node2")
	l.spread(t, survivors, 5, 4)
	l.holdsNothing(t, "node2")
	l.state(t, "node1", "node2", "unfit")
	if err := l.problem("node1", "node.unfit", "eth0"); err != nil {
		t.Error(err)
	}
	l.must(t, "node2", "sh", "-c", "ip link set lost0 down && ip link set lost0 name eth0 && ip link set eth0 up")
	pool, _ := l.spread(t, l.nodes, 3, 3, 3)
	for address, node := range pool {
		if node == "node2" {
			if out, err := l.try("client1", "ping", "-c", "1", "-W", "5", address); err != nil || out.code != 0 {
				t.Errorf("%s does not answer after the interface's return: %s %v", address, out.out, err)
			}
		}
	}
}

// fullDisk: the disk under the store's member of one node is full. The two others carry the store, and changes go on; the node
// says what is wrong and keeps what it holds.
func (l *lab) fullDisk(t, whole *testing.T, w *watcher) {
	need(t, "fallocate:util-linux")
	directory := l.dir + "/nodes/node3/store"
	l.do(t, "kill", "--agent", "node3")
	l.spread(t, without(l.nodes, "node3"), 5, 4)
	l.holdsNothing(t, "node3")
	l.must(t, "node3", "sh", "-c", `cp -a "$0" "$0.saved" && mount -t tmpfs -o size=100m store "$0" && cp -a "$0.saved/." "$0" && rm -r "$0.saved"`, directory)
	l.do(t, "start", "--agent", "node3")
	l.spread(t, l.nodes, 3, 3, 3)
	// etcd reserves room beforehand. It is given back here, so that the disk is as full as it looks; meanwhile nobody writes.
	l.do(t, "freeze", "--agent", "node3")
	l.must(t, "node3", "sh", "-c", `for file in "$0"/member/*/*; do fallocate --dig-holes "$file" || exit; done`, directory)
	l.do(t, "thaw", "--agent", "node3")
	before, _ := l.spread(t, l.nodes, 3, 3, 3)
	// dd ends with an error when the disk is full; that is what it is for.
	if _, err := l.try("node3", "dd", "if=/dev/zero", "of="+directory+"/filler", "bs=4k"); err != nil {
		t.Fatal(err)
	}
	written := 0
	eventually(t, "node3 says that its disk is full", func() error {
		if err := l.largeChange("node1", written); err != nil {
			return err
		}
		written++
		if err := l.problem("node3", "store.full", ""); err == nil {
			return nil
		}
		return l.problem("node3", "store.member-stopped", "")
	})
	after, _ := l.spread(t, l.nodes, 3, 3, 3)
	if !maps.Equal(before, after) {
		t.Errorf("after %d changes the full disk moved addresses from %v to %v", written, before, after)
	}
	l.must(t, "node3", "holdfast", "network", "pools", "modify", pool0, "--sc-ttl", "5")
	w.check(t)

	// An agent that finds the disk full at its start runs without its member.
	l.do(t, "stop", "--agent", "node3")
	l.do(t, "start", "--agent", "node3")
	l.spread(t, l.nodes, 3, 3, 3)
	eventually(t, "node3 says that its disk is full", func() error { return l.problem("node3", "store.full", "") })
	l.do(t, "stop", "--agent", "node3")
	l.must(t, "node3", "rm", directory+"/filler")
	l.do(t, "start", "--agent", "node3")
	l.spread(t, l.nodes, 3, 3, 3)
	eventually(t, "the store is whole again", func() error {
		status, err := l.status("node1")
		if err != nil {
			return err
		}
		for _, member := range status.Store.Members {
			if !member.Healthy {
				return fmt.Errorf("member %s is not well", member.Name)
			}
		}
		return nil
	})
}

// largeChange makes a change that takes some room in the store, another one for each number.
func (l *lab) largeChange(node string, number int) error {
	label := strings.Repeat("a", 60)
	var aliases []string
	for i := range 16 {
		aliases = append(aliases, fmt.Sprintf("%s.%s.%s.x%d-%d.lab", label, label, label, number, i))
	}
	_, err := l.get(node, "holdfast", "network", "pools", "modify", pool0, "--sc-dns-zone-aliases", strings.Join(aliases, ","), "--wait", "5s")
	return err
}

// A clock that is set back cannot be tried here: every member shares the machine's, and time namespaces cover only the clocks
// that nothing can set. The agent takes its time from CLOCK_BOOTTIME; what a wall clock that steps does to the rest is tested
// with injected clocks where it is used.

// TestWatcherSeesTwoHolders makes sure that the watcher, on which most of these tests rely, can fail.
func TestWatcherSeesTwoHolders(t *testing.T) {
	l := startLab(t, 2, "lab: {nodes: 2, clients: 0, resolver: none}\n", "--no-wait")
	w := l.watch(t)
	w.allowed = "192.0.2.7 on node1 and node2"
	l.must(t, "node1", "ip", "addr", "add", "192.0.2.7/32", "dev", "eth0")
	l.must(t, "node1", "ip", "addr", "del", "192.0.2.7/32", "dev", "eth0")
	l.must(t, "node2", "ip", "addr", "add", "192.0.2.7/32", "dev", "eth0")
	if report := w.check(t); len(report.Breaches) > 0 {
		t.Errorf("one after the other is no breach: %v", report.Breaches)
	}
	l.must(t, "node1", "ip", "addr", "add", "192.0.2.7/32", "dev", "eth0")
	if report := w.check(t); !slices.Equal(report.Breaches, []string{w.allowed}) {
		t.Errorf("two holders at once went unseen: %v", report.Breaches)
	}
}
