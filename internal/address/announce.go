package address

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// announceTaken announces addresses now and starts their repeats. r.mu is held.
func (r *Reconciler) announceTaken(addresses []netip.Addr, silences uint64) {
	now := r.now()
	for _, a := range addresses {
		if _, held := r.held[a]; held {
			r.schedule.start(a, now)
		}
	}
	r.announce(addresses, silences)
}

// announce announces those of the addresses that are held, in batches by interface, and stops when the node is silenced
// or has no right to hold. r.mu is held, so nothing is announced after Silence has returned.
func (r *Reconciler) announce(addresses []netip.Addr, silences uint64) {
	byInterface := map[string][]netip.Addr{}
	for _, a := range addresses {
		if h, held := r.held[a]; held {
			byInterface[h.Interface] = append(byInterface[h.Interface], a)
		}
	}
	if len(byInterface) == 0 {
		return
	}
	for _, iface := range slices.Sorted(maps.Keys(byInterface)) {
		list := byInterface[iface]
		slices.SortFunc(list, netip.Addr.Compare)
		list = slices.Compact(list)
		r.announceOn(iface, list, silences)
	}
	r.reportAnnouncements()
}

func (r *Reconciler) announceOn(iface string, list []netip.Addr, silences uint64) {
	delete(r.unheard, iface)
	for batch := range slices.Chunk(list, batchSize) {
		if r.forbidden(silences) != nil {
			batch = slices.DeleteFunc(slices.Clone(batch), func(a netip.Addr) bool { return r.held[a].Lifetime })
		}
		if len(batch) == 0 {
			continue
		}
		if err := r.announcer.Announce(iface, batch); err != nil {
			r.metrics.announceFailures.Inc()
			r.log.Warn("could not announce addresses", "interface", iface, "addresses", len(batch), "error", err)
			r.unheard[iface] = err.Error()
			continue
		}
		r.metrics.announcements.Add(float64(len(batch)))
	}
}

// reportAnnouncements puts what could not be announced on the board. r.mu is held.
func (r *Reconciler) reportAnnouncements() {
	var list []found
	for iface, detail := range r.unheard {
		list = append(list, found{problemAnnounce, iface, detail})
	}
	r.problems.replace("announce", r.now(), list)
}

// announceDue makes the repeats that are due and answers foreign claims. r.mu is held.
func (r *Reconciler) announceDue() {
	now := r.now()
	silences := r.silences.Load()
	r.announce(r.schedule.due(now), silences)
	answers := r.contests.due(now)
	r.announce(answers, silences)
	r.metrics.answers.Add(float64(len(answers)))
	r.contests.over(now)
	r.reportConflicts(now)
}

// claimed enters a foreign claim that was heard. It does not answer: Run does, so that what is heard never waits for
// what is sent.
func (r *Reconciler) claimed(address netip.Addr, mac []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, held := r.held[address]
	if !held || r.ownMAC(mac) {
		return
	}
	if !slices.Equal(r.contests[address].mac, mac) && r.newOwnMAC(mac) {
		return
	}
	now := r.now()
	if r.contests[address].claims == 0 {
		r.log.Warn("another host claims a held address", "address", address, "interface", h.Interface, "mac", net.HardwareAddr(mac).String())
	}
	r.metrics.claims.Inc()
	if r.contests.heard(address, slices.Clone(mac), now) {
		r.reportConflicts(now)
		notify(r.wake)
	}
}

// newOwnMAC reports whether a MAC that is not known as this node's is so by now: an interface may have got another one,
// and its announcements are heard on this node's other interfaces. r.mu is held.
func (r *Reconciler) newOwnMAC(mac []byte) bool {
	interfaces, err := r.kernel.Interfaces()
	return err == nil && slices.ContainsFunc(interfaces, func(i link.Interface) bool { return slices.Equal(i.MAC, mac) })
}

// reportConflicts puts the contests on the board. r.mu is held.
func (r *Reconciler) reportConflicts(now time.Time) {
	var list []found
	for a, k := range r.contests {
		list = append(list, found{problemConflict, a.String(),
			fmt.Sprintf("%v also claims %v; heard %d times", k.mac, a, k.claims)})
	}
	r.problems.replace("conflict", now, list)
}
