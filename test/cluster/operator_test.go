package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestCommandsAsWritten types the two commands that every administrator of scale-out storage knows, in both flag forms,
// first with --dry-run, which says what would change and changes nothing, and then without; dig sees the difference at once,
// because a change returns when every node has put it into effect.
func TestCommandsAsWritten(t *testing.T) {
	l := startLab(t, 4, cast{nodes: 4, clients: 1, services: "10.10.0.4-10.10.0.5"}.file())
	w := l.watch(t)
	pools, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	for _, c := range []struct {
		command string
		changes []string // that the dry run names
		ask     []string // of dig, at a service address
		before  string   // what its answer contains
		after   string
	}{
		{
			"network subnets modify groupnet0.subnet0 --sc-service-name=cluster-ns1.company.com --sc-service-addrs=10.10.0.4-10.10.0.6",
			[]string{"sc-service-name: ssip.lab -> cluster-ns1.company.com", "sc-service-addrs"},
			[]string{"cluster-ns1.company.com", "A"}, "status: REFUSED", "status: NOERROR",
		},
		{
			"network pools modify groupnet0.subnet0.pool0 --sc-connect-policy round_robin --sc-dns-zone cluster.company.com",
			[]string{"sc-dns-zone: cluster.lab -> cluster.company.com"},
			[]string{"cluster.company.com", "NS"}, "status: REFUSED", "cluster-ns1.company.com.",
		},
		{
			"network pools modify groupnet0.subnet0.pool0 --sc-connect-policy=conn_count --sc-dns-zone=files.company.com",
			[]string{"sc-connect-policy: round_robin -> conn_count", "sc-dns-zone: cluster.company.com -> files.company.com"},
			[]string{"files.company.com", "A"}, "status: REFUSED", "status: NOERROR",
		},
		{
			"network subnets modify subnet0 --sc-service-name ns.company.com --sc-service-addrs 10.10.0.4-10.10.0.6",
			[]string{"sc-service-name: cluster-ns1.company.com -> ns.company.com"},
			[]string{"files.company.com", "NS"}, "cluster-ns1.company.com.", "ns.company.com.",
		},
	} {
		t.Run(strings.Fields(c.command)[1]+" "+c.changes[0], func(t *testing.T) {
			line := append([]string{"holdfast"}, strings.Fields(c.command)...)
			revision := l.revision(t, "node2")
			dry := l.must(t, "node2", append(slices.Clone(line), "--dry-run")...)
			for _, change := range append(c.changes, "nothing was changed") {
				if !strings.Contains(dry, change) {
					t.Errorf("--dry-run does not say %q:\n%s", change, dry)
				}
			}
			if now := l.revision(t, "node2"); now != revision {
				t.Errorf("--dry-run made revision %d of %d", now, revision)
			}
			l.digEach(t, []string{"10.10.0.4", "10.10.0.5"}, c.ask, c.before)
			l.must(t, "node2", line...)
			if now := l.revision(t, "node2"); now <= revision {
				t.Errorf("after the change the revision is still %d", now)
			}
			l.digEach(t, []string{"10.10.0.4", "10.10.0.5"}, c.ask, c.after)
		})
	}
	after, services := l.spread(t, l.nodes, 3, 3, 3, 3)
	if !maps.Equal(pools, after) {
		t.Errorf("changes of names moved addresses from %v to %v", pools, after)
	}
	if len(services) != 3 {
		t.Errorf("the third service address is not held: %v", services)
	}
	w.check(t)
	t.Run("clear, add and remove", func(t *testing.T) {
		for _, step := range []struct {
			flag string
			want []string
		}{
			{"--remove-sc-service-addrs=10.10.0.5", []string{"10.10.0.4", "10.10.0.6"}},
			{"--add-sc-service-addrs=10.10.0.7-10.10.0.8", []string{"10.10.0.4", "10.10.0.6", "10.10.0.7", "10.10.0.8"}},
			{"--clear-sc-service-addrs", nil},
		} {
			if r, err := l.try("node1", "holdfast", "network", "subnets", "modify", subnet0, step.flag); err != nil || r.code != 0 {
				if step.want == nil && strings.Contains(r.complaints, "sc-service-addrs") {
					continue // refused, because a zone would have nobody to answer it, and said so
				}
				t.Fatalf("%s: %v %+v", step.flag, err, r)
			}
			eventually(t, "the service addresses are "+strings.Join(step.want, " "), func() error {
				_, held, err := l.agreed(l.nodes)
				if have := slices.Sorted(maps.Keys(held)); err == nil && !slices.Equal(have, step.want) {
					err = fmt.Errorf("they are %v", have)
				}
				return err
			})
		}
	})
}

// revision is that of the configuration in force.
func (l *lab) revision(t *testing.T, node string) int64 {
	t.Helper()
	s, err := l.status(node)
	if err != nil {
		t.Fatal(err)
	}
	return s.Revision
}

// digEach asks every one of some servers and looks for a text in what dig shows.
func (l *lab) digEach(t *testing.T, servers, question []string, want string) {
	t.Helper()
	for _, server := range servers {
		out := l.must(t, "client1", append([]string{"dig", "@" + server, "+norecurse"}, question...)...)
		if !strings.Contains(out, want) {
			t.Errorf("dig @%s %s shows no %q:\n%s", server, strings.Join(question, " "), want, out)
		}
	}
}

// TestExplainSaysWhy asks for the reason of everything that an administrator can point at.
func TestExplainSaysWhy(t *testing.T) {
	l := startLab(t, 3, cast{nodes: 3, clients: 1, resolver: "none"}.file())
	pool, service := l.spread(t, l.nodes, 3, 3, 3)
	l.must(t, "node1", "holdfast", "network", "pools", "sc-suspend-nodes", pool0, "node3")
	one, ssip := slices.Sorted(maps.Keys(pool))[0], slices.Sorted(maps.Keys(service))[0]
	for subject, want := range map[string][]string{
		"cluster.lab":   {"round_robin", "node1", "node2", "node3", "suspended"},
		one:             {pool[one], "owner", "takes it if"},
		ssip:            {service[ssip], "takes it if"},
		"node3":         {"up", "heartbeats", "suspended"},
		"node1":         {"up", "heartbeats", pool0},
		"subnet0.pool0": {one, "takes it if"},
		pool0:           {one, "takes it if"},
		"nobody.lab":    nil,
		"192.0.2.1":     nil,
		"node9":         nil,
		"10.10.0.11":    nil,
		"CLUSTER.lab.":  {"round_robin"},
		"x.cluster.lab": {"round_robin"}, // wildcards are on by default
	} {
		t.Run(subject, func(t *testing.T) {
			r, err := l.try("node2", "holdfast", "explain", subject)
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(r.out+r.complaints) == "" {
				t.Errorf("explain says nothing (exit code %d)", r.code)
			}
			for _, text := range want {
				if !strings.Contains(r.out, text) {
					t.Errorf("explain %s says no %q:\n%s%s", subject, text, r.out, r.complaints)
				}
			}
			if want != nil && r.code != 0 {
				t.Errorf("explain %s ended with %d", subject, r.code)
			}
		})
	}
	t.Run("a node that died", func(t *testing.T) {
		l.do(t, "kill", "node3")
		l.state(t, "node1", "node3", "down")
		out := l.must(t, "node1", "holdfast", "explain", "node3")
		if !strings.Contains(out, "down") || !strings.Contains(out, "heartbeats") {
			t.Errorf("explain of a dead node says:\n%s", out)
		}
		for address, holder := range pool {
			if holder != "node3" {
				continue
			}
			eventually(t, "explain "+address+" names the death", func() error {
				out, err := l.get("node2", "holdfast", "explain", address)
				if err == nil && !strings.Contains(out, "node3 went down") {
					err = fmt.Errorf("it says %s", out)
				}
				return err
			})
		}
	})
}
