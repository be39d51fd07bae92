package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// The tables of settings: the one place that knows each setting's name, form, bounds, default and help. Parsing,
// printing, comparing, the JSON schema and the flags of the commands are all read from here.

const (
	longestDay  = 86400
	longestTTL  = 604800 // a week; RFC 8767 section 4 advises resolvers to cap TTLs there
	longestWait = 3600_000
)

// Why a setting is read, checked and kept, and yet changes nothing. Whoever sets it is warned.
const noVLANs = "Holdfast makes no VLAN devices; make one on each node and name it as the interface, such as 3:ext-1.110"

// text forms that several tables share.
var (
	objectName   = text("a name of at most 32 letters, digits, - and _", checkObjectName, `^[0-9A-Za-z_-]{1,32}$`)
	hostLabel    = text("a host name without dots", checkLabel, `^[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?$`)
	tag          = text("a word of at most 32 letters, digits, - and _", checkTag, `^[0-9A-Za-z_-]{0,32}$`)
	device       = text("the name of a network interface, such as eth0", checkInterfaceName, `^[^/\s]{1,15}$`)
	argument     = text("a word of a command", checkPlainText, "")
	domain       = dnsName("a DNS name such as cluster.company.com")
	reverseName  = reverseZoneName("a zone such as 10.10.10.in-addr.arpa or 8.b.d.0.1.0.0.2.ip6.arpa")
	lnn          = wholeNumber[int](1, maxLNN)
	weight       = wholeNumber[int](1, maxWeight)
	policy       = oneOf(RoundRobin, ConnCount, Throughput, CPUUsage)
	portNumber   = wholeNumber[uint16](1, 65535)
	seconds      = func(high int64) form[time.Duration] { return wholeUnits(time.Second, 0, high) }
	milliseconds = func(low, high int64) form[time.Duration] { return wholeUnits(time.Millisecond, low, high) }
)

var configTable = &table[Config]{"configuration", []setting[Config]{
	part[Config, Settings]{"cluster", "the cluster's name and the settings that hold for all of it", settingsTable,
		func(c *Config) *Settings { return &c.Settings }},
	objects[Config, Node]{name: "nodes", help: "the members of the cluster", table: nodeTable,
		field: func(c *Config) *[]Node { return &c.Nodes }, nameOf: func(n *Node) string { return n.Name }, most: MaxNodes},
	objects[Config, Groupnet]{name: "groupnets", help: "tenants, with their subnets and pools", table: groupnetTable,
		field: func(c *Config) *[]Groupnet { return &c.Groupnets }, nameOf: func(g *Groupnet) string { return g.Name }, bare: true, most: MaxGroupnets},
}}

var settingsTable = &table[Settings]{"cluster", []setting[Settings]{
	scalar[Settings, string]{name: "name", required: true, fixed: true, help: "the cluster's name, which its certificates bear",
		form:  text("a name of at most 32 letters, digits and hyphens", checkClusterName, `^[0-9A-Za-z]([0-9A-Za-z-]{0,30}[0-9A-Za-z])?$`),
		field: func(s *Settings) *string { return &s.Name }},
	scalar[Settings, time.Duration]{name: "sc-server-ttl", def: 900 * time.Second, form: seconds(longestTTL),
		help: "TTL of NS and SOA records, in seconds", field: func(s *Settings) *time.Duration { return &s.ServerTTL }},
	scalar[Settings, time.Duration]{name: "negative-ttl", def: 5 * time.Second, form: seconds(longestDay),
		help: "how long a resolver may remember that a name does not exist, in seconds (RFC 2308)", field: func(s *Settings) *time.Duration { return &s.NegativeTTL }},
	scalar[Settings, time.Duration]{name: "sample-interval-ms", def: time.Second, form: milliseconds(100, 60_000),
		help: "how often each node measures its load, in milliseconds", field: func(s *Settings) *time.Duration { return &s.SampleInterval }},
	scalar[Settings, time.Duration]{name: "heartbeat-interval-ms", def: 100 * time.Millisecond, form: milliseconds(10, 10_000),
		help: "how often each node says that it is alive, in milliseconds", field: func(s *Settings) *time.Duration { return &s.HeartbeatInterval }},
	scalar[Settings, int]{name: "heartbeat-multiplier", def: 3, form: wholeNumber[int](2, 50),
		help: "how many missed heartbeats mean that a node is gone", field: func(s *Settings) *int { return &s.HeartbeatMultiplier }},
	scalar[Settings, bool]{name: "no-witness", form: boolean,
		help: "of two nodes, either goes on without the other while its subnets' gateways answer; both do where only the link between them is cut", field: func(s *Settings) *bool { return &s.NoWitness }},
	group[Settings]{storeGroup, "where the shared truth is kept", storeTable},
	list[Settings, uint16]{name: "client-ports", def: []uint16{20, 21, 80, 443, 445, 2049}, most: maxClientPorts, form: portNumber,
		help: "TCP ports whose established connections count as clients", field: func(s *Settings) *[]uint16 { return &s.ClientPorts }},
	objects[Settings, Hook]{name: "hooks", help: "commands around the move of an address", table: hookTable,
		field: func(s *Settings) *[]Hook { return &s.Hooks }, most: maxHooks},
}}

const storeGroup = "store"

var storeTable = &table[Settings]{"store", []setting[Settings]{
	list[Settings, string]{name: "endpoints", most: maxEndpoints, help: "an external etcd as host:port; none: the agents host the store",
		form:  text("host:port", checkEndpoint, ""),
		field: func(s *Settings) *[]string { return &s.StoreEndpoints }},
}}

func checkClusterName(s string) error {
	if len(s) > 32 {
		return errTooLong(s, 32)
	}
	return checkLabel(s)
}

var hookTable = &table[Hook]{"hook", []setting[Hook]{
	scalar[Hook, HookPhase]{name: "phase", required: true, form: oneOf(HookPrepare, HookRelease, HookTake, HookDone),
		help: "when it runs: prepare on all nodes before anything moves, release on the old owner, take and done on the new one", field: func(h *Hook) *HookPhase { return &h.Phase }},
	list[Hook, string]{name: "command", required: true, repeats: true, words: true, most: maxArguments, form: argument,
		help: "program, with its whole path, and arguments", field: func(h *Hook) *[]string { return &h.Command }},
	scalar[Hook, time.Duration]{name: "timeout-ms", def: 5 * time.Second, form: milliseconds(10, 600_000),
		help: "after how many milliseconds it is stopped and the move goes on", field: func(h *Hook) *time.Duration { return &h.Timeout }},
}}

var nodeTable = &table[Node]{"node", []setting[Node]{
	scalar[Node, string]{name: "name", required: true, fixed: true, form: hostLabel,
		help: "the node's name, unique in the cluster", field: func(n *Node) *string { return &n.Name }},
	scalar[Node, int]{name: "lnn", required: true, fixed: true, form: lnn,
		help: "the node's stable small number, unique in the cluster", field: func(n *Node) *int { return &n.LNN }},
	list[Node, string]{name: "interfaces", most: maxInterfaces, form: device,
		help: "interfaces that pools and service addresses may use", field: func(n *Node) *[]string { return &n.Interfaces }},
	scalar[Node, string]{name: "class", form: tag,
		help: "node class that rules match", field: func(n *Node) *string { return &n.Class }},
	scalar[Node, string]{name: "rack", form: tag,
		help: "what fails together with this node: of more than sixteen observers at most a third are of one rack", field: func(n *Node) *string { return &n.Rack }},
	scalar[Node, int]{name: "weight", def: 1, form: weight,
		help: "relative capacity", field: func(n *Node) *int { return &n.Weight }},
	scalar[Node, bool]{name: "witness", form: boolean,
		help: "votes and observes, but hosts nothing", field: func(n *Node) *bool { return &n.Witness }},
	scalar[Node, Voter]{name: "voter", def: VoterAuto, form: voterWord(),
		help: "whether the node hosts a member of the store; auto: the lowest LNNs do, one, three or five in all", field: func(n *Node) *Voter { return &n.Voter }},
	list[Node, netip.Addr]{name: "addresses", most: maxNodeAddresses, form: address,
		help: "the node's own addresses, on which nodes reach each other: heartbeats on the first eight, everything else on the first", field: func(n *Node) *[]netip.Addr { return &n.Addresses }},
}}

var groupnetTable = &table[Groupnet]{"groupnet", []setting[Groupnet]{
	scalar[Groupnet, string]{name: "name", required: true, fixed: true, form: objectName,
		help: "the groupnet's name", field: func(g *Groupnet) *string { return &g.Name }},
	list[Groupnet, netip.Addr]{name: "dns-servers", most: maxDNSServers, form: address,
		help: "the site's DNS servers, which are asked whether they lead to the zones", field: func(g *Groupnet) *[]netip.Addr { return &g.DNSServers }},
	list[Groupnet, string]{name: "dns-search", most: maxDNSSearch, form: domain,
		help: "domains that complete a name which is in no zone, at the groupnet's service addresses", field: func(g *Groupnet) *[]string { return &g.DNSSearch }},
	scalar[Groupnet, bool]{name: "allow-wildcard-subdomains", def: true, form: boolean,
		help: "whether names below a zone are answered like the zone", field: func(g *Groupnet) *bool { return &g.AllowWildcardSubdomains }},
	scalar[Groupnet, bool]{name: "server-side-dns-search", def: true, form: boolean,
		help: "whether the service addresses complete names with dns-search; without, dns-search has no effect", field: func(g *Groupnet) *bool { return &g.ServerSideDNSSearch }},
	objects[Groupnet, Subnet]{name: "subnets", help: "the groupnet's IP networks", table: subnetTable,
		field: func(g *Groupnet) *[]Subnet { return &g.Subnets }, nameOf: func(s *Subnet) string { return s.Name }, bare: true, most: MaxSubnets},
}}

var subnetTable = &table[Subnet]{"subnet", []setting[Subnet]{
	scalar[Subnet, string]{name: "name", required: true, fixed: true, form: objectName,
		help: "the subnet's name", field: func(s *Subnet) *string { return &s.Name }},
	scalar[Subnet, netip.Prefix]{name: "cidr", required: true, form: network,
		help: "the network, IPv4 or IPv6", field: func(s *Subnet) *netip.Prefix { return &s.CIDR }},
	scalar[Subnet, netip.Addr]{name: "gateway", form: address,
		help: "by which replies leave the subnet", field: func(s *Subnet) *netip.Addr { return &s.Gateway }},
	scalar[Subnet, int]{name: "gateway-priority", form: wholeNumber[int](1, 65535),
		help: "a node's default route is by the gateway of the subnet in which this is lowest; 0: never by this one", field: func(s *Subnet) *int { return &s.GatewayPriority }},
	scalar[Subnet, int]{name: "mtu", form: wholeNumber[int](576, 65535),
		help: "largest packet that leaves by the subnet's routes, in bytes; 0: what the interface takes", field: func(s *Subnet) *int { return &s.MTU }},
	scalar[Subnet, int]{name: "vlan-id", form: wholeNumber[int](1, 4094), idle: noVLANs,
		help: "VLAN of the subnet; 0 means untagged", field: func(s *Subnet) *int { return &s.VLANID }},
	scalar[Subnet, string]{name: "sc-service-name", form: domain,
		help: "DNS name of the service addresses: the name server of the subnet's zones", field: func(s *Subnet) *string { return &s.ServiceName }},
	list[Subnet, Range]{name: "sc-service-addrs", repeats: true, most: MaxServiceAddresses, form: addressRange, add: addRange, remove: without,
		help: "service addresses, on which DNS is answered; two to six do well", field: func(s *Subnet) *[]Range { return &s.ServiceAddrs }},
	list[Subnet, string]{name: "sc-reverse-zones", most: maxReverseZones, form: reverseName,
		help: "zones of in-addr.arpa or ip6.arpa that are delegated to the service addresses", field: func(s *Subnet) *[]string { return &s.ReverseZones }},
	scalar[Subnet, Rotation]{name: "sc-rotation", def: RotationShared, form: oneOf(RotationShared, RotationIndependent),
		help: "whether the service addresses share the position of their policies", field: func(s *Subnet) *Rotation { return &s.Rotation }},
	objects[Subnet, Pool]{name: "pools", help: "sets of addresses and the names under which they are given out", table: poolTable,
		field: func(s *Subnet) *[]Pool { return &s.Pools }, nameOf: func(p *Pool) string { return p.Name }, bare: true, most: MaxPools},
}}

var poolTable = &table[Pool]{"pool", slices.Concat(poolAddressSettings, poolAnswerSettings)}

var poolAddressSettings = []setting[Pool]{
	scalar[Pool, string]{name: "name", required: true, fixed: true, form: objectName,
		help: "the pool's name", field: func(p *Pool) *string { return &p.Name }},
	list[Pool, Range]{name: "ranges", repeats: true, most: maxRanges, form: addressRange, add: addRange, remove: without,
		help: "the pool's addresses", field: func(p *Pool) *[]Range { return &p.Ranges }},
	list[Pool, Member]{name: "ifaces", most: maxPoolMembers, form: memberInterface,
		help: "member interfaces, as lnn:iface", field: func(p *Pool) *[]Member { return &p.Interfaces }},
	objects[Pool, Rule]{name: "rules", help: "interfaces of nodes that become members by matching", table: ruleTable,
		field: func(p *Pool) *[]Rule { return &p.Rules }, nameOf: func(r *Rule) string { return r.Name }, most: maxRules},
	scalar[Pool, AllocMethod]{name: "alloc-method", def: AllocStatic, form: oneOf(AllocStatic, AllocDynamic),
		help: "static: one address for each member, which never moves; dynamic: every address always has an owner", field: func(p *Pool) *AllocMethod { return &p.AllocMethod }},
	scalar[Pool, Policy]{name: "sc-failover-policy", def: RoundRobin, form: policy,
		help: "how the addresses of a dead node are spread", field: func(p *Pool) *Policy { return &p.FailoverPolicy }},
	scalar[Pool, RebalancePolicy]{name: "rebalance-policy", def: RebalanceAuto, form: oneOf(RebalanceAuto, RebalanceManual, RebalanceShortOutage, RebalanceIdle),
		help: "when addresses move back after a node has returned", field: func(p *Pool) *RebalancePolicy { return &p.RebalancePolicy }},
	scalar[Pool, time.Duration]{name: "sc-rebalance-delay", form: seconds(longestDay),
		help: "how long to wait before addresses move back, in seconds", field: func(p *Pool) *time.Duration { return &p.RebalanceDelay }},
	weightSetting,
	pinSetting,
	list[Pool, Route]{name: "static-routes", most: maxRoutes, form: route,
		help: "routes for replies from the pool's addresses, as destination-gateway", field: func(p *Pool) *[]Route { return &p.StaticRoutes }},
}

var weightSetting = pairs[Pool, int, int]{name: "weights", key: lnn, value: weight, compare: cmp.Compare[int], most: MaxNodes,
	help: "weight of a node in this pool, by LNN; others have their own", field: func(p *Pool) *map[int]int { return &p.Weights }}

var pinSetting = pairs[Pool, netip.Addr, Member]{name: "pins", key: address, value: memberInterface, compare: netip.Addr.Compare, most: MaxPoolAddresses,
	help: "addresses that stay on one member while it is fit", field: func(p *Pool) *map[netip.Addr]Member { return &p.Pins }}

var poolAnswerSettings = []setting[Pool]{
	scalar[Pool, Policy]{name: "sc-connect-policy", def: RoundRobin, form: policy,
		help: "which node the next client is sent to", field: func(p *Pool) *Policy { return &p.ConnectPolicy }},
	scalar[Pool, string]{name: "sc-dns-zone", form: domain,
		help: "DNS name of the pool", field: func(p *Pool) *string { return &p.Zone }},
	list[Pool, string]{name: "sc-dns-zone-aliases", most: maxAliases, form: domain,
		help: "further DNS names of the pool", field: func(p *Pool) *[]string { return &p.ZoneAliases }},
	scalar[Pool, time.Duration]{name: "sc-ttl", form: seconds(longestTTL),
		help: "TTL of the pool's addresses, in seconds", field: func(p *Pool) *time.Duration { return &p.TTL }},
	scalar[Pool, string]{name: "sc-subnet", form: text("the name of a subnet of the same groupnet", checkTag, `^[0-9A-Za-z_-]{0,32}$`),
		help: "subnet whose service addresses answer for the pool; its own when not given", field: func(p *Pool) *string { return &p.ServiceSubnet }},
	list[Pool, int]{name: "sc-suspended-nodes", most: MaxNodes, form: lnn, order: sortedInts,
		help: "nodes, by LNN, that are not given to new clients", field: func(p *Pool) *[]int { return &p.SuspendedNodes }},
	scalar[Pool, time.Duration]{name: "sc-auto-unsuspend-delay", form: seconds(longestDay),
		help: "how many seconds a node that came back is withheld from the answers; 0: none", field: func(p *Pool) *time.Duration { return &p.AutoUnsuspendDelay }},
	scalar[Pool, OnNone]{name: "on-none", def: OnNoneServFail, form: oneOf(OnNoneServFail, OnNoneAll, OnNoneNoData),
		help: "what is answered when no node may be given", field: func(p *Pool) *OnNone { return &p.OnNone }},
	scalar[Pool, int]{name: "max-answers", def: 1, form: wholeNumber[int](1, 32),
		help: "addresses in one answer", field: func(p *Pool) *int { return &p.MaxAnswers }},
	scalar[Pool, Affinity]{name: "client-affinity", def: AffinityOff, form: oneOf(AffinityOff, AffinityPrefix),
		help: "whether clients of one network keep being sent to the same node", field: func(p *Pool) *Affinity { return &p.ClientAffinity }},
	objects[Pool, Check]{name: "checks", help: "health checks that every member node runs against itself", table: checkTable,
		field: func(p *Pool) *[]Check { return &p.Checks }, nameOf: func(c *Check) string { return c.Name }, most: maxChecks},
}

var ruleTable = &table[Rule]{"rule", []setting[Rule]{
	scalar[Rule, string]{name: "name", required: true, fixed: true, form: objectName,
		help: "the rule's name", field: func(r *Rule) *string { return &r.Name }},
	scalar[Rule, string]{name: "interface", required: true, form: text("a pattern for names of interfaces, such as ext-*", checkInterfacePattern, ""),
		help: "pattern of the interfaces that become members", field: func(r *Rule) *string { return &r.Interface }},
	scalar[Rule, string]{name: "class", form: tag,
		help: "class of the nodes that match; any or none matches every node", field: func(r *Rule) *string { return &r.Class }},
}}

// The ONC RPC program that rpc checks ask by default: NFS version 4 (RFC 7530 section 16).
const (
	nfsProgram = 100003
	nfsVersion = 4
)

var checkKindForm = oneOf(CheckTCP, CheckHTTP, CheckHTTPS, CheckDNS, CheckRPC, CheckExec)

var checkTable = &table[Check]{"check", []setting[Check]{
	scalar[Check, string]{name: "name", required: true, fixed: true, form: objectName,
		help: "the check's name", field: func(c *Check) *string { return &c.Name }},
	scalar[Check, CheckKind]{name: "kind", required: true, form: checkKindForm,
		help: "how it asks", field: func(c *Check) *CheckKind { return &c.Kind }},
	scalar[Check, uint16]{name: "port", form: portNumber,
		help: "port that is asked; every kind but exec needs it", field: func(c *Check) *uint16 { return &c.Port }},
	scalar[Check, string]{name: "path", form: text("a path such as /healthz", checkHTTPPath, `^(/.*)?$`),
		help: "http and https: what is asked for; / when not given", field: func(c *Check) *string { return &c.Path }},
	list[Check, int]{name: "status", most: maxStatusCodes, form: wholeNumber[int](100, 599),
		help: "http and https: the good status codes; 200 to 399 when not given", field: func(c *Check) *[]int { return &c.Status }},
	scalar[Check, string]{name: "query", form: domain,
		help: "dns: the name that is asked for", field: func(c *Check) *string { return &c.Query }},
	scalar[Check, uint32]{name: "program", def: nfsProgram, form: wholeNumber[uint32](0, 1<<32-1),
		help: "rpc: ONC RPC program number", field: func(c *Check) *uint32 { return &c.Program }},
	scalar[Check, uint32]{name: "version", def: nfsVersion, form: wholeNumber[uint32](0, 1<<32-1),
		help: "rpc: version of the program", field: func(c *Check) *uint32 { return &c.Version }},
	list[Check, string]{name: "command", repeats: true, words: true, most: maxArguments, form: argument,
		help: "exec: program, with its whole path, and arguments; exit code 0 is good", field: func(c *Check) *[]string { return &c.Command }},
	scalar[Check, time.Duration]{name: "interval-ms", def: time.Second, form: milliseconds(10, longestWait),
		help: "how often it asks, in milliseconds", field: func(c *Check) *time.Duration { return &c.Interval }},
	scalar[Check, time.Duration]{name: "timeout-ms", def: 500 * time.Millisecond, form: milliseconds(1, longestWait),
		help: "after how many milliseconds without an answer the result is bad; less than interval-ms", field: func(c *Check) *time.Duration { return &c.Timeout }},
	scalar[Check, int]{name: "rise", def: 2, form: wholeNumber[int](1, 100),
		help: "good results in a row to come up", field: func(c *Check) *int { return &c.Rise }},
	scalar[Check, int]{name: "fall", def: 3, form: wholeNumber[int](1, 100),
		help: "bad results in a row to go down", field: func(c *Check) *int { return &c.Fall }},
}}

func sortedInts(values []int) []int {
	slices.Sort(values)
	return values
}

// addRange adds addresses to ranges; ok is false when some are in there already.
func addRange(ranges []Range, r Range) ([]Range, bool) {
	for _, present := range ranges {
		if present.Overlaps(r) {
			return ranges, false
		}
	}
	return merged(append(ranges, r)), true
}
