package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Of two nodes without a witness each asks the gateways of its subnets whether it is cut off (package tenure calls them the ground). It is asked
// when the peer says so. Heartbeats wait for none of this.

var (
	problemNoWitness = problem.Define(problem.Kind{
		Code: "cluster.no-witness", Severity: problem.Warning,
		Meaning: "The cluster has two nodes and no witness (`no-witness: true`): a node that has lost the other goes on and takes over while its subnets' gateways answer it. If only the link between the two is cut, both hold the same addresses.",
		Remedy:  "Add a third node, or a witness: a small machine whose agent hosts nothing (`witness: true`). This stays as long as the setting is in effect.",
	})
	problemGatewaySilent = problem.Define(problem.Kind{
		Code: "cluster.gateway-silent", Severity: problem.Error,
		Meaning: "This node is one of two without a witness, and a gateway that it asks does not answer: if the other node died now, this one would let go of everything.",
		Remedy:  "Mend the gateway that the detail names, or this node's link to it; it must answer ARP, or neighbour solicitations.",
	})
)

// Paces and bounds of asking.
const (
	askerAgain      = time.Second     // after which one that could not be opened, or failed, is opened again
	askerDeaf       = 3 * time.Second // after which one that hears nothing is opened again: the device's MAC may have changed
	gatewayPatience = 3 * time.Second // after which gateways that do not answer are a problem
)

// gatewayAsker is neigh.Asker.
type gatewayAsker interface {
	Ask() error
	Run(ctx context.Context, heard func()) error
	Close()
}

// openAsker opens what asks a gateway on an interface.
type openAsker func(iface string, gateway netip.Addr) (gatewayAsker, error)

// gateways asks those of this node's subnets. Run owns the askers; the rest is safe for concurrent use.
type gateways struct {
	open     openAsker
	answered func()       // every gateway has answered since it was asked last
	changed  func()       // others are silent than before; nil: nobody wants to know
	told     []netip.Addr // that were silent then; of Run alone
	now      func() time.Time
	log      *slog.Logger
	asks     chan struct{}
	courses  map[cluster.Gateway]*course // of Run alone

	mu      sync.Mutex
	all     []cluster.Gateway
	waiting map[netip.Addr]bool // those that have not answered since they were asked last
	heard   map[netip.Addr]time.Time
	asked   time.Time // when this node last wanted to know
	begun   time.Time // when it began to, after a pause
}

// course is one gateway that is asked on one interface.
type course struct {
	asker gatewayAsker // nil: it could not be opened, or failed
	begun time.Time    // when it was, or when that was tried last
	end   context.CancelFunc
}

func newGateways(open openAsker, answered func(), now func() time.Time, log *slog.Logger) *gateways {
	return &gateways{open: open, answered: answered, now: now, log: log, asks: make(chan struct{}, 1), courses: map[cluster.Gateway]*course{},
		waiting: map[netip.Addr]bool{}, heard: map[netip.Addr]time.Time{}}
}

// configure says which gateways are asked.
func (g *gateways) configure(config *cluster.Config, lnn int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = config.Gateways(lnn)
	before := g.heard
	g.heard = map[netip.Addr]time.Time{}
	for _, gateway := range g.all {
		if g.heard[gateway.Address] = before[gateway.Address]; g.heard[gateway.Address].IsZero() {
			g.heard[gateway.Address] = g.now() // it has as long as one that has just answered
		}
	}
	g.waiting = map[netip.Addr]bool{} // an answer to what was asked before would be of the old ones
}

// ask has them asked soon, and never blocks.
func (g *gateways) ask() {
	g.mu.Lock()
	now := g.now()
	if now.Sub(g.asked) > gatewayPatience {
		g.begun = now
	}
	g.asked = now
	g.mu.Unlock()
	select {
	case g.asks <- struct{}{}:
	default: // it is about to
	}
}

// silent lists those that have not answered for a while although they were asked.
func (g *gateways) silent() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []netip.Addr
	now := g.now()
	for _, gateway := range g.all {
		late := now.Sub(g.heard[gateway.Address]) > gatewayPatience && now.Sub(g.begun) > gatewayPatience
		if n := len(out); late && (n == 0 || out[n-1] != gateway.Address) {
			out = append(out, gateway.Address)
		}
	}
	return out
}

// run asks when it is told to, until the context ends.
func (g *gateways) run(ctx context.Context) {
	var hearing sync.WaitGroup
	defer hearing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.asks:
			g.round(ctx, &hearing)
			if silent := g.silent(); g.changed != nil && !slices.Equal(silent, g.told) {
				g.told = silent
				g.changed()
			}
		}
	}
}

// round asks each gateway once. One that is on several interfaces is asked on each, and any answer counts.
func (g *gateways) round(ctx context.Context, hearing *sync.WaitGroup) {
	g.mu.Lock()
	gateways := g.all
	g.waiting = make(map[netip.Addr]bool, len(gateways))
	for _, gateway := range gateways {
		g.waiting[gateway.Address] = true
	}
	g.mu.Unlock()
	g.keep(ctx, gateways, hearing)
	for _, gateway := range gateways {
		c := g.courses[gateway]
		if c.asker == nil {
			continue
		}
		if err := c.asker.Ask(); err != nil {
			g.log.Debug("asking a gateway", "error", err)
			c.close()
		}
	}
}

// keep has an asker open for each gateway, and none for others.
func (g *gateways) keep(ctx context.Context, gateways []cluster.Gateway, hearing *sync.WaitGroup) {
	wanted := map[cluster.Gateway]bool{}
	for _, gateway := range gateways {
		wanted[gateway] = true
		c := g.courses[gateway]
		if c != nil && c.asker != nil && g.now().Sub(g.lastOf(gateway, c)) > askerDeaf {
			c.close()
		}
		if c == nil || c.asker == nil && g.now().Sub(c.begun) >= askerAgain {
			g.courses[gateway] = g.begin(ctx, gateway, hearing)
		}
	}
	for gateway, c := range g.courses {
		if !wanted[gateway] {
			c.close()
			delete(g.courses, gateway)
		}
	}
}

// lastOf is when a gateway answered last, or else when it was begun to be asked.
func (g *gateways) lastOf(gateway cluster.Gateway, c *course) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := g.heard[gateway.Address]; last.After(c.begun) {
		return last
	}
	return c.begun
}

func (g *gateways) begin(ctx context.Context, gateway cluster.Gateway, hearing *sync.WaitGroup) *course {
	c := &course{begun: g.now()}
	asker, err := g.open(gateway.Interface, gateway.Address)
	if err != nil {
		g.log.Debug("opening what asks a gateway; trying again", "error", err)
		return c
	}
	ctx, c.end = context.WithCancel(ctx)
	c.asker = asker
	hearing.Go(func() {
		if err := asker.Run(ctx, func() { g.hear(gateway.Address) }); err != nil && ctx.Err() == nil {
			g.log.Debug("waiting for a gateway's answer", "error", err)
		}
	})
	return c
}

func (c *course) close() {
	if c.asker != nil {
		c.end()
		c.asker.Close()
		c.asker = nil
	}
}

// hear takes in a gateway's answer. When all have answered since they were asked last, the node is told.
func (g *gateways) hear(gateway netip.Addr) {
	g.mu.Lock()
	if _, known := g.heard[gateway]; known {
		g.heard[gateway] = g.now()
	}
	last := g.waiting[gateway] && len(g.waiting) == 1
	delete(g.waiting, gateway)
	g.mu.Unlock()
	if last {
		g.answered()
	}
}

// observeGateways says that there is no witness, for as long as that is so, and which gateways do not answer this node.
func (l *loop) observeGateways(now time.Time) {
	config := l.replica.config
	l.board.Is(config != nil && config.NoWitness(), problemNoWitness, "cluster",
		"if only the link between the two nodes is cut, both hold the same addresses", now)
	silent := l.gateways.silent()
	asks := l.tenancy.Grounding().Asks
	l.board.Is(asks && len(silent) > 0, problemGatewaySilent, l.self.Name, fmt.Sprintf("no answer for more than %s from %s", gatewayPatience, firstFew(silent)), now)
}

// grounded is told that the ground has answered.
func (t *tenancy) grounded() { t.tell(&tenure.Grounded{Arrived: t.now()}) }

// Grounding is what this node knows of the ground.
func (t *tenancy) Grounding() tenure.Grounding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peer.Grounding()
}
