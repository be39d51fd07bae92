package dns

import (
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// path is how a site's DNS gets to a zone.
type path string

const (
	delegated path = "delegated" // by NS records in the zone above
	forwarded path = "forwarded" // by configuration of the resolver: a stub or forward zone
)

// steered is one zone of the tests, with a service name and service addresses of its own.
type steered struct {
	path     path
	count    int            // of service addresses, for each family
	family   string         // of service addresses and pools: ipv4, ipv6 or both
	services [][]netip.Addr // one of each family in each
}

func (z *steered) String() string { return fmt.Sprintf("%s-%d-%s", z.path, z.count, z.family) }
func (z *steered) kind() string   { return fmt.Sprintf("%d-%s", z.count, z.family) }
func (z *steered) name() string   { return z.String() + ".company.com" }
func (z *steered) alias() string  { return "also-" + z.name() }

// wildcard: the zones with one service address have none, so that names below them do not exist.
func (z *steered) wildcard() bool { return z.count > 1 }
func (z *steered) has4() bool     { return z.family != "ipv6" }
func (z *steered) has6() bool     { return z.family != "ipv4" }

// delegation is what the site's DNS is told; those who have service addresses of both families have a name for each of them.
func (z *steered) delegation() dns.DelegationInput {
	return dns.DelegationInput{Zones: []string{z.name(), z.alias()}, Service: "ns-" + z.name(), Addresses: slices.Concat(z.services...),
		TTL: 900 * time.Second, SeparateNames: z.family == "both"}
}

// printed is what the product prints for some zones, one after the other.
func printed(t *testing.T, flavour string, zones []*steered) string {
	t.Helper()
	var all strings.Builder
	for _, z := range zones {
		text, err := dns.Delegation(z.delegation(), flavour)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(text)
	}
	return all.String()
}

// allSteered has a zone of each kind.
func allSteered() (zones []*steered) {
	for _, p := range []path{delegated, forwarded} {
		for _, count := range []int{1, 3} {
			for _, family := range []string{"ipv4", "ipv6", "both"} {
				z := &steered{path: p, count: count, family: family}
				for k := range count {
					var held []netip.Addr
					if z.has4() {
						held = append(held, netip.AddrFrom4([4]byte{10, 20, byte(len(zones) + 1), byte(4 + k)}))
					}
					if z.has6() {
						held = append(held, netip.MustParseAddr(fmt.Sprintf("fd00:20:%d::%d", len(zones)+1, 4+k)))
					}
					z.services = append(z.services, held)
				}
				zones = append(zones, z)
			}
		}
	}
	return zones
}

// through picks those of some zones that are reached in one way.
func through(zones []*steered, p path) (picked []*steered) {
	for _, z := range zones {
		if z.path == p {
			picked = append(picked, z)
		}
	}
	return picked
}

const steeredNodes = 4

// view has all the zones; node n of a pool has the addresses 10.30.n.1 and 2, or fd00:30:n::1 and 2.
func view(zones []*steered) *dns.View {
	v := &dns.View{Ready: true, ServerTTL: 900 * time.Second, NegativeTTL: 5 * time.Second, Serial: 7}
	for _, z := range zones {
		pool := func(ipv6 bool) dns.Pool {
			p := dns.Pool{ID: cluster.PoolID{Groupnet: "groupnet0", Subnet: map[bool]string{false: "subnet4", true: "subnet6"}[ipv6], Pool: z.String()}, IPv6: ipv6}
			for lnn := 1; lnn <= steeredNodes; lnn++ {
				n := dns.Node{LNN: lnn, Name: fmt.Sprintf("node%d", lnn), Weight: 1, Eligible: true}
				for i := 1; i <= 2; i++ {
					pattern := "10.30.%d.%d"
					if ipv6 {
						pattern = "fd00:30:%d::%d"
					}
					n.Addresses = append(n.Addresses, netip.MustParseAddr(fmt.Sprintf(pattern, lnn, i)))
				}
				p.Nodes = append(p.Nodes, n)
			}
			return p
		}
		zone := dns.Zone{Name: z.name(), Aliases: []string{z.alias()}, Wildcard: z.wildcard(), Service: z.delegation().Service}
		if z.has4() {
			zone.Pools = append(zone.Pools, pool(false))
		}
		if z.has6() {
			zone.Pools = append(zone.Pools, pool(true))
		}
		all := slices.Concat(z.services...)
		v.Services = append(v.Services, dns.Service{Name: z.delegation().Service, Addresses: all, All: all})
		v.Zones = append(v.Zones, zone)
	}
	return v
}

// holders are three nodes of a cluster as resolvers see them: servers that hold the service addresses of all zones and tell
// each other what they answered. All are in the namespace of the test; the addresses are on a link that swallows whatever
// is sent to an address that is not on it, as a network swallows what is sent to a dead node.
type holders struct {
	t       *testing.T
	servers [3]*dns.Server
	held    [3][]netip.Addr

	mu    sync.Mutex
	given map[string]map[int]int // addresses given out, by zone and holder
}

// steeredLink makes the link.
var steeredLink = []string{

	"link add service0 type veth peer name service1", "link set service0 arp off", "link set service1 arp off",
	"link set service0 up", "link set service1 up",
	"address add 10.20.0.1/16 dev service0", "address add 10.20.0.2/32 dev service0", "-6 address add fd00:20::1/32 dev service0 nodad",
}

func startHolders(t *testing.T, zones []*steered) *holders {
	h := &holders{t: t, given: map[string]map[int]int{}}
	v := view(zones)
	for k := range h.servers {
		h.servers[k] = dns.NewServer(dns.Options{OnAnswered: func(told dns.Told) { h.heard(k, told) }})
		t.Cleanup(h.servers[k].Close)
		h.servers[k].SetView(v)
		for _, z := range zones {
			if k < len(z.services) {
				h.held[k] = append(h.held[k], z.services[k]...)
			}
		}
		h.serve(k)
		h.appear(h.held[k])
	}
	return h
}

func (h *holders) serve(k int) {
	if err := h.servers[k].Serve(h.t.Context(), h.held[k]); err != nil {
		h.t.Error(err)
	}
}

// heard passes on what one holder tells the others, and counts it.
func (h *holders) heard(k int, told dns.Told) {
	for other, s := range h.servers {
		if other != k && s != nil {
			s.Merge(told)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range told.Answers {
		counts := h.given[a.Pool.Pool]
		if counts == nil {
			counts = map[int]int{}
			h.given[a.Pool.Pool] = counts
		}
		counts[k] += int(a.Count)
	}
}

// counts is how many addresses of a zone each holder gave out since forget or favourites was called, from the most down.
func (h *holders) counts(z *steered) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := slices.Collect(maps.Values(h.given[z.String()]))
	slices.Sort(counts)
	slices.Reverse(counts)
	return counts
}

// forget forgets what was given of a zone.
func (h *holders) forget(z *steered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.given, z.String())
}

// favourites are the service addresses of those holders that gave out most of each zone since the last call, by holder.
func (h *holders) favourites(zones []*steered) (found [3][]netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, z := range zones {
		best := -1
		for k, count := range h.given[z.String()] {
			if best < 0 || count > h.given[z.String()][best] {
				best = k
			}
		}
		delete(h.given, z.String())
		if best < 0 {
			h.t.Errorf("%v: nobody was asked", z)
			continue
		}
		for _, a := range slices.Concat(z.services...) {
			if slices.Contains(h.held[best], a) {
				found[best] = append(found[best], a)
			}
		}
	}
	return found
}

// move makes another holder answer on addresses of one that is gone: its sockets close first.
func (h *holders) move(moved []netip.Addr, to int) {
	gone := func(a netip.Addr) bool { return slices.Contains(moved, a) }
	for k := range h.servers {
		if k != to && slices.ContainsFunc(h.held[k], gone) {
			h.held[k] = slices.DeleteFunc(h.held[k], gone)
			h.serve(k)
		}
	}
	h.held[to] = append(h.held[to], moved...)
	h.serve(to)
}

// vanish takes addresses off the link: what is sent to them is lost without a word. appear puts them on it.
func (h *holders) vanish(addresses []netip.Addr) { h.change("delete", addresses) }
func (h *holders) appear(addresses []netip.Addr) {
	h.change("add", addresses)
	h.routed(addresses)
}

// routed waits until what is sent to addresses comes here: the kernel makes the routes of IPv6 addresses a moment after the addresses.
func (h *holders) routed(addresses []netip.Addr) {
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		out, err := exec.CommandContext(h.t.Context(), "ip", "-6", "route", "show", "table", "local").CombinedOutput()
		words := strings.Fields(string(out))
		missing := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return a.Is4() || slices.Contains(words, a.String()) })
		if err == nil && len(missing) == 0 {
			return
		}
		if time.Since(began) > 30*time.Second {
			h.t.Errorf("without a route: %v: %v: %s", missing, err, out)
			return
		}
	}
}

func (h *holders) change(what string, addresses []netip.Addr) {
	var batch strings.Builder
	for _, a := range addresses {
		if a.Is4() {
			fmt.Fprintf(&batch, "address %s %v/32 dev service0\n", what, a)
		} else {
			fmt.Fprintf(&batch, "address %s %v/128 dev service0 nodad\n", what, a)
		}
	}
	run := exec.CommandContext(h.t.Context(), "ip", "-batch", "-")
	run.Stdin = strings.NewReader(batch.String())
	if out, err := run.CombinedOutput(); err != nil {
		h.t.Errorf("ip: %v: %s", err, out)
	}
}
