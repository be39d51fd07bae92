package sim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// This file mirrors internal/agent/release.go: an owner's word to whom an address moves that it has let go of it.

const releaseTimeout = 500 * time.Millisecond

// handingOver is what a process has told others, and what others have told it.
type handingOver struct {
	promises steering.Promises
	releases map[netip.Addr]steering.Release
}

// changing reports whether this node has a change of a record under way, whose outcome it does not know.
func (p *process) changing(id cluster.PoolID, service steering.ServiceKey) bool {
	if service != (steering.ServiceKey{}) {
		return p.busy(serviceKey(service))
	}
	return p.busy(poolKey(id))
}

// handed tells the new owners of addresses that have just left this node's interfaces. What is lost on the way is sent again by the
// transport, as long as there is time.
func (p *process) handed(w wish, off []netip.Addr) {
	for _, a := range slices.SortedFunc(slices.Values(off), netip.Addr.Compare) {
		if st, handing := w.handing[a]; handing {
			p.tellReleased(st.To.LNN, a, steering.Release{Owner: st.Owner, Epoch: st.Epoch}, p.s.now+releaseTimeout)
		}
	}
}

func (p *process) tellReleased(to int, a netip.Addr, release steering.Release, until time.Duration) {
	s, from := p.s, p.lnn
	way := s.chance.between(s.Delay/2, 2*s.Delay) + s.chance.between(0, time.Duration(s.network.late[from])*time.Millisecond)
	lost := s.chance.chance(s.network.loss)
	s.after(way, func() {
		switch {
		case s.now >= until:
		case lost || !s.connected(from, to):
			p.later(200*time.Millisecond, func() { p.tellReleased(to, a, release, until) })
		default:
			if other := s.node(to).process; other != nil {
				other.later(0, func() { other.takeRelease(a, release) })
			}
		}
	})
}

// takeRelease notes what a node says that it has let go of.
func (p *process) takeRelease(a netip.Addr, release steering.Release) {
	if p.view != nil {
		p.releases[a] = release
		p.changed(ofPromises)
		p.note()
	}
}
