package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// How often the networks are looked at: four times in a span, within these.
const (
	networksLookLeast = 10 * time.Millisecond
	networksLookMost  = time.Second
)

// networkFaults is what this node last found of its networks. It is safe for concurrent use.
type networkFaults struct {
	mu     sync.Mutex
	faults map[string]string // interface to what is wrong
	cut    []int             // networks
}

func (f *networkFaults) set(faults map[string]string, cut []int) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = !maps.Equal(f.faults, faults) || !slices.Equal(f.cut, cut)
	f.faults, f.cut = faults, cut
	return changed
}

func (f *networkFaults) get() (faults map[string]string, cut []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults, f.cut
}

// watchNetworks keeps which interfaces carry networks that are cut: whose carrier is there, and over which most of the other nodes are
// not heard any more, while they are over another. A node with one network cannot tell.
func (a *Agent) watchNetworks(ctx context.Context) {
	if len(a.self.Addresses) < 2 {
		return
	}
	states := make([]networkState, min(len(a.self.Addresses), tenure.MaxNetworks))
	for ctx.Err() == nil {
		wait(ctx, min(max(a.tenancy.Timing().Span()/4, networksLookLeast), networksLookMost))
		v := a.view.Load()
		if v == nil {
			continue
		}
		a.lookAtNetworks(states, v)
		if a.networks.set(a.cutInterfaces(states, v.world.Config), cutOf(states)) {
			a.loop.note()
		}
	}
}

// lookAtNetworks brings the states up to date.
func (a *Agent) lookAtNetworks(states []networkState, v *view) {
	right, now := a.tenancy.Right()
	span := right.Timing.Span()
	networksOf := func(lnn int) int {
		node, _ := v.world.Config.Node(lnn)
		return len(node.Addresses)
	}
	for i := range states {
		heard, of := heardOver(i, right.Leases, networksOf, span, now)
		cut, others := 0, 0
		for lnn, entry := range v.members {
			if lnn == a.self.LNN || networksOf(lnn) <= i {
				continue
			}
			others++
			if slices.Contains(entry.record.CutNetworks, i) {
				cut++
			}
		}
		states[i] = states[i].next(heard, of, span, now).blame(cut, others, span, now)
	}
}

// cutInterfaces are the interfaces that are cut for this node. The kernel is asked only while there is a cut.
func (a *Agent) cutInterfaces(states []networkState, config *cluster.Config) map[string]string {
	if !slices.ContainsFunc(states, func(s networkState) bool { return s.fault }) {
		return nil
	}
	there, err := a.edges.kernel.Addresses()
	if err != nil {
		a.log.Warn("reading the addresses of this node", "error", err)
	}
	return cutInterfaces(states, networkNames(config, a.self), carriers(a.self, config, there))
}

func cutOf(states []networkState) []int {
	var cut []int
	for i, s := range states {
		if s.cut {
			cut = append(cut, i)
		}
	}
	return cut
}

// interfaceFaults are what is wrong with this node's interfaces: by the kernel's word, else by what comes over them.
func (a *Agent) interfaceFaults() map[string]string {
	faults, _ := a.links.get()
	cut, _ := a.networks.get()
	if len(cut) == 0 {
		return faults
	}
	all := maps.Clone(cut)
	maps.Copy(all, faults)
	return all
}
