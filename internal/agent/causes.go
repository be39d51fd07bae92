package agent

import (
	"net/netip"

	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// cause is the failover by which an address came here under one epoch.
type cause struct {
	failover string
	epoch    uint64
}

// failedOver says of a change of owner by which failover it is; empty: by none. An owner hands over to nobody but the target of a move,
// so that a single change to anyone else is one, even where the news of the end comes after the record. Of several changes at once it
// is one if the owner's end is known.
func (l *loop) failedOver(old, now tenure.Statement) string {
	handed := !old.To.IsZero() && old.To == now.Owner
	single := now.Epoch == old.Epoch+1
	if old.Owner.IsZero() || handed || !single && old.Owner.Incarnation > l.tenancy.Down(old.Owner.LNN) {
		return ""
	}
	return failoverID(old.Owner.LNN, old.Owner.Incarnation)
}

// causesOf says for each address that this node should have by which failover it comes; those that came otherwise are not in it. A
// successor may act before the record names it: then the owner on record is the one that is over. What is not to be here is
// forgotten.
func (l *loop) causesOf(w *steering.World, holdings []steering.Holding) map[netip.Addr]string {
	causes, kept := map[netip.Addr]string{}, map[netip.Addr]cause{}
	for _, h := range holdings {
		st, onRecord := w.Pools[h.Pool][h.Address]
		if !onRecord {
			st = w.Services[steering.ServiceKey{Subnet: h.Subnet, Address: h.Address}]
		}
		if st.Owner.LNN != w.Self {
			if !st.Owner.IsZero() && w.Over(st.Owner) {
				causes[h.Address] = failoverID(st.Owner.LNN, st.Owner.Incarnation)
			}
			continue
		}
		if c := l.causes[h.Address]; c.failover != "" && c.epoch == st.Epoch {
			causes[h.Address], kept[h.Address] = c.failover, c
		}
	}
	l.causes = kept
	return causes
}
