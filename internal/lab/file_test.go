package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseFile(t *testing.T) {
	tests := []struct {
		name, text string
		want       File
	}{
		{"an empty file is the default lab", "", File{Nodes: 3, Clients: 1, Resolver: ResolverBIND}},
		{"the lab's line", "lab: {nodes: 4, clients: 2, routers: 1, resolver: unbound}\n", File{Nodes: 4, Clients: 2, Routers: 1, Resolver: ResolverUnbound}},
		{"what is left out stays", "lab:\n  nodes: 5\n", File{Nodes: 5, Clients: 1, Resolver: ResolverBIND}},
		{"zero is a number too", "lab: {clients: 0}", File{Nodes: 3, Resolver: ResolverBIND}},
		{"links", "links:\n  node1: {seed: 7, out: {loss: 1%, delay: 5ms}, in: {duplication: 0.5, jitter: 1ms, reordering: 2.5%}}\n",
			File{Nodes: 3, Clients: 1, Resolver: ResolverBIND, Links: map[string]Link{"node1": {
				Seed: 7, Out: Faults{Loss: 0.01, Delay: 5 * time.Millisecond},
				In: Faults{Duplication: 0.5, Jitter: time.Millisecond, Reordering: 0.025},
			}}}},
		{"the cluster's own YAML keeps its lines", "# a lab\nlab: {nodes: 2}\ncluster:\n  # note\n  cluster:\n    name: mine\n\n  nodes: []\n",
			File{Nodes: 2, Clients: 1, Resolver: ResolverBIND, Cluster: "\n\n\n\ncluster:\n  name: mine\n\nnodes: []\n"}},
		{"the cluster's own YAML as text", "cluster: |\n  cluster: {name: mine}\n", File{Nodes: 3, Clients: 1, Resolver: ResolverBIND, Cluster: "cluster: {name: mine}\n"}},
		{"the cluster's own YAML in one line", "cluster: {cluster: {name: mine}}\n", File{Nodes: 3, Clients: 1, Resolver: ResolverBIND, Cluster: "cluster:\n  name: mine\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseFile("lab.yaml", []byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			if got.Links != nil && len(got.Links) == 0 {
				got.Links = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseFileRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"lab: {noodles: 3}", "noodles"},
		{"lab: {nodes: 0}", "nodes: 0 is outside 1 to 64"},
		{"lab: {nodes: 3, clients: 99, resolver: powerdns}", "clients: 99 is outside 0 to 32\nlab: resolver: \"powerdns\" is none of"},
		{"lab: {nodes: many}", "not a lab file"},
		{"links: {node1: {out: {loss: 101%}}}", "links: node1: out: loss: \"101%\" is not a share"},
		{"links: {node1: {in: {delay: soon}}}", "links: node1: in: delay: \"soon\" is not a duration"},
		{"links: {node1: {in: {delay: -1s}}}", "not a duration"},
		{"lab: [", "not a lab file"},
	}
	for _, test := range tests {
		_, err := ParseFile("lab.yaml", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "lab.yaml") {
			t.Errorf("%s: got %v, want lab.yaml and %q", test.text, err, test.want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{
		"", "lab: {nodes: 3, clients: 1, routers: 0, resolver: bind}", "cluster:\n  nodes:\n    - {name: a}\n",
		"links: {node1: {seed: 1, out: {loss: 1%, delay: 5ms}}}", "cluster: |\n  x: 1", "cluster:\n\tx", "cluster: {a: [1, 2]}", "lab:\nlab:\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseFile("lab.yaml", []byte(text))
		if err != nil {
			return
		}
		if file.check() != nil {
			t.Errorf("accepted a file out of bounds: %+v", file)
		}
	})
}

func TestPlanOfTheDefaultLab(t *testing.T) {
	plan, err := BuildPlan(File{Nodes: 4, Clients: 2, Routers: 2, Resolver: ResolverBIND})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range plan.Members {
		got = append(got, m.Name+" "+m.Interfaces[0].Addresses[0].String()+" "+m.Interfaces[0].Port)
	}
	want := []string{
		"node1 10.10.0.11/24 node1-eth0", "node2 10.10.0.12/24 node2-eth0", "node3 10.10.0.13/24 node3-eth0", "node4 10.10.0.14/24 node4-eth0",
		"client1 10.10.0.201/24 client1-eth0", "client2 10.10.0.202/24 client2-eth0",
		"router1 10.10.0.1/24 router1-eth0", "router2 10.10.0.241/24 router2-eth0", "resolver 10.10.0.2/24 resolver-eth0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	delegation := plan.Resolver.Delegations[0]
	if delegation.Zone != "cluster.lab" || delegation.ServiceName != "ssip.lab" || joinAddresses(delegation.Addresses, " ") != "10.10.0.4 10.10.0.5 10.10.0.6" {
		t.Errorf("delegation %+v", delegation)
	}
	if !strings.Contains(plan.Cluster, "10.10.0.100-10.10.0.111") {
		t.Errorf("four nodes should have twelve pool addresses:\n%s", plan.Cluster)
	}
}

func TestPlanOfAGivenCluster(t *testing.T) {
	file, err := ParseFile("lab.yaml", []byte(`
lab: {resolver: none}
cluster:
  nodes:
    - {name: alpha, lnn: 1, interfaces: [ext-1, ext-2], addresses: [10.20.0.1, 10.30.0.1]}
    - {name: a-node-with-a-long-name, lnn: 2, interfaces: [ext-1], addresses: [10.20.0.2, 10.30.0.2]}
  groupnets:
    - name: groupnet0
      subnets:
        - {name: subnet0, cidr: 10.20.0.0/16, sc-service-name: ns.example.com, sc-service-addrs: [10.20.1.1]}
`))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := BuildPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	alpha, _ := plan.Member("alpha")
	if got := alpha.Interfaces[0].Addresses[0].String() + " " + alpha.Interfaces[1].Addresses[0].String(); got != "10.20.0.1/16 10.30.0.1/24" {
		t.Errorf("one address on each interface: %s", got)
	}
	long, _ := plan.Member("a-node-with-a-long-name")
	if len(long.Interfaces[0].Addresses) != 2 || long.Interfaces[0].Port != "port3" {
		t.Errorf("more addresses than interfaces: %+v", long.Interfaces)
	}
	if plan.Name != "lab" || !strings.Contains(plan.Cluster, "heartbeat-interval-ms: 50") {
		t.Errorf("the section that was left out should be the default:\n%s", plan.Cluster)
	}
}

func TestPlanRefuses(t *testing.T) {
	file := DefaultFile()
	file.Links = map[string]Link{"node9": {}}
	if _, err := BuildPlan(file); err == nil || !strings.Contains(err.Error(), "node9 is not a member") {
		t.Errorf("a link of nobody: %v", err)
	}
	file = DefaultFile()
	file.Cluster = "\n\n\ngroupnets: wrong\n"
	if _, err := BuildPlan(file); err == nil || !strings.Contains(err.Error(), "4") {
		t.Errorf("a wrong cluster: %v, want the line of the lab file", err)
	}
}
