package address

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/problem"
)

// TrackerOptions are what NewTracker needs. Established and Destroy are required.
type TrackerOptions struct {
	// Established calls back for every established connection of this node.
	Established func(visit func(Connection)) error
	// Destroy ends every connection whose local address is picked, and returns those that were established.
	Destroy    func(on func(netip.Addr) bool) ([]Connection, error)
	Logger     *slog.Logger          // default: none
	Board      *problem.Board        // default: one of its own
	Registerer prometheus.Registerer // default: metrics are not registered
	Now        func() time.Time      // default time.Now
}

// Tracker follows the connections to the addresses that this node owns, so that their successors can be told, and resets those of
// addresses that leave. It is safe for concurrent use.
//
// It guarantees that it resets nothing on an address that is here to stay, or that Here named as coming.
type Tracker struct {
	TrackerOptions
	metrics *trackerMetrics
	found   findings
	looking sync.Mutex // held for a whole Look
	tracked map[Connection]bool
	mu      sync.Mutex // held while sockets are destroyed, so that no address comes meanwhile
	here    map[netip.Addr]bool
}

// NewTracker returns a Tracker that follows nothing yet.
func NewTracker(o TrackerOptions) *Tracker {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Board == nil {
		o.Board = &problem.Board{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Tracker{
		TrackerOptions: o, metrics: newTrackerMetrics(o.Registerer), here: map[netip.Addr]bool{},
		found: findings{board: o.Board, last: map[string][]found{}},
	}
}

// Look looks at the connections of this node and returns those to addresses that it owns. Connections to an address that is
// elsewhere by the records, and not here, are left from before: nobody can go on with them, and if the address came back they would
// answer its new clients. They are reset.
func (t *Tracker) Look(owned, elsewhere func(netip.Addr) bool) (map[Connection]bool, error) {
	t.looking.Lock()
	defer t.looking.Unlock()
	var seen []Connection
	left := map[netip.Addr]bool{}
	err := t.Established(func(c Connection) {
		switch a := c.Local.Addr(); {
		case owned(a):
			seen = append(seen, c)
		case elsewhere(a):
			left[a] = true
		}
	})
	if err != nil {
		t.report("look", found{problemUntracked, "kernel", err.Error()})
		return nil, err
	}
	var omitted int
	t.tracked, omitted = Track(t.tracked, seen)
	t.metrics.tracked.Set(float64(len(t.tracked)))
	t.metrics.untracked.Set(float64(omitted))
	var list []found
	if omitted > 0 {
		list = append(list, found{problemUntracked, "owner", fmt.Sprintf("%d of %d connections to addresses of this node are not kept", omitted, len(seen))})
	}
	t.report("look", list...)
	if len(left) > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.reset(func(a netip.Addr) bool { return left[a] && !t.here[a] })
	}
	return t.tracked, nil
}

// report keeps the board in step with what a look found.
func (t *Tracker) report(look string, list ...found) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found.replace(look, t.Now(), list)
}

// Here says which addresses are on this node's interfaces or about to come. It waits while sockets are being destroyed.
func (t *Tracker) Here(addresses []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.here)
	for _, a := range addresses {
		t.here[a] = true
	}
}

// Reset ends the connections to addresses that leave this node, and returns those that were established, sorted. The far ends see a
// reset while the address is still on an interface, and nothing afterwards.
func (t *Tracker) Reset(addresses []netip.Addr) []Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	leaving := map[netip.Addr]bool{}
	for _, a := range addresses {
		leaving[a] = true
	}
	return t.reset(func(a netip.Addr) bool { return leaving[a] })
}

// reset destroys sockets. t.mu is held.
func (t *Tracker) reset(on func(netip.Addr) bool) []Connection {
	ended, err := t.Destroy(on)
	t.metrics.resets.Add(float64(len(ended)))
	if err == nil && len(ended) == 0 {
		return nil // there was nothing to destroy, which proves nothing
	}
	var list []found
	if err != nil {
		list = append(list, found{problemSocketsKept, "kernel", err.Error()})
		t.Logger.Warn("connections of an address that left were not all reset", "error", err)
	}
	t.found.replace("reset", t.Now(), list)
	slices.SortFunc(ended, compareConnections)
	return ended
}

// trackerMetrics are what the Tracker counts.
type trackerMetrics struct {
	tracked, untracked prometheus.Gauge
	resets             prometheus.Counter
}

func newTrackerMetrics(registerer prometheus.Registerer) *trackerMetrics {
	m := &trackerMetrics{
		tracked:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_address_tracked_connections", Help: "Established connections to addresses of this node, which their successors are told of."}),
		untracked: prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_address_untracked_connections", Help: "Established connections to addresses of this node beyond what successors are told of."}),
		resets:    prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_address_connections_reset_total", Help: "Established connections that were reset because their address left this node."}),
	}
	if registerer != nil {
		registerer.MustRegister(m.tracked, m.untracked, m.resets)
	}
	return m
}
