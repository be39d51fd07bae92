package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/verdict"
)

// linkState is what the kernel last said of this node's interfaces. It is safe for concurrent use.
type linkState struct {
	mu     sync.Mutex
	known  bool
	faults map[string]string
}

func (s *linkState) set(faults map[string]string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !s.known || !maps.Equal(s.faults, faults)
	s.known, s.faults = true, faults
	return changed
}

func (s *linkState) get() (map[string]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults, s.known
}

// linkReadEvery is how often the interfaces are read although the kernel announced no change.
const linkReadEvery = 10 * time.Second

// watchLinks keeps the faults of this node's interfaces: subscribed, and read anew from time to time.
func (a *Agent) watchLinks(ctx context.Context) {
	changes := make(chan struct{}, 1)
	poke := func(link.Change) {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	go func() {
		for ctx.Err() == nil {
			if err := a.edges.kernel.Changes(ctx, poke); err != nil && ctx.Err() == nil {
				a.log.Warn("subscription to link changes ended; subscribing again", "error", err)
				wait(ctx, time.Second)
			}
		}
	}()
	ticker := time.NewTicker(linkReadEvery)
	defer ticker.Stop()
	for {
		a.readLinks()
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-ticker.C:
		}
	}
}

func (a *Agent) readLinks() {
	interfaces, err := a.edges.kernel.Interfaces()
	if err != nil {
		a.log.Warn("reading the interfaces", "error", err)
		return
	}
	faults := map[string]string{}
	for _, name := range a.self.Interfaces {
		i := slices.IndexFunc(interfaces, func(have link.Interface) bool { return have.Name == name })
		switch {
		case i < 0:
			faults[name] = fmt.Sprintf("there is no interface %s on this node", name)
		case !interfaces[i].Up:
			faults[name] = fmt.Sprintf("interface %s is administratively down", name)
		case !interfaces[i].Carrier:
			faults[name] = fmt.Sprintf("interface %s has no carrier", name)
		}
	}
	if a.links.set(faults) {
		a.loop.note()
	}
}

// checkTargets are the checks that this node runs against itself: those of every pool that it is a member of.
func (l *loop) checkTargets(w *steering.World) []verdict.Target {
	var targets []verdict.Target
	for _, id := range w.Config.Pools() {
		pool, _, _, _ := w.Config.Pool(id)
		member := slices.ContainsFunc(w.Config.Members(id), func(m cluster.Member) bool { return m.LNN == l.self.LNN })
		if !member {
			continue
		}
		for i, check := range pool.Checks {
			targets = append(targets, verdict.Target{ID: checkID(id, i, check), Check: check, Address: l.checkAddress(w, id)})
		}
	}
	return targets
}

func checkID(id cluster.PoolID, i int, check cluster.Check) string {
	name := check.Name
	if name == "" {
		name = fmt.Sprintf("%s-%d", check.Kind, i+1)
	}
	return id.String() + "/" + name
}

// checkAddress is where this node's own service is asked: its address in the pool's subnet, else any of its own, else loopback.
func (l *loop) checkAddress(w *steering.World, id cluster.PoolID) netip.Addr {
	subnet, _ := w.Config.Subnet(id.SubnetID())
	for _, addr := range l.self.Addresses {
		if subnet != nil && subnet.CIDR.Contains(addr) {
			return addr
		}
	}
	return netip.Addr{}
}

// listenLook is how often a starting node looks whether it has listened long enough.
const listenLook = 20 * time.Millisecond

// ready reports whether this node's first full view is complete: configuration, interfaces, a first round of checks, and a
// load to speak of. It is so for good: what is configured or joins later does not make a working node unready.
func (l *loop) ready() bool {
	if !l.wasReady {
		l.wasReady = l.waiting() == ""
	}
	return l.wasReady
}

// waiting says what this node waits for before it is ready; empty when it is.
func (l *loop) waiting() string {
	if l.wasReady {
		return ""
	}
	if !l.replica.synced || l.replica.config == nil {
		return "its first copy of the store"
	}
	if l.tenancy.Listening() { // whoever restarts nodes in turn waits until this one is an observer again
		l.wakeIn(listenLook)
		return "the end of a span in which it listens to the others"
	}
	if _, known := l.links.get(); !known {
		return "the state of its interfaces"
	}
	if !l.checks.Ready() {
		return "the first result of " + pendingChecks(l.checks.Status())
	}
	if missing := l.answers.loadsMissing(); len(missing) > 0 {
		return "the load of " + strings.Join(firstTexts(missing), ", ")
	}
	return ""
}

// pendingChecks names the checks that have had no result yet.
func pendingChecks(status map[string]verdict.Verdict) string {
	var pending []string
	for _, id := range slices.Sorted(maps.Keys(status)) {
		if status[id].Pending() {
			pending = append(pending, "the check "+id)
		}
	}
	if len(pending) == 0 {
		return "its checks" // they have not been set yet
	}
	return strings.Join(firstTexts(pending), ", ")
}

// ownReport is what this node says of itself.
func (l *loop) ownReport() memberRecord {
	l.historyMu.Lock()
	past := l.history
	l.historyMu.Unlock()
	report := memberRecord{
		Name: l.self.Name, Version: l.options.Version, Ready: l.ready(), Leaving: l.leaving.Load(),
		Faults: l.interfaceFaults(), PoolFaults: l.poolFaults(), OutageMS: past.Outage.Milliseconds(),
		HoldDownMS: past.HoldDown.Milliseconds(),
		Waiting:    l.waiting(), StateSinceMS: l.ownStateSince(),
	}
	report.StoreMember, report.StoreFault = l.seat.says()
	_, report.CutNetworks = l.networks.get()
	if l.applier.Last().generation == l.generation {
		report.ConfigRevision = l.replica.configRevision
	} else if old, known := l.replica.members[l.self.LNN]; known {
		report.ConfigRevision = old.record.ConfigRevision
	}
	return report
}

// poolFaults says for each pool whose checks fail here what is wrong. The text stays the same while nothing changes, since it is
// written to the store.
func (l *loop) poolFaults() map[string]string {
	failing := map[string][]string{}
	status := l.checks.Status()
	for _, id := range slices.Sorted(maps.Keys(status)) {
		if v := status[id]; v.State != verdict.Up && !v.Pending() {
			pool, name, _ := strings.Cut(id, "/")
			failing[pool] = append(failing[pool], whyFailing(name, v))
		}
	}
	faults := map[string]string{}
	for pool, texts := range failing {
		faults[pool] = strings.Join(firstTexts(texts), "; ")
	}
	return faults
}

// whyFailing says why a check keeps this node out of a pool. The last result alone does not when it was good: the node may still
// be held down, or have passed too few times.
func whyFailing(name string, v verdict.Verdict) string {
	switch {
	case !v.HeldUntil.IsZero():
		return fmt.Sprintf("check %s passes again; held down for %s after failing %s, until %s", name, v.HoldDown, times(v.Flaps), clockText(v.HeldUntil))
	case v.State == verdict.Down && v.Passed:
		return fmt.Sprintf("check %s passes again, but not yet often enough in a row", name)
	case v.State == verdict.Unknown:
		return fmt.Sprintf("check %s: %s", name, v.Reason)
	}
	return fmt.Sprintf("check %s fails: %s", name, v.Evidence)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// routes are the routes by which replies leave: for each subnet, by each interface of this node in it. A subnet without a
// gateway needs them too: a node that has no address of its own there reaches that link by nothing else.
func (l *loop) routes(w *steering.World, holdings []steering.Holding) []address.SubnetRoute {
	var routes []address.SubnetRoute
	own, pools := l.groundOf(w.Config).own, w.Config.Pools()
	for _, subnetID := range w.Config.Subnets() {
		subnet, _ := w.Config.Subnet(subnetID)
		static := map[string][]cluster.Route{} // by interface: a pool's routes are those of its members
		members := map[string]bool{}           // a node's default route does not come and go with a service address
		for _, id := range pools {
			if id.SubnetID() != subnetID || len(own[id]) == 0 {
				continue
			}
			pool, _, _, _ := w.Config.Pool(id)
			for _, m := range own[id] {
				static[m.Interface] = append(static[m.Interface], pool.StaticRoutes...)
				members[m.Interface] = true
			}
		}
		for _, h := range holdings { // service addresses of a subnet without pools, and what is about to leave a pool
			if !members[h.Interface] && h.Subnet == subnetID {
				static[h.Interface] = nil
			}
		}
		for _, name := range slices.Sorted(maps.Keys(static)) {
			route := address.SubnetRoute{Prefix: subnet.CIDR, Gateway: subnet.Gateway, Interface: name, Static: static[name], MTU: subnet.MTU}
			if members[name] {
				route.Priority = subnet.GatewayPriority
			}
			routes = append(routes, route)
		}
	}
	return routes
}
