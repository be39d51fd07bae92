package agent

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
)

// answers keeps the DNS server's view in step with the world, and shares the rotation with the other nodes.
// It is safe for concurrent use, apart from SetView, which the loop calls.
type answers struct {
	*Agent
	server    names
	listening []netip.Addr
	said      map[cluster.PoolID][]string // what the loop was last told of each member, in or out
	saidUnder *cluster.Config             // the configuration whose members these are
	named     named                       // what the names were answered from last
	sequence  atomic.Uint64
	mu        sync.Mutex
	rates     map[int]float64
	given     atomic.Uint64 // answers given by policy since the last look
	lastGiven uint64
	lastLook  time.Time
	agreed    map[int]time.Time // by LNN: when a holder was last asked where a rotation stands
}

// names is what answers names: dns.Server.
type names interface {
	SetView(*dns.View)
	Serve(ctx context.Context, addresses []netip.Addr) error
	Merge(dns.Told) (apart []dns.Standing)
	Rotation(cluster.PoolID) (dns.Rotation, bool)
	Adopt(dns.Rotation, dns.Standing) bool
	Explain(name string, qtype dnsmessage.Type) (placement.Decision, error)
	Close()
}

// SetView turns the world into what names are answered from. The server is given nothing if that is what it was given last.
func (s *answers) SetView(w *steering.World, now time.Time) {
	next := s.name(w, now)
	if s.named.view == nil || !next.same(s.named) {
		s.server.SetView(next.view)
	} else {
		next.view = s.named.view
	}
	s.named = next
	var listen []netip.Addr
	for _, service := range next.view.Services {
		listen = append(listen, ownServiceAddresses(w, service.Subnet, service.All)...)
	}
	if !slices.Equal(listen, s.listening) {
		if err := s.server.Serve(s.ctx, listen); err != nil {
			s.log.Error("listening on the service addresses", "error", err)
		} else {
			s.listening = listen
		}
	}
}

// searches are the search lists that complete names on the server's side.
func searches(config *cluster.Config) []dns.Search {
	var lists []dns.Search
	for i := range config.Groupnets {
		if g := &config.Groupnets[i]; g.ServerSideDNSSearch && len(g.DNSSearch) > 0 {
			lists = append(lists, dns.Search{Groupnet: g.Name, Domains: g.DNSSearch})
		}
	}
	return lists
}

// reverses are the zones of names of addresses.
func reverses(config *cluster.Config) []dns.Reverse {
	var zones []dns.Reverse
	for _, r := range config.Reverses() {
		zone := dns.Reverse{Zone: r.ReverseZone, Names: r.Names}
		if service, ok := config.Subnet(r.Service); ok {
			zone.Service = service.ServiceName
		}
		zones = append(zones, zone)
	}
	return zones
}

// ownServiceAddresses are those that this node holds or is about to take: it answers on them, and on no others.
func ownServiceAddresses(w *steering.World, id cluster.SubnetID, all []netip.Addr) []netip.Addr {
	var own []netip.Addr
	for _, addr := range all {
		if steering.HoldsService(w, steering.ServiceKey{Subnet: id, Address: addr}) {
			own = append(own, addr)
		}
	}
	return own
}

// saidOf is what was last said of each member of a pool; nothing at first, and after a change of the configuration.
func (s *answers) saidOf(config *cluster.Config, id cluster.PoolID, members int) []string {
	if s.saidUnder != config {
		s.said, s.saidUnder = map[cluster.PoolID][]string{}, config
	}
	if s.said[id] == nil {
		s.said[id] = make([]string, members)
	}
	return s.said[id]
}

// inOrOut is what the answers of a pool say of a member that is left out for a reason, if any.
func inOrOut(why string) string {
	if why == "" {
		return "in"
	}
	return "out"
}

// loadsPatience is how long a starting node waits for the loads of the others.
const loadsPatience = 3

// loadsMissing names the nodes that are up and whose load is not known, as long as it is waited for.
func (s *answers) loadsMissing() []string {
	left := loadsPatience*s.loop.replica.config.Settings.SampleInterval - time.Since(s.started)
	if left <= 0 {
		return nil
	}
	var missing []string
	for _, lnn := range slices.Sorted(maps.Keys(s.loop.replica.members)) {
		if s.loads.Sampled(lnn) == 0 {
			missing = append(missing, s.loop.nodeName(lnn))
		}
	}
	if len(missing) > 0 {
		s.loop.wakeIn(left) // the end of the patience is no event
	}
	return missing
}

// perSecond is the rate of answers since the last call.
func (s *answers) perSecond() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	given, now := s.given.Load(), s.now()
	passed := now.Sub(s.lastLook).Seconds()
	rate := 0.0
	if !s.lastLook.IsZero() && passed > 0 {
		rate = float64(given-s.lastGiven) / passed
	}
	s.lastGiven, s.lastLook = given, now
	return rate
}

func (s *answers) noteRate(lnn int, rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rates[lnn] = rate
}

func (s *answers) rateOf(lnn int) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rates[lnn]
}
