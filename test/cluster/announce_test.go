package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// dualYAML is a cluster of three nodes with a dynamic pool of IPv4 and one of IPv6 under one name, and a static pool.
const dualYAML = `lab: {nodes: 3, clients: 2, resolver: none}
cluster:
  groupnets:
    - name: groupnet0
      subnets:
        - name: subnet0
          cidr: 10.10.0.0/24
          sc-service-name: ssip.lab
          sc-service-addrs: [10.10.0.4-10.10.0.6]
          pools:
            - name: pool0
              alloc-method: dynamic
              ranges: [10.10.0.100-10.10.0.105]
              ifaces: ["1:eth0", "2:eth0", "3:eth0"]
              sc-dns-zone: cluster.lab
            - name: fixed
              alloc-method: static
              ranges: [10.10.0.150-10.10.0.152]
              ifaces: ["1:eth0", "2:eth0", "3:eth0"]
              sc-dns-zone: fixed.lab
        - name: subnet6
          cidr: fd00:10::/64
          pools:
            - name: pool6
              alloc-method: dynamic
              ranges: ["fd00:10::100-fd00:10::105"]
              ifaces: ["1:eth0", "2:eth0", "3:eth0"]
              sc-dns-zone: cluster.lab
              sc-subnet: subnet0
`

// TestAnnouncements looks from a client at what nodes announce. One lab serves the reports that follow, in order.
func TestAnnouncements(t *testing.T) {
	need(t, "python3:python3")
	l := startLab(t, 3, dualYAML)
	w := l.watch(t)
	l.all(t, l.nodes)
	t.Run("Report1 a foreign claim is answered", func(t *testing.T) { l.foreignClaim(t) })
	t.Run("Report2 carrier down and up", func(t *testing.T) { l.carrierReturns(t) })
	t.Run("Report3 both forms at a takeover", func(t *testing.T) { l.bothForms(t, w) })
	t.Run("the names of both families", func(t *testing.T) {
		all := l.all(t, l.nodes)
		for kind, prefix := range map[string]string{"A": "10.10.0.10", "AAAA": "fd00:10::10"} {
			out := strings.TrimSpace(l.must(t, "client1", "dig", "+short", "@10.10.0.4", "cluster.lab", kind))
			if !strings.HasPrefix(out, prefix) || all[out] == "" {
				t.Errorf("the name's %s is %q", kind, out)
			}
		}
		for address, node := range all {
			if strings.HasPrefix(address, "10.10.0.15") {
				out := l.must(t, "node1", "holdfast", "explain", node)
				if !strings.Contains(out, address) {
					t.Errorf("explain %s says nothing of its static %s:\n%s", node, address, out)
				}
			}
		}
	})
	w.check(t)
}

// all waits until every address of every kind is held by one of nodes, evenly within each subnet, and returns the holders.
func (l *lab) all(t *testing.T, nodes []string) (all map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("everything is with %v", nodes), func() error {
		list, err := l.holdings(nodes[0])
		if err != nil {
			return err
		}
		all = map[string]string{}
		perNode := map[string]int{}
		for _, h := range list {
			if h.Kind == "static" && !slices.Contains(nodes, h.Node) {
				continue
			}
			if h.State != "held" || !slices.Contains(nodes, h.Node) {
				return fmt.Errorf("%s is %s with %q: %s", h.Address, h.State, h.Node, h.Why)
			}
			all[h.Address] = h.Node
			if h.Kind == "dynamic" {
				perNode[h.Node]++
			}
		}
		if want := 12 / len(nodes); len(all) < 15 || slices.Max(slices.Collect(maps.Values(perNode))) != want {
			return fmt.Errorf("held are %v", all)
		}
		return nil
	})
	return all
}

// foreignClaim: the winner must not keep quiet when somebody else claims its address
// (https://github.com/acassen/keepalived/issues/166, 14, 100, 1528).
func (l *lab) foreignClaim(t *testing.T) {
	all := l.all(t, l.nodes)
	stranger := l.mac(t, "client1")
	frames := l.capture(t, "client2")
	script := writeFile(t, "claim.py", `
import socket, struct, sys
address, mac, opcode, count = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", "")), int(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
ip = socket.inet_aton(address)
packet = b"\xff" * 6 + mac + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x0800, 6, 4, opcode) + mac + ip + b"\xff" * 6 + ip
for i in range(count):
    s.send(packet)
`)
	for address, opcode := range map[string]string{"10.10.0.100": "1", "10.10.0.101": "2", "10.10.0.4": "1"} {
		owner := l.mac(t, all[address])
		l.must(t, "client1", "python3", script, address, stranger, opcode, "1")
		eventually(t, all[address]+" answers the claim to "+address, func() error {
			claimed, requests, replies := false, 0, 0
			for _, f := range frames.frames(t) {
				switch {
				case f.announces(address, stranger):
					claimed = true
				case claimed && f.announces(address, owner) && f.kind == "request":
					requests++
				case claimed && f.announces(address, owner):
					replies++
				}
			}
			if !claimed || requests == 0 || replies == 0 {
				return fmt.Errorf("claimed: %v; then came %d requests and %d replies of the owner", claimed, requests, replies)
			}
			return nil
		})
		if err := l.problem(all[address], "address.conflict", stranger); err != nil {
			t.Error(err)
		}
	}
	// Many claims: the answers are limited, and the last word is the owner's.
	const claims = 300
	owner := l.mac(t, all["10.10.0.102"])
	l.must(t, "client1", "python3", script, "10.10.0.102", stranger, "1", fmt.Sprint(claims))
	eventually(t, "the owner has the last word", func() error {
		seen, answers, last := 0, 0, ""
		for _, f := range frames.frames(t) {
			if f.announces("10.10.0.102", stranger) {
				seen, last = seen+1, "the stranger"
			} else if f.announces("10.10.0.102", owner) {
				answers, last = answers+1, "the owner"
			}
		}
		if seen < claims || last != "the owner" {
			return fmt.Errorf("%d claims, %d answers, and the last word had %q", seen, answers, last)
		}
		if answers > claims/4 {
			t.Errorf("%d claims had %d answers: they are not limited", claims, answers)
		}
		return nil
	})
	if after := l.all(t, l.nodes); !maps.Equal(after, all) {
		t.Errorf("claims of a stranger moved addresses from %v to %v", all, after)
	}
}

// carrierReturns: whoever has an address when its carrier returns says so (https://github.com/acassen/keepalived/issues/160,
// https://github.com/metallb/metallb/issues/584). The static address stays through it; the others come back and are announced.
func (l *lab) carrierReturns(t *testing.T) {
	before := l.all(t, l.nodes)
	frames := l.capture(t, "client2")
	l.do(t, "cut", "node2", "--carrier")
	l.all(t, []string{"node1", "node3"})
	mark := len(frames.frames(t))
	l.do(t, "heal", "node2")
	after := l.all(t, l.nodes)
	mac := l.mac(t, "node2")
	for address, node := range after {
		if node != "node2" {
			continue
		}
		eventually(t, address+" is announced by its holder after the carrier's return", func() error {
			kinds := map[string]int{}
			for _, f := range frames.frames(t)[mark:] {
				if f.announces(address, mac) {
					kinds[f.kind]++
				}
			}
			if strings.Contains(address, ":") && kinds["advertisement"] > 0 || kinds["request"] > 0 && kinds["reply"] > 0 {
				return nil
			}
			return fmt.Errorf("it was announced %v", kinds)
		})
	}
	for address, node := range before {
		if strings.HasPrefix(address, "10.10.0.15") && after[address] != node {
			t.Errorf("the static %s is with %q after %q", address, after[address], node)
		}
	}
}

// bothForms: devices honour only one form of announcement, and some only the other
// (https://github.com/kube-vip/kube-vip/issues/80, 82; keepalived 1112 had the wrong MAC).
func (l *lab) bothForms(t *testing.T, w *watcher) {
	before := l.all(t, l.nodes)
	frames := l.capture(t, "client2")
	w.leave(t, "node3")
	l.do(t, "kill", "node3")
	after := l.all(t, []string{"node1", "node2"})
	for address, node := range after {
		if before[address] != "node3" {
			continue
		}
		mac := l.mac(t, node)
		eventually(t, address+" was announced in all forms, five times each, by "+node, func() error {
			kinds := map[string]int{}
			for _, f := range frames.frames(t) {
				if f.announces(address, mac) {
					kinds[f.kind]++
				}
				if f.announces(address, mac) && f.kind == "advertisement" && !f.override {
					t.Fatalf("an advertisement of %s has no override flag", address)
				}
			}
			if kinds["request"] >= 5 && kinds["reply"] >= 5 || strings.Contains(address, ":") && kinds["advertisement"] >= 5 {
				return nil
			}
			return fmt.Errorf("it was announced %v", kinds)
		})
	}
	for _, f := range frames.frames(t) {
		if f.kind != "advertisement" && f.mac != f.from {
			t.Errorf("a %s for %s names %s and comes from %s", f.kind, f.address, f.mac, f.from)
		}
	}
	l.do(t, "start", "node3")
	w.join(t, "node3")
	l.all(t, l.nodes)
}
