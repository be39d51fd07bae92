package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilterRules(t *testing.T) {
	const clear = "table bridge lab\ndelete table bridge lab\n"
	const head = clear + "table bridge lab {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n"
	tests := []struct {
		name   string
		filter filter
		want   string
	}{
		{"nothing to drop, no rules", filter{}, clear},
		{"a cut", filter{Cut: []string{"b", "a"}}, head + "\t\tiifname { \"a\", \"b\" } drop\n\t\toifname { \"a\", \"b\" } drop\n\t}\n}\n"},
		{"one that sends in vain", filter{Mute: []string{"a"}}, head + "\t\tiifname { \"a\" } drop\n\t}\n}\n"},
		{"one that hears nothing", filter{Deaf: []string{"a"}}, head + "\t\toifname { \"a\" } drop\n\t}\n}\n"},
		{"a partition", filter{Partition: [][]string{{"a", "b"}, {"c"}}},
			head + "\t\tiifname { \"a\", \"b\" } oifname { \"c\" } drop\n\t\tiifname { \"c\" } oifname { \"a\", \"b\" } drop\n\t}\n}\n"},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, test.filter.rules()); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestParseGroups(t *testing.T) {
	got, err := parseGroups("node1,node2 / node3, client1/node4")
	if diff := cmp.Diff([][]string{{"node1", "node2"}, {"node3", "client1"}, {"node4"}}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := parseGroups("node1 / "); err == nil {
		t.Error("an empty group was accepted")
	}
}

func TestParentZones(t *testing.T) {
	address := []netip.Addr{netip.MustParseAddr("10.0.0.4")}
	tests := []struct {
		name        string
		delegations []Delegation
		want        string
	}{
		{"the lab's own", []Delegation{{Zone: "cluster.lab", ServiceName: "ssip.lab"}}, "lab"},
		{"a service name elsewhere", []Delegation{{Zone: "cluster.example.com", ServiceName: "ns1.example.net"}}, "example.com example.net"},
		{"a service name in its zone", []Delegation{{Zone: "cluster.example.com", ServiceName: "ns.cluster.example.com"}}, "example.com"},
		{"a parent in another", []Delegation{{Zone: "a.example.com", ServiceName: "s.example.com"}, {Zone: "b.sub.example.com", ServiceName: "s.example.com"}}, "example.com"},
		{"a zone right under the root", []Delegation{{Zone: "cluster", ServiceName: "ssip.lab"}}, "lab"},
	}
	for _, test := range tests {
		if got := strings.Join(parentZones(test.delegations), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	glue := parentZone("example.com", ResolverPlan{Delegations: []Delegation{{Zone: "cluster.example.com", ServiceName: "ns.cluster.example.com", Addresses: address}}})
	if !strings.Contains(glue, "cluster.example.com. IN NS ns.cluster.example.com.\nns.cluster.example.com. IN A 10.0.0.4\n") {
		t.Errorf("delegation with glue:\n%s", glue)
	}
}

// TestResolverFiles checks that every kind has a configuration with every service address; that the programs accept
// it is seen in TestLabResolvers.
func TestResolverFiles(t *testing.T) {
	plan := ResolverPlan{Address: resolverAddress, Delegations: []Delegation{{Zone: "cluster.lab", ServiceName: "ssip.lab",
		Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.4"), netip.MustParseAddr("10.10.0.5")}}}}
	for kind := range resolverPrograms {
		plan.Kind = kind
		files, argv := resolverFiles(plan, "/d", "/d/program")
		var all string
		for _, text := range files {
			all += text
		}
		if len(argv) == 0 || argv[0] != "/d/program" || !strings.Contains(all, "10.10.0.4") || !strings.Contains(all, "10.10.0.5") || !strings.Contains(all, "cluster.lab") {
			t.Errorf("%s: %v\n%s", kind, argv, all)
		}
	}
}

func TestLabResolvers(t *testing.T) {
	for kind := range resolverPrograms {
		t.Run(string(kind), func(t *testing.T) {
			file := smallLab(1, 1)
			file.Resolver = kind
			lab := startLab(t, file, launchOptions{})
			until(t, "the resolver answers", func() bool {
				out, err := lab.run("client1", "holdfast", "lab", "resolve", "ssip.lab")
				return err == nil && strings.HasPrefix(out, "10.10.0.")
			})
			if got := lab.member("resolver").Service; got != "resolver running" {
				t.Errorf("the resolver's state: %s", got)
			}
		})
	}
}
