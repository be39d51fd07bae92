package address

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
)

// outcome is what one pass did.
type outcome struct {
	taken          []netip.Addr
	put, announced time.Time // when they were on their interfaces, and announced
}

// converge reads the kernel, plans, acts, announces what it added, and enters what is held and what failed. silences is
// the count under which it has the right to add. r.mu is held.
func (r *Reconciler) converge(silences uint64) outcome {
	if r.still {
		return outcome{} // another process does this, now or in a moment
	}
	actual, err := r.read()
	r.unread = err
	if err != nil {
		r.unreadable(err)
		return outcome{}
	}
	r.problems.replace("read", r.now(), nil)
	returned := r.lookAtDevices(actual.interfaces)
	follow(r.mine, actual.addresses)
	reasons := make(map[netip.Addr]error, len(r.heldBack))
	for a, h := range r.heldBack {
		reasons[a] = h.reason
	}
	p := makePlan(situation{desired: r.desired, mine: r.mine, heldBack: reasons, actual: actual, routing: r.stale})
	failures := p.refused
	taken := r.carryOut(p, silences, failures)
	done := outcome{taken: taken, put: r.now()}
	if emptied(actual.addresses, p.operations, failures) {
		r.stale = true
		notify(r.reread)
	}
	r.enter(actual, taken, failures)
	r.report(p, failures)
	r.announceTaken(append(slices.Clone(taken), returned...), silences)
	if len(r.unheard) == 0 {
		done.announced = r.now()
	}
	return done
}

// follow corrects where addresses that were put on earlier are: an interface that gets another name takes them along.
func follow(mine map[netip.Addr]string, actual []link.Address) {
	elsewhere := map[netip.Addr]string{}
	for _, a := range actual {
		if at, known := mine[a.Prefix.Addr()]; known && a.Prefix.IsSingleIP() && at != a.Interface {
			elsewhere[a.Prefix.Addr()] = a.Interface
		}
	}
	for _, a := range actual {
		if a.Prefix.IsSingleIP() && mine[a.Prefix.Addr()] == a.Interface {
			delete(elsewhere, a.Prefix.Addr()) // it is still where it was put, whatever else has it
		}
	}
	maps.Copy(mine, elsewhere)
}

// read reads what a plan needs. r.mu is held.
func (r *Reconciler) read() (state, error) {
	var s state
	var err error
	if s.interfaces, err = r.kernel.Interfaces(); err != nil {
		return s, err
	}
	if s.addresses, err = r.kernel.Addresses(); err != nil || !r.stale {
		return s, err
	}
	if s.rules, err = r.kernel.Rules(); err != nil {
		return s, err
	}
	s.routes, err = r.kernel.Routes()
	return s, err
}

// unreadable enters that nothing can be done: what is desired and not held has failed; what is held stays. r.mu is held.
func (r *Reconciler) unreadable(err error) {
	r.log.Error("cannot read the kernel's addresses", "error", err)
	r.problems.replace("read", r.now(), []found{{problemKernel, "kernel", err.Error()}})
	wanted := map[netip.Addr]bool{}
	for _, h := range r.desired.Holdings {
		wanted[h.Address] = true
		if _, held := r.held[h.Address]; !held {
			r.failed[h.Address] = fmt.Errorf("%v: %w", h.Address, err)
		}
	}
	var operations []link.Operation // removing needs no reading
	for a, h := range r.held {
		if !wanted[a] {
			operations = append(operations, link.Operation{Verb: link.Remove, Object: addressOf(h)})
		}
	}
	r.apply(operations, r.failed)
	for a := range r.mine {
		if !wanted[a] {
			delete(r.held, a)
		}
	}
}

// lookAtDevices enters the interfaces and returns the held addresses of those that have carrier and had not, or have
// another MAC or another index than before: the link has to be told again. r.mu is held.
func (r *Reconciler) lookAtDevices(interfaces []link.Interface) []netip.Addr {
	devices := make(map[string]link.Interface, len(interfaces))
	again := map[string]bool{}
	for _, i := range interfaces {
		devices[i.Name] = i
		before, known := r.devices[i.Name]
		if known && i.Carrier && (!before.Carrier || before.Index != i.Index || !slices.Equal(before.MAC, i.MAC)) {
			again[i.Name] = true
		}
		if !known || before.Carrier != i.Carrier || before.Up != i.Up || before.Index != i.Index {
			r.stale = true // the kernel drops routes of interfaces that go down, and which interfaces carry replies changes
		}
	}
	r.devices = devices
	var list []netip.Addr
	for a, h := range r.held {
		if again[h.Interface] {
			list = append(list, a)
		}
	}
	return list
}

// carryOut does what is planned in batches and returns what was added. Additions of addresses with lifetimes are left
// out once the node is silenced or has no right to hold. A rule or route that fails is tried once more at the end: the
// kernel takes no gateway in a namespace that never had an address. r.mu is held.
func (r *Reconciler) carryOut(p plan, silences uint64, failures map[netip.Addr]error) []netip.Addr {
	var taken []netip.Addr
	var again []link.Operation
	for batch := range slices.Chunk(p.operations, batchSize) {
		batch = r.lawful(batch, silences, failures)
		for i, err := range r.kernel.Apply(batch) {
			if a, isAddress := batch[i].Object.(link.Address); isAddress {
				if r.enterResult(batch[i].Verb, a, err, failures) {
					taken = append(taken, a.Prefix.Addr())
				}
			} else if err != nil && !gone(batch[i], err) {
				again = append(again, batch[i])
			}
		}
	}
	var routing []found
	for i, err := range r.kernel.Apply(again) {
		if err != nil {
			r.log.Error("could not change a rule or route", "error", err)
			routing = append(routing, found{problemRoute, subnetOf(again[i].Object), err.Error()})
		}
	}
	if r.stale {
		r.stale = len(routing) > 0
		r.problems.replace("routes", r.now(), append(routing, p.conflicts...))
	}
	return taken
}

// gone reports whether a rule or route that was to be removed is not there. The kernel takes the routes of an interface away with
// its last IPv4 address.
func gone(o link.Operation, err error) bool {
	return o.Verb == link.Remove && (errors.Is(err, link.ErrMissing) || errors.Is(err, link.ErrNoInterface))
}

// emptied reports whether operations took the last IPv4 address off an interface, and with it, in the kernel, its IPv4 routes.
func emptied(actual []link.Address, operations []link.Operation, failures map[netip.Addr]error) bool {
	left := map[string]int{}
	for _, a := range actual {
		if a.Prefix.Addr().Is4() {
			left[a.Interface]++
		}
	}
	for _, o := range operations {
		a, isAddress := o.Object.(link.Address)
		if !isAddress || o.Verb != link.Remove || a.Prefix.Addr().Is6() || failures[a.Prefix.Addr()] != nil {
			continue
		}
		if left[a.Interface]--; left[a.Interface] == 0 {
			return true
		}
	}
	return false
}

// subnetOf is the subject under which a failure of routing is reported.
func subnetOf(o link.Object) string {
	switch o := o.(type) {
	case link.Rule:
		return o.From.String()
	case link.Route:
		if o.Table == link.MainTable {
			return "default route " + o.Destination.String() + " dev " + o.Interface
		}
		return o.Destination.String() + " dev " + o.Interface
	}
	return o.String()
}

// lawful leaves out of a batch what the node has no right to do now. r.mu is held.
func (r *Reconciler) lawful(batch []link.Operation, silences uint64, failures map[netip.Addr]error) []link.Operation {
	reason := r.forbidden(silences)
	if reason == nil {
		return batch
	}
	return slices.DeleteFunc(slices.Clone(batch), func(o link.Operation) bool {
		a, isAddress := o.Object.(link.Address)
		unlawful := isAddress && o.Verb != link.Remove && a.Valid != link.Forever
		if unlawful {
			failures[a.Prefix.Addr()] = fmt.Errorf("%v: %w", a.Prefix.Addr(), reason)
		}
		return unlawful
	})
}

// forbidden says why nothing may be done for moving addresses at this moment; nil if it may.
func (r *Reconciler) forbidden(silences uint64) error {
	switch {
	case r.silences.Load() != silences:
		return ErrSilenced
	case !r.permit():
		r.metrics.unlawful.Inc()
		return ErrNoRight
	}
	return nil
}

// enterResult enters what one operation on an address did and reports whether it added the address. r.mu is held.
func (r *Reconciler) enterResult(verb link.Verb, a link.Address, err error, failures map[netip.Addr]error) bool {
	address := a.Prefix.Addr()
	gone := verb == link.Remove && (err == nil || errors.Is(err, link.ErrMissing) || errors.Is(err, link.ErrNoInterface))
	switch {
	case gone:
		if r.mine[address] == a.Interface {
			delete(r.mine, address)
		}
		if r.held[address].Interface == a.Interface {
			delete(r.held, address)
			r.metrics.released.Inc()
		}
	case verb == link.Remove:
		r.mine[address] = a.Interface // also one that was found there: it is tried again
		r.metrics.removeFailures.Inc()
		r.logFailure("could not remove an address", a, err)
		if failures != nil {
			failures[address] = err
		}
	case err != nil:
		r.metrics.addFailures.Inc()
		r.logFailure("could not add an address", a, err)
		failures[address] = err
	default:
		r.mine[address] = a.Interface
		if verb == link.Add {
			r.metrics.taken.Inc()
		}
		return verb == link.Add
	}
	return false
}

// logFailure logs a failure unless the last pass failed in the same way. r.mu is held.
func (r *Reconciler) logFailure(message string, a link.Address, err error) {
	if before := r.failed[a.Prefix.Addr()]; before == nil || before.Error() != err.Error() {
		r.log.Error(message, "address", a.Prefix.Addr(), "interface", a.Interface, "error", err)
	}
}

// apply removes addresses; failures may be nil. r.mu is held.
func (r *Reconciler) apply(operations []link.Operation, failures map[netip.Addr]error) {
	for i, err := range r.kernel.Apply(operations) {
		r.enterResult(operations[i].Verb, operations[i].Object.(link.Address), err, failures)
	}
}

// enter works out what is held after a pass: what was desired and there, or was added, and did not fail. r.mu is held.
func (r *Reconciler) enter(actual state, taken []netip.Addr, failures map[netip.Addr]error) {
	type place struct {
		address netip.Addr
		iface   string
	}
	there := map[place]bool{}
	for _, a := range actual.addresses {
		if a.Prefix.IsSingleIP() {
			there[place{a.Prefix.Addr(), a.Interface}] = true
		}
	}
	added := map[netip.Addr]bool{}
	for _, a := range taken {
		added[a] = true
	}
	r.held = map[netip.Addr]Holding{}
	for _, h := range r.desired.Holdings {
		present := added[h.Address] || there[place{h.Address, h.Interface}]
		if failures[h.Address] == nil && present {
			r.held[h.Address] = h
			r.mine[h.Address] = h.Interface // also one that was there before
		}
	}
	maps.DeleteFunc(r.mine, func(a netip.Addr, iface string) bool {
		return !added[a] && !there[place{a, iface}] // it went by itself
	})
	notHeld := func(a netip.Addr) bool { _, held := r.held[a]; return !held }
	maps.DeleteFunc(r.schedule.running, func(a netip.Addr, _ course) bool { return notHeld(a) })
	maps.DeleteFunc(r.contests, func(a netip.Addr, _ contest) bool { return notHeld(a) })
	r.failed = failures
	r.reportConflicts(r.now())
	r.metrics.held.Set(float64(len(r.held)))
	r.metrics.failed.Set(float64(len(r.failed)))
}

// report puts failures on the problem board. r.mu is held.
func (r *Reconciler) report(p plan, failures map[netip.Addr]error) {
	desired := map[netip.Addr]string{}
	for _, h := range r.desired.Holdings {
		desired[h.Address] = h.Interface
	}
	var list []found
	missing := map[string]int{}
	for a, err := range failures {
		iface, isDesired := desired[a]
		switch {
		case !isDesired:
			list = append(list, found{problemRemoveFailed, a.String(), err.Error()})
		case errors.Is(err, link.ErrNoInterface):
			missing[iface]++
		case errors.Is(err, ErrInUse):
			list = append(list, found{problemInUse, a.String(), err.Error()})
		case errors.Is(err, ErrConfigured):
			list = append(list, found{problemConfigured, a.String(), err.Error()})
		case errors.Is(err, ErrProbing), errors.Is(err, ErrSilenced), errors.Is(err, ErrNoRight):
			// states that pass, and that others report
		default:
			list = append(list, found{problemAddFailed, a.String(), err.Error()})
		}
	}
	for iface, count := range missing {
		list = append(list, found{problemInterface, iface, fmt.Sprintf("%s is not there; %d addresses belong on it", iface, count)})
	}
	r.problems.replace("pass", r.now(), list)
}

// unasked lists the addresses for which the link is to be asked, by interface; again includes those for which a stranger
// answered a while ago. r.mu is held.
func (r *Reconciler) unasked(again bool) map[string][]netip.Addr {
	ask := map[string][]netip.Addr{}
	for _, h := range r.desired.Holdings {
		back, waiting := r.heldBack[h.Address]
		if !waiting || !r.devices[h.Interface].Ethernet {
			continue
		}
		if _, held := r.held[h.Address]; held { // it was there already
			r.release(h.Address)
			continue
		}
		if back.asked.IsZero() || again && r.now().Sub(back.asked) >= ProbeAgain {
			ask[h.Interface] = append(ask[h.Interface], h.Address)
		}
	}
	return ask
}

// release ends the holding back of an address; it is not asked for again while it is desired. r.mu is held.
func (r *Reconciler) release(a netip.Addr) {
	delete(r.heldBack, a)
	r.proven[a] = true
}

// answer is what the link said on one interface.
type answer struct {
	claims []neigh.Claim
	err    error
}

// probe asks the link on all interfaces at the same time. r.mu is not held: a silence does not wait for it.
func (r *Reconciler) probe(ctx context.Context, ask map[string][]netip.Addr) map[string]answer {
	type one struct {
		iface string
		answer
	}
	answers := make(chan one, len(ask))
	for iface, addresses := range ask {
		go func() {
			claims, err := r.announcer.Probe(ctx, iface, addresses, ProbeWait)
			answers <- one{iface, answer{claims, err}}
		}()
	}
	all := make(map[string]answer, len(ask))
	for range ask {
		a := <-answers
		all[a.iface] = a.answer
	}
	return all
}

// judgeProbe releases the addresses that no stranger answered for, and refuses the others. Where the question could not
// be sent, nobody can answer on that interface either, and the address is taken. r.mu is held.
func (r *Reconciler) judgeProbe(ask map[string][]netip.Addr, answers map[string]answer) {
	for iface, addresses := range ask {
		got := answers[iface]
		claimed := map[netip.Addr]neigh.Claim{}
		for _, c := range got.claims {
			if !r.ownMAC(c.MAC) {
				claimed[c.Address] = c
			}
		}
		for _, a := range addresses {
			if _, waiting := r.heldBack[a]; !waiting {
				continue // silenced meanwhile
			}
			c, taken := claimed[a]
			switch {
			case taken:
				reason := fmt.Errorf("%v on %s: %w: %v answers", a, iface, ErrInUse, c.MAC)
				r.heldBack[a] = heldBack{reason, r.now()}
				r.log.Error("refused to take an address that is in use", "address", a, "interface", iface, "mac", c.MAC.String())
			case errors.Is(got.err, context.Canceled), errors.Is(got.err, context.DeadlineExceeded):
				r.heldBack[a] = heldBack{reason: fmt.Errorf("%v on %s: asking the link: %w", a, iface, got.err)}
			default:
				if got.err != nil {
					r.log.Warn("could not ask whether an address is in use", "address", a, "interface", iface, "error", got.err)
				}
				r.release(a)
			}
		}
	}
}

// ownMAC reports whether a MAC is one of this node's. r.mu is held.
func (r *Reconciler) ownMAC(mac []byte) bool {
	for i := range maps.Values(r.devices) {
		if len(i.MAC) > 0 && slices.Equal(i.MAC, mac) {
			return true
		}
	}
	return false
}
