package dns

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
)

// View is everything that answers are made from, at one moment. It is immutable: whoever passes it to SetView changes
// neither it nor anything it points to afterwards.
type View struct {
	Ready       bool          // false until the first full view of configuration and load; then every query gets SERVFAIL
	ServerTTL   time.Duration // TTL of NS, SOA and the addresses of service names (sc-server-ttl)
	NegativeTTL time.Duration // SOA minimum (RFC 2308 section 4)
	Serial      uint32        // SOA serial
	Services    []Service
	Zones       []Zone
	Reverse     []Reverse
	Searches    []Search
}

// Reverse is one delegated zone of names of addresses, in in-addr.arpa or ip6.arpa.
type Reverse struct {
	Zone    cluster.ReverseZone
	Service string                // service name, as of a Zone
	Names   []cluster.ReverseName // what the addresses are called; in any order, no two of the same address
}

// Search is the search list of a groupnet. A name that is in no zone, and is asked at a service address of the groupnet,
// is looked up again with each of the domains behind it, among the names of the groupnet's own zones and services.
type Search struct {
	Groupnet string
	Domains  []string // in the order in which they are tried, without the trailing dot
}

// Service is the DNS service of one subnet. Two subnets, say one of each family, may share a service name.
type Service struct {
	Subnet    cluster.SubnetID
	Name      string       // service name without the trailing dot; empty: the service has no name
	Addresses []netip.Addr // service addresses that anyone holds now
	All       []netip.Addr // every service address of the configuration
}

// Zone is one delegated name, under which up to one IPv4 and one IPv6 pool give out addresses. Two zones of a view may
// have a name in common when one has only an IPv4 and the other only an IPv6 pool; the first says what NS and SOA are.
type Zone struct {
	Name     string   // without the trailing dot
	Aliases  []string // further names with the same answers; each is a zone of its own to resolvers
	Wildcard bool     // names below that do not exist are answered as the zone
	Service  string   // service name: the target of NS and the primary in SOA; empty: the zone has no NS
	Pools    []Pool
}

// Pool is what a pool adds to the answers of its zone.
type Pool struct {
	ID         cluster.PoolID
	TTL        time.Duration  // TTL of A and AAAA, whole seconds; 0 is normal
	Policy     cluster.Policy // empty: round robin
	OnNone     cluster.OnNone // what to answer when no node is eligible; empty: servfail
	MaxAnswers int            // addresses in one answer; below 1 means 1
	Affinity   cluster.Affinity
	Rotation   cluster.Rotation // empty: shared
	IPv6       bool             // the pool's addresses are IPv6, its records AAAA
	Nodes      []Node
}

// Node is one node of a pool.
type Node struct {
	LNN       int
	Name      string
	Weight    int
	Addresses []netip.Addr // addresses of the pool that the node holds now
	Eligible  bool         // may be given
	Why       string       // why not, when it may not
	Load      placement.Load
	Sampled   uint64 // rises with each fresh sample of the node's load
}

// Answered says that a pool's policy gave a node out Count times. Holders of service addresses tell each other, so
// that rotation is shared between them.
type Answered struct {
	Pool  cluster.PoolID
	LNN   int
	Count uint32
}
