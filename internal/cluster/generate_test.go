package cluster

import (
	"fmt"
	"net/netip"
	"time"

	"pgregory.net/rapid"
)

// drawConfig draws a valid configuration that uses every setting now and then. Subnet i of all is 10.i.0.0/24 or
// fd00:i::/64, so that nothing overlaps by construction.
func drawConfig(t *rapid.T) *Config {
	c := New(drawName(t, "cluster"))
	c.Settings.ServerTTL = drawUnits(t, time.Second, 0, longestTTL)
	c.Settings.NegativeTTL = drawUnits(t, time.Second, 0, longestDay)
	c.Settings.SampleInterval = drawUnits(t, time.Millisecond, 100, 60_000)
	c.Settings.HeartbeatInterval = drawUnits(t, time.Millisecond, 10, 10_000)
	c.Settings.NoWitness = rapid.Bool().Draw(t, "no-witness")
	c.Settings.HeartbeatMultiplier = rapid.IntRange(2, 50).Draw(t, "multiplier")
	c.Settings.StoreEndpoints = rapid.SampledFrom([][]string{nil, {"10.9.9.9:2379"}, {"store1:2379", "[fd09::9]:2379"}}).Draw(t, "endpoints")
	c.Settings.ClientPorts = rapid.SampledFrom([][]uint16{c.Settings.ClientPorts, nil, {1, 65535}}).Draw(t, "ports")
	for i := range rapid.IntRange(0, 2).Draw(t, "hooks") {
		c.Settings.Hooks = append(c.Settings.Hooks, Hook{
			Phase:   rapid.SampledFrom([]HookPhase{HookPrepare, HookRelease, HookTake, HookDone}).Draw(t, "phase"),
			Command: []string{fmt.Sprintf("/bin/hook-%d", i), drawArgument(t)},
			Timeout: drawUnits(t, time.Millisecond, 10, 600_000),
		})
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		c.Nodes = append(c.Nodes, drawNode(t, i))
	}
	subnets := 0
	for i := range rapid.IntRange(0, 2).Draw(t, "groupnets") {
		g := NewGroupnet(fmt.Sprintf("groupnet%d", i))
		g.AllowWildcardSubdomains = rapid.Bool().Draw(t, "wildcard")
		g.ServerSideDNSSearch = rapid.Bool().Draw(t, "search")
		g.DNSServers = rapid.SampledFrom([][]netip.Addr{nil, {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}).Draw(t, "servers")
		g.DNSSearch = rapid.SampledFrom([][]string{nil, {"company.com", "lab"}}).Draw(t, "domains")
		for range rapid.IntRange(0, 3).Draw(t, "subnets") {
			g.Subnets = append(g.Subnets, drawSubnet(t, c, subnets))
			subnets++
		}
		c.Groupnets = append(c.Groupnets, g)
	}
	return c
}

func drawNode(t *rapid.T, i int) Node {
	n := NewNode(fmt.Sprintf("node-%d", i+1), (i+1)*rapid.SampledFrom([]int{1, 100}).Draw(t, "stride"))
	n.Interfaces = []string{"eth0", "bond0.100", "ext-1"}[:rapid.IntRange(1, 3).Draw(t, "interfaces")]
	n.Class = rapid.SampledFrom([]string{"", "storage", "yes", "7"}).Draw(t, "class")
	n.Rack = rapid.SampledFrom([]string{"", "a", "null", "0x10", "1e3", "-"}).Draw(t, "rack")
	n.Weight = rapid.IntRange(1, maxWeight).Draw(t, "weight")
	n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)}), netip.MustParseAddr(fmt.Sprintf("fd99::%x", i+1))}
	if i == 0 {
		return n // so that there is a voter and a host
	}
	n.Witness = rapid.Bool().Draw(t, "witness")
	n.Voter = rapid.SampledFrom([]Voter{VoterAuto, VoterTrue, VoterFalse}).Draw(t, "voter")
	if n.Witness {
		n.Voter = VoterAuto
	}
	return n
}

// host is the n-th address of subnet i.
func host(i, n int, six bool) netip.Addr {
	if six {
		return netip.MustParseAddr(fmt.Sprintf("fd00:%x::%x", i+1, n))
	}
	return netip.AddrFrom4([4]byte{10, byte(i), byte(n >> 8), byte(n)})
}

func drawSubnet(t *rapid.T, c *Config, i int) Subnet {
	six := rapid.Bool().Draw(t, "six")
	s := NewSubnet(fmt.Sprintf("subnet%d", i))
	s.CIDR = netip.PrefixFrom(host(i, 0, six), map[bool]int{false: 24, true: 64}[six]).Masked()
	s.GatewayPriority = rapid.IntRange(0, 100).Draw(t, "priority")
	s.MTU = rapid.SampledFrom([]int{0, 1500, 9000}).Draw(t, "mtu")
	s.VLANID = rapid.SampledFrom([]int{0, 1, 4094}).Draw(t, "vlan")
	s.Rotation = rapid.SampledFrom([]Rotation{RotationShared, RotationIndependent}).Draw(t, "rotation")
	if rapid.Bool().Draw(t, "gateway") || c.NoWitness() {
		s.Gateway = host(i, 1, six)
	}
	if rapid.Bool().Draw(t, "service") {
		s.ServiceName = fmt.Sprintf("ns%d.company.com", i)
		s.ServiceAddrs = []Range{{host(i, 4, six), host(i, 6, six)}, {host(i, 8, six), host(i, 8, six)}}
	}
	if rapid.Bool().Draw(t, "reverse") {
		whole := fmt.Sprintf("0.%d.10.in-addr.arpa", i)
		s.ReverseZones = []string{whole, "0-127." + whole}
		if six {
			s.ReverseZones = []string{ReverseZone{Name: "0.0.d.f.ip6.arpa", Free: 28}.NameOf(s.CIDR.Addr())[2*12:]}
		}
	}
	for j := range rapid.IntRange(0, 3).Draw(t, "pools") {
		s.Pools = append(s.Pools, drawPool(t, c, i, j, six))
	}
	return s
}

func drawPool(t *rapid.T, c *Config, i, j int, six bool) Pool {
	p := NewPool(fmt.Sprintf("pool%d", j))
	policies := []Policy{RoundRobin, ConnCount, Throughput, CPUUsage}
	first := 20 + 40*j
	single := host(i, first+30, six)
	p.Ranges = rapid.SampledFrom([][]Range{nil, {{host(i, first, six), host(i, first+9, six)}}, {{single, single}, {host(i, first, six), host(i, first+4, six)}}}).Draw(t, "ranges")
	p.AllocMethod = rapid.SampledFrom([]AllocMethod{AllocStatic, AllocDynamic}).Draw(t, "method")
	p.ConnectPolicy = rapid.SampledFrom(policies).Draw(t, "connect")
	p.FailoverPolicy = rapid.SampledFrom(policies).Draw(t, "failover")
	p.RebalancePolicy = rapid.SampledFrom([]RebalancePolicy{RebalanceAuto, RebalanceManual, RebalanceShortOutage, RebalanceIdle}).Draw(t, "rebalance")
	p.RebalanceDelay = drawUnits(t, time.Second, 0, longestDay)
	p.TTL = drawUnits(t, time.Second, 0, longestTTL)
	p.AutoUnsuspendDelay = drawUnits(t, time.Second, 0, longestDay)
	p.OnNone = rapid.SampledFrom([]OnNone{OnNoneServFail, OnNoneAll, OnNoneNoData}).Draw(t, "none")
	p.MaxAnswers = rapid.IntRange(1, 32).Draw(t, "answers")
	p.ClientAffinity = rapid.SampledFrom([]Affinity{AffinityOff, AffinityPrefix}).Draw(t, "affinity")
	for k := range c.Nodes {
		drawMembership(t, &p, &c.Nodes[k])
	}
	if rapid.Bool().Draw(t, "rule") {
		p.Rules = []Rule{{Name: "all", Interface: rapid.SampledFrom([]string{"*", "eth?", "[a-c]*", "ext-1"}).Draw(t, "pattern"), Class: rapid.SampledFrom([]string{"", "any", "storage"}).Draw(t, "match")}}
	}
	if len(p.Ranges) > 0 && len(p.Interfaces) > 0 && p.AllocMethod == AllocDynamic && rapid.Bool().Draw(t, "pin") {
		p.Pins = map[netip.Addr]Member{p.Ranges[0].Low: p.Interfaces[0]}
	}
	if rapid.Bool().Draw(t, "zone") {
		p.Zone = fmt.Sprintf("zone-%d-%d.company.com", i, j)
		p.ZoneAliases = rapid.SampledFrom([][]string{nil, {fmt.Sprintf("alias-%d-%d", i, j), fmt.Sprintf("%d-%d.lab", i, j)}}).Draw(t, "aliases")
	}
	if rapid.Bool().Draw(t, "route") {
		p.StaticRoutes = []Route{{netip.PrefixFrom(host(100, 0, six), 24).Masked(), host(i, 2, six)}}
	}
	if rapid.Bool().Draw(t, "own") {
		p.ServiceSubnet = fmt.Sprintf("subnet%d", i)
	}
	for k := range rapid.IntRange(0, 2).Draw(t, "checks") {
		p.Checks = append(p.Checks, drawCheck(t, k))
	}
	return p
}

func drawMembership(t *rapid.T, p *Pool, n *Node) {
	if n.Witness || !rapid.Bool().Draw(t, "member") {
		return
	}
	p.Interfaces = append(p.Interfaces, Member{n.LNN, n.Interfaces[0]})
	if rapid.Bool().Draw(t, "suspended") {
		p.SuspendedNodes = sortedInts(append(p.SuspendedNodes, n.LNN))
	}
	if rapid.Bool().Draw(t, "weighted") {
		if p.Weights == nil {
			p.Weights = map[int]int{}
		}
		p.Weights[n.LNN] = rapid.IntRange(1, maxWeight).Draw(t, "weight")
	}
}

func drawCheck(t *rapid.T, i int) Check {
	c := NewCheck(fmt.Sprintf("check%d", i), rapid.SampledFrom([]CheckKind{CheckTCP, CheckHTTP, CheckHTTPS, CheckDNS, CheckRPC, CheckExec}).Draw(t, "kind"))
	c.Interval = drawUnits(t, time.Millisecond, 10, longestWait)
	c.Timeout = c.Interval - time.Millisecond
	c.Rise = rapid.IntRange(1, 100).Draw(t, "rise")
	c.Fall = rapid.IntRange(1, 100).Draw(t, "fall")
	if c.Kind != CheckExec {
		c.Port = rapid.Uint16Range(1, 65535).Draw(t, "port")
	}
	switch c.Kind {
	case CheckHTTP, CheckHTTPS:
		c.Path = rapid.SampledFrom([]string{"", "/", "/a?b=c&d", `/"quoted"`, "/größe"}).Draw(t, "path")
		c.Status = rapid.SampledFrom([][]int{nil, {200}, {100, 599}}).Draw(t, "status")
	case CheckDNS:
		c.Query = "company.com"
	case CheckRPC:
		c.Program = rapid.Uint32().Draw(t, "program")
		c.Version = rapid.Uint32().Draw(t, "version")
	case CheckExec:
		c.Command = []string{"/bin/check", drawArgument(t), drawArgument(t)}
	}
	return c
}

// drawArgument draws text in which YAML could see something else.
func drawArgument(t *rapid.T) string {
	odd := []string{"", " ", "-", "- a", "a: b", "#x", "a #b", "true", "~", "null", "1", "1.5", "0o7", "1:20", "1:20:30", "2026-01-01", "'", `"`, `\`, "{", "[", "]", ",", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "=", "<<", "?", ": ", "größe", "日本", "a\u2028b", "\u00a0", "\u0085", "...", "---"}
	return rapid.OneOf(
		rapid.SampledFrom(odd),
		rapid.StringMatching(`[ -~]{0,12}`),
		rapid.StringMatching(`[\x{a0}-\x{2fff}]{0,4}`),
	).Draw(t, "argument")
}

func drawName(t *rapid.T, label string) string {
	return rapid.StringMatching(`[a-zA-Z0-9]([a-zA-Z0-9-]{0,10}[a-zA-Z0-9])?`).Draw(t, label)
}

func drawUnits(t *rapid.T, unit time.Duration, low, high int) time.Duration {
	return time.Duration(rapid.IntRange(low, high).Draw(t, "units")) * unit
}
