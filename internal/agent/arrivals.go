package agent

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/linux/arrival"
)

// When a failover brings addresses here, this node listens for the first packet of a client to each: the last stage of what
// `holdfast explain --event` shows. Without a failover nothing listens.
const (
	arrivalLimit = 10 * time.Second       // for how long
	maxArrivals  = arrival.MaxAddresses   // for how many addresses at a time; more are not listened for
	kindArrived  = "address.first-packet" // the event
)

// arrivals listens for first packets. It is safe for concurrent use.
type arrivals struct {
	*Agent
	mu    sync.Mutex
	under map[arriving]bool // those that are listened for
}

// arriving is an address that comes here by a failover.
type arriving struct {
	address  netip.Addr
	failover string
}

func newArrivals(a *Agent) *arrivals { return &arrivals{Agent: a, under: map[arriving]bool{}} }

// coming begins to listen for what a wish brings here by failovers, beside the taking itself, which does not wait for it: a packet that
// comes within the moment that this takes is not seen, the next one is.
func (l *arrivals) coming(ctx context.Context, w wish, before map[netip.Addr]bool) {
	byInterface := map[string][]netip.Addr{}
	l.mu.Lock()
	for _, h := range w.holdings {
		key := arriving{h.Address, w.causes[h.Address]}
		if key.failover == "" || before[h.Address] || l.under[key] || len(l.under) >= maxArrivals {
			continue
		}
		l.under[key] = true
		byInterface[h.Interface] = append(byInterface[h.Interface], h.Address)
	}
	l.mu.Unlock()
	for iface, addresses := range byInterface {
		l.wg.Go(func() { l.listen(ctx, iface, addresses, w.causes) })
	}
}

// listen listens on one interface, for a bounded time.
func (l *arrivals) listen(ctx context.Context, iface string, addresses []netip.Addr, causes map[netip.Addr]string) {
	ctx, stop := context.WithTimeout(ctx, arrivalLimit)
	defer stop()
	err := l.edges.arrivals.FirstPackets(ctx, iface, addresses, func(first arrival.First) {
		l.event(kindArrived, first.Address.String(), "the first packet of a client to "+first.Address.String()+" came from "+first.From.String(), map[string]string{
			fieldFailover: causes[first.Address], fieldArrived: timeField(first.At), fieldFrom: first.From.String(),
		})
	})
	if err != nil {
		l.log.Warn("not listening for the first packets of clients; explain --event will not show them", "interface", iface, "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, address := range addresses {
		delete(l.under, arriving{address, causes[address]})
	}
}
