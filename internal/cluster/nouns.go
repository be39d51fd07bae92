// Package cluster holds the nouns that operators write: nodes, groupnets, subnets, pools, rules and the cluster's
// own settings, and what can be done with them as values: parse, default, validate, print, compare and edit.
//
// It guarantees that a Config which passed Validate is coherent: every address lies in its subnet, ranges do not
// overlap, every pool interface exists, and each zone is claimed at most once in a family. It is pure: no clock, no
// file, no socket, no goroutine. Values are safe to read from several goroutines; nothing here mutates its input.
//
// It does not know who is alive, who holds what, or how anything is enforced.
package cluster

import (
	"fmt"
	"net/netip"
	"time"
)

// Config is the whole of what operators write (docs/configuration.md).
type Config struct {
	Settings  Settings
	Nodes     []Node
	Groupnets []Groupnet
}

// Settings are the cluster-wide settings.
type Settings struct {
	Name                string        // the cluster's name; label characters, at most 32
	ServerTTL           time.Duration // sc-server-ttl: TTL of NS and SOA; whole seconds; default 900 s
	NegativeTTL         time.Duration // negative-ttl: SOA minimum; whole seconds; default 5 s (RFC 2308)
	SampleInterval      time.Duration // sample-interval-ms: how often load is measured; default 1 s
	HeartbeatInterval   time.Duration // heartbeat-interval-ms; default 100 ms
	HeartbeatMultiplier int           // heartbeat-multiplier; default 3
	NoWitness           bool          // no-witness: of two nodes each asks its subnets' gateways whether it may go on without the other; default false
	StoreEndpoints      []string      // store.endpoints: external etcd as host:port; empty means embedded
	Hooks               []Hook        // hooks: commands around address moves
	ClientPorts         []uint16      // client-ports: TCP ports counted as client connections; default 20 21 80 443 445 2049
}

// HookPhase is when a hook runs around the move of an address.
type HookPhase string

// The phases in the order in which one move passes through them (docs/configuration.md, "cluster / hooks").
const (
	HookPrepare HookPhase = "prepare" // on all nodes, before anything moves
	HookRelease HookPhase = "release" // on the old owner
	HookTake    HookPhase = "take"    // on the new owner
	HookDone    HookPhase = "done"    // on the new owner, after the announcement
)

// Hook is an operator's command around address moves.
type Hook struct {
	Phase   HookPhase
	Command []string      // program and arguments; the program is an absolute path
	Timeout time.Duration // timeout-ms; default 5 s
}

// Voter says whether a node hosts a member of the embedded store.
type Voter string

// Values of Voter. Auto picks the nodes with the lowest LNN, one, three or five in all.
const (
	VoterAuto  Voter = "auto"
	VoterTrue  Voter = "true"
	VoterFalse Voter = "false"
)

// Node is one member of the cluster.
type Node struct {
	Name       string
	LNN        int          // stable small number, 1 or more, unique
	Interfaces []string     // names of the interfaces that pools and service addresses may use
	Class      string       // node class that rules match; may be empty
	Rack       string       // failure domain; may be empty
	Weight     int          // relative capacity; default 1
	Witness    bool         // a voter that hosts nothing
	Voter      Voter        // default auto
	Addresses  []netip.Addr // addresses of the cluster networks, on which nodes reach each other
}

// Groupnet is a tenant: DNS settings and the subnets under them.
type Groupnet struct {
	Name                    string // at most 32 of [0-9A-Za-z_-]
	DNSServers              []netip.Addr
	DNSSearch               []string
	AllowWildcardSubdomains bool // default true
	ServerSideDNSSearch     bool // default true
	Subnets                 []Subnet
}

// Rotation says whether holders of a subnet's service addresses share the position of their policies.
type Rotation string

// Values of Rotation (docs/dns.md, "How a node is picked").
const (
	RotationShared      Rotation = "shared"
	RotationIndependent Rotation = "independent"
)

// Subnet is one IP network of one family.
type Subnet struct {
	Name            string
	CIDR            netip.Prefix
	Gateway         netip.Addr // zero: none
	GatewayPriority int        // whose gateway is the default route: the lowest wins; 0: Holdfast makes none by this one
	MTU             int        // of the routes that are made for it; 0: as the interface has it
	VLANID          int        // 0: untagged
	ServiceName     string     // sc-service-name, without the trailing dot
	ServiceAddrs    []Range    // sc-service-addrs; at most 32 addresses in all
	ReverseZones    []string   // sc-reverse-zones, in lower case without the trailing dot; see ParseReverseZone
	Rotation        Rotation   // sc-rotation; default shared
	Pools           []Pool
}

// Range is an inclusive range of addresses of one family; one address is a range of one.
type Range struct{ Low, High netip.Addr }

// AllocMethod says how a pool's addresses are given to its interfaces.
type AllocMethod string

// Values of AllocMethod. Static is the default.
const (
	AllocStatic  AllocMethod = "static"
	AllocDynamic AllocMethod = "dynamic"
)

// Policy is a connection or failover policy.
type Policy string

// The four policies (docs/dns.md, "How a node is picked"). RoundRobin is the default.
const (
	RoundRobin Policy = "round_robin"
	ConnCount  Policy = "conn_count"
	Throughput Policy = "throughput"
	CPUUsage   Policy = "cpu_usage"
)

// RebalancePolicy says when addresses move back after a node returned.
type RebalancePolicy string

// Values of RebalancePolicy (docs/failover.md, "Coming back"). Auto is the default.
const (
	RebalanceAuto        RebalancePolicy = "auto"
	RebalanceManual      RebalancePolicy = "manual"
	RebalanceShortOutage RebalancePolicy = "short_outage"
	RebalanceIdle        RebalancePolicy = "idle"
)

// OnNone says what a name answers when no node may be given.
type OnNone string

// Values of OnNone. ServFail is the default.
const (
	OnNoneServFail OnNone = "servfail"
	OnNoneAll      OnNone = "all"
	OnNoneNoData   OnNone = "nodata"
)

// Affinity says whether a client keeps getting the same node.
type Affinity string

// Values of Affinity. Off is the default.
const (
	AffinityOff    Affinity = "off"
	AffinityPrefix Affinity = "prefix"
)

// Pool is a set of addresses on member interfaces and the DNS name under which they are given out.
type Pool struct {
	Name               string
	Ranges             []Range
	Interfaces         []Member // ifaces, written lnn:iface
	Rules              []Rule
	AllocMethod        AllocMethod
	ConnectPolicy      Policy // sc-connect-policy
	FailoverPolicy     Policy // sc-failover-policy
	RebalancePolicy    RebalancePolicy
	RebalanceDelay     time.Duration // sc-rebalance-delay; whole seconds; default 0
	Zone               string        // sc-dns-zone, without the trailing dot; empty: no DNS
	ZoneAliases        []string      // sc-dns-zone-aliases
	TTL                time.Duration // sc-ttl; whole seconds; default 0
	ServiceSubnet      string        // sc-subnet: subnet of this groupnet whose service addresses answer; empty: its own
	SuspendedNodes     []int         // sc-suspended-nodes, LNNs, sorted
	AutoUnsuspendDelay time.Duration // sc-auto-unsuspend-delay: how long a node that came back is withheld from answers; whole seconds; 0: not at all
	Weights            map[int]int   // LNN to weight; a node that is not named has its own weight
	StaticRoutes       []Route
	Checks             []Check
	OnNone             OnNone
	MaxAnswers         int // max-answers: addresses per answer; default 1
	ClientAffinity     Affinity
	Pins               map[netip.Addr]Member // pinned addresses and where they stay
}

// Member is one interface of one node: what owns an address. The zero Member stands for nobody.
type Member struct {
	LNN       int
	Interface string
}

// IsZero reports whether m is nobody.
func (m Member) IsZero() bool { return m == Member{} }

// String writes m as operators write it, for example "3:ext-1".
func (m Member) String() string {
	if m.IsZero() {
		return "nobody"
	}
	return fmt.Sprintf("%d:%s", m.LNN, m.Interface)
}

// Rule adds the matching interfaces of matching nodes to its pool.
type Rule struct {
	Name      string
	Interface string // pattern as in path.Match
	Class     string // node class; empty or "any" matches every node
}

// Route is a static route of a pool.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// CheckKind is how a check asks.
type CheckKind string

// The kinds of checks.
const (
	CheckTCP   CheckKind = "tcp"
	CheckHTTP  CheckKind = "http"
	CheckHTTPS CheckKind = "https"
	CheckDNS   CheckKind = "dns"
	CheckRPC   CheckKind = "rpc"
	CheckExec  CheckKind = "exec"
)

// Check is one health check that every member node of a pool runs against itself.
type Check struct {
	Name     string
	Kind     CheckKind
	Port     uint16        // all kinds but exec
	Path     string        // http, https: default "/"
	Status   []int         // http, https: accepted codes; empty: 200 to 399
	Query    string        // dns: name to ask for
	Program  uint32        // rpc: ONC RPC program number; default 100003 (NFS)
	Version  uint32        // rpc: program version; default 4
	Command  []string      // exec: program and arguments; exit code 0 is good
	Interval time.Duration // interval-ms; default 1 s
	Timeout  time.Duration // timeout-ms; default 500 ms, less than interval
	Rise     int           // good results in a row to come up; default 2
	Fall     int           // bad results in a row to go down; default 3
}

// PoolID names a pool in its subnet in its groupnet.
type PoolID struct{ Groupnet, Subnet, Pool string }

// String writes the dotted form, for example "groupnet0.subnet0.pool0".
func (id PoolID) String() string { return id.Groupnet + "." + id.Subnet + "." + id.Pool }

// SubnetID is the subnet that the pool belongs to.
func (id PoolID) SubnetID() SubnetID { return SubnetID{id.Groupnet, id.Subnet} }

// SubnetID names a subnet in its groupnet.
type SubnetID struct{ Groupnet, Subnet string }

// String writes the dotted form, for example "groupnet0.subnet0".
func (id SubnetID) String() string { return id.Groupnet + "." + id.Subnet }
