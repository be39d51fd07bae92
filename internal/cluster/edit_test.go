package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flags turns what an operator types into edits, as the command line does.
func flags(line string) []Edit {
	var out []Edit
	for _, flag := range strings.Fields(line) {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		e := Edit{Setting: name, Op: Set, Value: strings.ReplaceAll(value, "_SPACE_", " ")}
		for prefix, op := range map[string]EditOp{"clear-": Clear, "add-": Add, "remove-": Remove} {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				e.Setting, e.Op = rest, op
			}
		}
		out = append(out, e)
	}
	return out
}

// diffText is what a dry run shows, one change a line.
func diffText(old, new *Config) string {
	var lines []string
	for _, c := range Diff(old, new) {
		lines = append(lines, strings.TrimSpace(c.String()))
	}
	return strings.Join(lines, "\n")
}

// The two commands of spec section 1, as written.
func TestOperatorsCommands(t *testing.T) {
	c := example()
	c, err := ModifySubnet(c, exampleSubnet, flags("--sc-service-name=cluster-ns1.company.com --sc-service-addrs=10.10.0.4-10.10.0.6"))
	if err != nil {
		t.Fatal(err)
	}
	c, err = ModifyPool(c, examplePool, []Edit{{"sc-connect-policy", Set, "round_robin"}, {"sc-dns-zone", Set, "cluster.company.com"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `groupnet0.subnet0.sc-service-addrs: [] -> [10.10.0.4-10.10.0.6]
+ groupnet0.subnet0.sc-service-name: cluster-ns1.company.com
+ groupnet0.subnet0.pool0.sc-dns-zone: cluster.company.com`
	got := diffText(example(), c)
	if diff := cmp.Diff(sortedLines(want), sortedLines(got)); diff != "" {
		t.Error(diff)
	}
	if w := c.Validate().Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}

func sortedLines(s string) []string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		for j := i + 1; j < len(lines); j++ {
			if lines[j] < lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return lines
}

func TestModify(t *testing.T) {
	subnet := func(c *Config, line string) (*Config, error) {
		return ModifySubnet(c, exampleSubnet, flags(line))
	}
	pool := func(c *Config, line string) (*Config, error) {
		return ModifyPool(c, examplePool, flags(line))
	}
	node := func(c *Config, line string) (*Config, error) {
		return ModifyNode(c, "node1", flags(line))
	}
	groupnet := func(c *Config, line string) (*Config, error) {
		return ModifyGroupnet(c, "groupnet0", flags(line))
	}
	whole := func(c *Config, line string) (*Config, error) {
		return ModifyCluster(c, flags(line))
	}
	for _, test := range []struct {
		modify  func(*Config, string) (*Config, error)
		command string
		want    string // changes, or the error
	}{
		{subnet, "--sc-service-addrs=10.10.0.4-10.10.0.6 --remove-sc-service-addrs=10.10.0.5", "groupnet0.subnet0.sc-service-addrs: [] -> [10.10.0.4, 10.10.0.6]"},
		{subnet, "--add-sc-service-addrs=10.10.0.4 --add-sc-service-addrs=10.10.0.6,10.10.0.5", "groupnet0.subnet0.sc-service-addrs: [] -> [10.10.0.4-10.10.0.6]"},
		{subnet, "--sc-service-addrs=10.10.0.4 --clear-sc-service-addrs", ""},
		{subnet, "--remove-sc-service-addrs=10.10.0.5", `groupnet0.subnet0.sc-service-addrs: "10.10.0.5" is not in sc-service-addrs; it is empty`},
		{subnet, "--sc-service-addrs=10.10.0.4-10.10.0.6 --remove-sc-service-addrs=10.10.0.6-10.10.0.7", `groupnet0.subnet0.sc-service-addrs: "10.10.0.6-10.10.0.7" is not in sc-service-addrs; it has "10.10.0.4-10.10.0.6"`},
		{subnet, "--sc-service-addrs=10.10.0.100-10.10.0.102", "groupnet0.subnet0.pool0.ranges[1]: 10.10.0.100-10.10.0.105 overlaps the service addresses of groupnet0.subnet0, 10.10.0.100-10.10.0.102: 10.10.0.100-10.10.0.102 would be used twice"},
		{subnet, "--sc-service-addrs=1.2.3.4-1.2.3.6", "groupnet0.subnet0.sc-service-addrs[1]: 1.2.3.4-1.2.3.6 is not in the subnet 10.10.0.0/24"},
		{subnet, "--sc-service-addrs=", "groupnet0.subnet0.sc-service-addrs: has no value; to bring back the default use --clear-sc-service-addrs"},
		{subnet, "--gateway=10.10.0.254 --mtu=9000 --vlan-id=7 --gateway-priority=2 --sc-rotation=independent", `groupnet0.subnet0.gateway: 10.10.0.1 -> 10.10.0.254
groupnet0.subnet0.gateway-priority: 0 -> 2
groupnet0.subnet0.mtu: 0 -> 9000
groupnet0.subnet0.vlan-id: 0 -> 7
groupnet0.subnet0.sc-rotation: shared -> independent`},
		{subnet, "--clear-gateway", "- groupnet0.subnet0.gateway: 10.10.0.1"},
		{subnet, "--clear-cidr", "groupnet0.subnet0.cidr: cannot be cleared: it needs a value, a network such as 10.0.0.0/24"},
		{subnet, "--name=other", "groupnet0.subnet0.name: cannot be changed; create a new subnet instead"},
		{subnet, "--sc-service-nmae=x.lab", `groupnet0.subnet0: "sc-service-nmae" is not a setting of a subnet; did you mean sc-service-name?`},
		{subnet, "--pools=x", "groupnet0.subnet0.pools: is not changed by a flag; create and delete each pool by its name"},
		{subnet, "--sc-service-name=NS1.Company.COM.", "+ groupnet0.subnet0.sc-service-name: ns1.company.com"},

		{pool, "--alloc-method=static --ranges=10.10.0.20-10.10.0.29 --sc-ttl=0", `groupnet0.subnet0.pool0.ranges: [10.10.0.100-10.10.0.105, 10.10.0.110] -> [10.10.0.20-10.10.0.29]
groupnet0.subnet0.pool0.alloc-method: dynamic -> static`},
		{pool, "--add-ranges=10.10.0.106-10.10.0.109", "groupnet0.subnet0.pool0.ranges: [10.10.0.100-10.10.0.105, 10.10.0.110] -> [10.10.0.100-10.10.0.110]"},
		{pool, "--add-ranges=10.10.0.105-10.10.0.109", `groupnet0.subnet0.pool0.ranges: "10.10.0.105-10.10.0.109" is already in ranges; it has "10.10.0.100-10.10.0.105, 10.10.0.110"`},
		{pool, "--remove-ranges=10.10.0.102-10.10.0.103,10.10.0.110", "groupnet0.subnet0.pool0.ranges: [10.10.0.100-10.10.0.105, 10.10.0.110] -> [10.10.0.100-10.10.0.101, 10.10.0.104-10.10.0.105]"},
		{pool, "--add-ifaces=2:eth0 --remove-ifaces=1:eth1", `groupnet0.subnet0.pool0.ifaces: ["3:eth0", "1:eth1"] -> ["3:eth0", "2:eth0"]`},
		{pool, "--add-ifaces=3:eth0", `groupnet0.subnet0.pool0.ifaces: "3:eth0" is already in ifaces; it has "3:eth0, 1:eth1"`},
		{pool, "--ifaces=9:eth0", "groupnet0.subnet0.pool0.ifaces[1]: there is no node with the number 9; there are 1, 2 and 3"},
		{pool, "--weights=1=2,2=3 --add-weights=3=4 --remove-weights=1", "groupnet0.subnet0.pool0.weights: {} -> {2: 3, 3: 4}"},
		{pool, "--add-weights=1=2 --add-weights=1=3", `groupnet0.subnet0.pool0.weights: "1" is already in weights; remove it first, or set the whole with --weights`},
		{pool, "--add-weights=1", `groupnet0.subnet0.pool0.weights: "1" has no value; write KEY=VALUE`},
		{pool, "--remove-weights=1", `groupnet0.subnet0.pool0.weights: "1" is not in weights`},
		{pool, "--add-pins=10.10.0.101=1:eth1", `groupnet0.subnet0.pool0.pins: {} -> {10.10.0.101: "1:eth1"}`},
		{pool, "--add-pins=10.10.0.99=1:eth1", "groupnet0.subnet0.pool0.pins[10.10.0.99]: 10.10.0.99 is not an address of the pool"},
		{pool, "--static-routes=10.20.0.0/16-10.10.0.254", "groupnet0.subnet0.pool0.static-routes: [] -> [10.20.0.0/16-10.10.0.254]"},
		{pool, "--sc-suspended-nodes=3,1", "groupnet0.subnet0.pool0.sc-suspended-nodes: [] -> [1, 3]"},
		{pool, "--sc-dns-zone=a.lab --sc-dns-zone-aliases=b.lab,c.lab --remove-sc-dns-zone-aliases=B.LAB.", `+ groupnet0.subnet0.pool0.sc-dns-zone: a.lab
groupnet0.subnet0.pool0.sc-dns-zone-aliases: [] -> [c.lab]`},
		{pool, "--sc-dns-zone=my_zone.lab", `groupnet0.subnet0.pool0.sc-dns-zone: "my_zone" has an underscore, which host names may not have (RFC 1123) and some clients and certificates refuse; use a hyphen`},
		{pool, "--sc-connect-policy=fastest", `groupnet0.subnet0.pool0.sc-connect-policy: "fastest" is not one of round_robin, conn_count, throughput or cpu_usage`},
		{pool, "--add-sc-ttl=5", "groupnet0.subnet0.pool0.sc-ttl: has one value; set it with --sc-ttl"},
		{pool, "--sc-ttl=soon --max-answers=many", `groupnet0.subnet0.pool0.sc-ttl: "soon" is not a whole number of seconds from 0 to 604800
groupnet0.subnet0.pool0.max-answers: "many" is not a whole number from 1 to 32`},
		{pool, "--sc-ttl=60 --clear-alloc-method", `groupnet0.subnet0.pool0.alloc-method: dynamic -> static
groupnet0.subnet0.pool0.sc-ttl: 0 -> 60`},

		{node, "--weight=4 --add-interfaces=eth2 --rack=a --voter=false", `nodes.node1.interfaces: [eth0, eth1] -> [eth0, eth1, eth2]
+ nodes.node1.rack: a
nodes.node1.weight: 1 -> 4
nodes.node1.voter: auto -> "false"`},
		{node, "--remove-interfaces=eth1", "groupnet0.subnet0.pool0.ifaces[2]: node1 (node 1) has no interface eth1; it has eth0; did you mean eth0?"},
		{node, "--lnn=7", "nodes.node1.lnn: cannot be changed; create a new node instead"},
		{groupnet, "--dns-servers=10.10.0.2 --allow-wildcard-subdomains=false", `groupnet0.dns-servers: [] -> [10.10.0.2]
groupnet0.allow-wildcard-subdomains: true -> false`},
		{whole, "--sc-server-ttl=60 --store.endpoints=store1:2379 --add-client-ports=8080", `cluster.sc-server-ttl: 900 -> 60
cluster.store.endpoints: [] -> ["store1:2379"]
cluster.client-ports: [20, 21, 80, 443, 445, 2049] -> [20, 21, 80, 443, 445, 2049, 8080]`},
		{whole, "--name=other", "cluster.name: cannot be changed; create a new cluster instead"},
	} {
		t.Run(test.command, func(t *testing.T) {
			c := example()
			next, err := test.modify(c, test.command)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = diffText(c, next)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if changes := diffText(example(), c); changes != "" {
				t.Errorf("the original changed: %s", changes)
			}
		})
	}
}

func TestCreateAndDelete(t *testing.T) {
	steps := []struct {
		name string
		do   func(c *Config) (*Config, error)
		want string
	}{
		{"groupnet", func(c *Config) (*Config, error) { return AddGroupnet(c, "tenant", nil) }, "+ tenant: {}"},
		{"the same groupnet", func(c *Config) (*Config, error) { return AddGroupnet(c, "tenant", nil) }, `tenant.name: "tenant" is the name of another groupnet too`},
		{"subnet without a cidr", func(c *Config) (*Config, error) { return AddSubnet(c, SubnetID{"tenant", "s"}, nil) }, "tenant.s.cidr: needs a value: a network such as 10.0.0.0/24"},
		{"subnet", func(c *Config) (*Config, error) {
			return AddSubnet(c, SubnetID{"tenant", "s"}, []Edit{{"cidr", Set, "fd00::/64"}, {"gateway", Set, "fd00::1"}})
		}, `+ tenant.s: {cidr: "fd00::/64", gateway: "fd00::1"}`},
		{"subnet nowhere", func(c *Config) (*Config, error) { return AddSubnet(c, SubnetID{"tenantt", "s"}, nil) }, "tenantt: there is no such groupnet; did you mean tenant?"},
		{"pool", func(c *Config) (*Config, error) {
			return AddPool(c, PoolID{"tenant", "s", "p"}, []Edit{{"ranges", Set, "fd00::10-fd00::1f"}, {"alloc-method", Set, "dynamic"}})
		}, `+ tenant.s.p: {ranges: ["fd00::10-fd00::1f"], alloc-method: dynamic}`},
		{"rule", func(c *Config) (*Config, error) {
			return AddRule(c, PoolID{"tenant", "s", "p"}, "all", []Edit{{"interface", Set, "eth0"}, {"class", Set, "storage"}})
		}, "+ tenant.s.p.rules.all: {interface: eth0, class: storage}"},
		{"change the rule", func(c *Config) (*Config, error) {
			return ModifyRule(c, PoolID{"tenant", "s", "p"}, "all", []Edit{{"class", Clear, ""}})
		}, "- tenant.s.p.rules.all.class: storage"},
		{"check", func(c *Config) (*Config, error) {
			return AddCheck(c, PoolID{"tenant", "s", "p"}, "disk", []Edit{{"kind", Set, "exec"}, {"command", Set, "/bin/check --root /srv"}})
		}, `+ tenant.s.p.checks.disk: {kind: exec, command: [/bin/check, "--root", /srv]}`},
		{"check without its port", func(c *Config) (*Config, error) {
			return AddCheck(c, PoolID{"tenant", "s", "p"}, "web", []Edit{{"kind", Set, "http"}})
		}, "tenant.s.p.checks.web.port: a check of the kind http needs a port"},
		{"change the check", func(c *Config) (*Config, error) {
			return ModifyCheck(c, PoolID{"tenant", "s", "p"}, "disk", []Edit{{"fall", Set, "5"}})
		}, "tenant.s.p.checks.disk.fall: 3 -> 5"},
		{"node", func(c *Config) (*Config, error) {
			return AddNode(c, "node4", 4, []Edit{{"interfaces", Set, "eth0"}, {"addresses", Set, "192.168.7.4"}})
		}, "+ nodes.node4: {lnn: 4, interfaces: [eth0], addresses: [192.168.7.4]}"},
		{"a node with a number in use", func(c *Config) (*Config, error) { return AddNode(c, "node5", 4, nil) }, "nodes.node5.lnn: 4 is the number of node4 too; every node has one of its own"},
		{"suspend", func(c *Config) (*Config, error) { return SuspendNodes(c, examplePool, []int{3, 1, 3}) }, "groupnet0.subnet0.pool0.sc-suspended-nodes: [] -> [1, 3]"},
		{"suspend again", func(c *Config) (*Config, error) { return SuspendNodes(c, examplePool, []int{3}) }, ""},
		{"suspend nobody", func(c *Config) (*Config, error) { return SuspendNodes(c, examplePool, []int{8}) }, "groupnet0.subnet0.pool0.sc-suspended-nodes[3]: there is no node with the number 8; there are 1, 2, 3 and 4"},
		{"resume", func(c *Config) (*Config, error) { return ResumeNodes(c, examplePool, []int{1, 2}) }, "groupnet0.subnet0.pool0.sc-suspended-nodes: [1, 3] -> [3]"},
		{"resume nobody", func(c *Config) (*Config, error) { return ResumeNodes(c, examplePool, []int{8}) }, "groupnet0.subnet0.pool0: there is no node with the number 8"},
		{"weigh and pin", func(c *Config) (*Config, error) {
			return ModifyPool(c, examplePool, []Edit{{"weights", Set, "1=2,3=4"}, {"pins", Set, "10.10.0.100=3:eth0,10.10.0.101=1:eth0"}})
		}, `groupnet0.subnet0.pool0.weights: {} -> {1: 2, 3: 4}
groupnet0.subnet0.pool0.pins: {} -> {10.10.0.100: "3:eth0", 10.10.0.101: "1:eth0"}`},
		{"delete a node and all that names it", func(c *Config) (*Config, error) { return DeleteNode(c, "node3") }, `- nodes.node3: {lnn: 3, interfaces: [eth0], class: compute, addresses: [192.168.7.3]}
groupnet0.subnet0.pool0.ifaces: ["3:eth0", "1:eth1"] -> ["1:eth1"]
groupnet0.subnet0.pool0.weights: {1: 2, 3: 4} -> {1: 2}
groupnet0.subnet0.pool0.pins: {10.10.0.100: "3:eth0", 10.10.0.101: "1:eth0"} -> {10.10.0.101: "1:eth0"}
groupnet0.subnet0.pool0.sc-suspended-nodes: [3] -> []`},
		{"delete a groupnet in use", func(c *Config) (*Config, error) { return DeleteGroupnet(c, "tenant") }, "tenant: still has subnets; delete them first: tenant.s"},
		{"delete a subnet in use", func(c *Config) (*Config, error) { return DeleteSubnet(c, SubnetID{"tenant", "s"}) }, "tenant.s: still has pools; delete them first: tenant.s.p"},
		{"delete the check", func(c *Config) (*Config, error) { return DeleteCheck(c, PoolID{"tenant", "s", "p"}, "disk") }, `- tenant.s.p.checks.disk: {kind: exec, command: [/bin/check, "--root", /srv], fall: 5}`},
		{"delete the rule", func(c *Config) (*Config, error) { return DeleteRule(c, PoolID{"tenant", "s", "p"}, "all") }, "- tenant.s.p.rules.all: {interface: eth0}"},
		{"delete it again", func(c *Config) (*Config, error) { return DeleteRule(c, PoolID{"tenant", "s", "p"}, "all") }, "all: there is no such rule; there are none"},
		{"delete the pool", func(c *Config) (*Config, error) { return DeletePool(c, PoolID{"tenant", "s", "p"}) }, `- tenant.s.p: {ranges: ["fd00::10-fd00::1f"], alloc-method: dynamic}`},
		{"delete the subnet", func(c *Config) (*Config, error) { return DeleteSubnet(c, SubnetID{"tenant", "s"}) }, `- tenant.s: {cidr: "fd00::/64", gateway: "fd00::1"}`},
		{"delete the groupnet", func(c *Config) (*Config, error) { return DeleteGroupnet(c, "tenant") }, "- tenant: {}"},
	}
	c := example()
	for _, step := range steps {
		next, err := step.do(c)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = diffText(c, next)
			c = next
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// A subnet whose service addresses answer for the pools of another cannot go.
func TestDeleteSubnetThatAnswersForOthers(t *testing.T) {
	c, err := AddSubnet(example(), SubnetID{"groupnet0", "service"}, []Edit{{"cidr", Set, "10.99.0.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err = ModifyPool(c, examplePool, []Edit{{"sc-subnet", Set, "service"}}); err != nil {
		t.Fatal(err)
	}
	_, err = DeleteSubnet(c, SubnetID{"groupnet0", "service"})
	want := `groupnet0.subnet0.pool0.sc-subnet: there is no subnet "service" in groupnet0; it has subnet0`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Every setting that a flag can change says what it takes, and its own default, given as a value, is taken.
func TestSettingsDescribeThemselves(t *testing.T) {
	for name, settings := range map[string][]Setting{"cluster": ClusterSettings(), "node": NodeSettings(), "groupnet": GroupnetSettings(),
		"subnet": SubnetSettings(), "pool": PoolSettings(), "rule": RuleSettings(), "check": CheckSettings()} {
		for _, s := range settings {
			if s.Help == "" || s.Value == "" || strings.HasSuffix(s.Help, ".") {
				t.Errorf("%s %s: help %q, value %q", name, s.Name, s.Help, s.Value)
			}
		}
	}
	for _, s := range PoolSettings() {
		if s.Default == "" || s.Fixed {
			continue
		}
		if _, err := ModifyPool(example(), examplePool, []Edit{{s.Name, Set, s.Default}}); err != nil {
			t.Errorf("the default of %s is refused: %v", s.Name, err)
		}
	}
}
