package steering

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Proposal is a new record for a pool.
type Proposal struct {
	Pool      cluster.PoolID
	asked     bool          // by an operator, through whichever node
	static    bool          // its addresses do not move
	Record    tenure.Record // where nothing changes it is the one on record itself, to be read only
	Dead      []int         // nodes whose addresses are being taken over
	Changed   []netip.Addr
	Moves     []placement.Move
	Decisions []placement.Decision
	Trusted   []int    // nodes in hold-down that an operator's rebalance gives addresses to: their hold-down is over
	Evenness  Evenness // zero while something moves anyway, and for static pools
	Rank      int      // this node's turn: 0 proposes at once, later ranks later
	Why       string   // one line for the event
}

// ProposePool says what the record of a pool should become. It returns false when the record is as it should be.
// Wait is when to look again although nothing else happens (a hold-down that ends), zero if never.
func ProposePool(w *World, id cluster.PoolID, asked bool, now time.Time) (p Proposal, wait time.Duration, ok bool) {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists {
		return retirePool(w, id)
	}
	return proposePool(w, site, &desk{}, asked, now)
}

func proposePool(w *World, site poolSite, d *desk, asked bool, now time.Time) (p Proposal, wait time.Duration, ok bool) {
	p = Proposal{Pool: site.id, asked: asked, static: site.static, Record: site.record, Rank: -1}
	request, back := poolRequest(w, site, d, asked, now)
	result := d.allocate(site, request)
	var overruled []int
	if asked {
		overruled = overruleHoldDown(request.Candidates)
	}
	if !site.static {
		// What must move goes first; whether more may move for evenness is looked at when that is done.
		if asked || len(result.Moves) == 0 && !result.Even {
			var evened placement.Result
			if evened, p.Evenness = evenOut(w, site.pool, d, request, asked, now); p.Evenness.May {
				result = evened
			}
		}
		wait = soonest(p.Evenness.Wait, back.wait)
		for _, m := range site.members {
			wait = soonest(wait, w.HeldDown(m.LNN, now))
		}
	}
	p.Decisions = result.Decisions
	why := reasons{moves: result.Moves, decisions: result.Decisions}
	for i, want := range result.Statements { // which are in the order of the request, as the configuration's addresses are sorted
		p.apply(w, want, &d.recorded[i], &why, now)
	}
	if d.configured < len(site.record) {
		p.dropRetired(w, site.addresses)
	}
	if len(p.Changed) == 0 {
		return p, wait, false
	}
	p.trust(overruled)
	p.finish(w)
	return p, wait, true
}

// soonest is the shorter of two waits, where zero and less is none.
func soonest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// overruleHoldDown lets nodes that came back lately be given addresses, as an operator asked, and says which they are.
func overruleHoldDown(candidates []placement.Candidate) (overruled []int) {
	for i := range candidates {
		if candidates[i].HoldDown {
			candidates[i].HoldDown, candidates[i].Why = false, ""
			overruled = append(overruled, candidates[i].Member.LNN)
		}
	}
	return overruled
}

// trust notes which nodes in hold-down an operator's rebalance gives addresses to.
func (p *Proposal) trust(overruled []int) {
	for _, move := range p.Moves {
		if slices.Contains(overruled, move.To.LNN) && !slices.Contains(p.Trusted, move.To.LNN) {
			p.Trusted = append(p.Trusted, move.To.LNN)
		}
	}
	slices.Sort(p.Trusted)
}

// poolRequest is the question to placement: who are the candidates, and who has what. An address in motion counts as
// already there, so that a plan in progress is not planned again. Addresses of a silent node are left alone, and so are those
// that another record still gives to somebody, those that only an absent node can let go of, and those that wait with an unfit
// owner for others to return, unless an operator asked for a rebalance.
func poolRequest(w *World, site poolSite, d *desk, asked bool, now time.Time) (placement.Request, returning) {
	d.candidates, d.recorded, d.configured = w.candidates(site, d.candidates[:0], now), d.recorded[:0], 0
	request := placement.Request{
		Pool: site.id, Candidates: d.candidates, FailoverPolicy: site.pool.FailoverPolicy, Pins: site.pool.Pins, Now: now,
		Addresses: slices.Grow(d.addresses[:0], len(site.addresses)), Current: slices.Grow(d.current[:0], len(site.addresses)),
	}
	var members []cluster.Member // that keep what they have while they are away
	var back returning
	if site.static {
		members = site.members
	} else if !asked {
		back = w.returning(site, request.Candidates, now)
	}
	for _, address := range site.addresses {
		st, recorded := site.record[address]
		if recorded {
			d.configured++
		}
		if w.Silent(st.Owner) && !site.static || w.stuck(st, members) || back.kept[address] {
			continue
		}
		if st.State() == tenure.Unowned && w.ownedElsewhere(address, site.id, cluster.SubnetID{}) {
			continue
		}
		if w.Settling && st.State() == tenure.Unowned && !site.static {
			continue
		}
		current := placement.Statement{Address: address, Owner: w.effectiveOwner(st), Next: w.effectiveNext(st)}
		if back.spread[address] {
			current.Next = cluster.Member{} // that was chosen for another day
		}
		d.recorded = append(d.recorded, st)
		request.Addresses = append(request.Addresses, address)
		request.Current = append(request.Current, current)
	}
	d.addresses, d.current = request.Addresses, request.Current
	return request, back
}

// stuck reports whether an address is fixed to a node that is away and none of the members that may keep it.
func (w *World) stuck(st tenure.Statement, members []cluster.Member) bool {
	return st.Fixed && !w.node(st.Owner.LNN).Present && !w.removed(st.Owner.LNN) && !slices.Contains(members, st.Owner.Member())
}

// effectiveOwner is who owns or is about to own the address.
func (w *World) effectiveOwner(st tenure.Statement) cluster.Member {
	if !st.To.IsZero() && !w.Over(st.To) && w.node(st.To.LNN).Present && !w.Over(st.Owner) {
		return st.To.Member()
	}
	return st.Owner.Member()
}

// effectiveNext is the recorded successor, if its incarnation is still the one on record; when the owner is over, whoever takes or has
// taken the address.
func (w *World) effectiveNext(st tenure.Statement) cluster.Member {
	if heir := w.heir(st); !heir.IsZero() {
		return heir.Member()
	}
	if st.Next.IsZero() || w.Over(st.Next) {
		return cluster.Member{}
	}
	return st.Next.Member()
}

// desk is the memory on which one pool after the other is worked out. No proposal refers to it. The zero desk is ready.
type desk struct {
	candidates []placement.Candidate
	addresses  []netip.Addr
	current    []placement.Statement
	recorded   []tenure.Statement // those on the request's addresses, in their order
	configured int                // how many addresses the record has that are configured
	placement.Workspace
}

func (d *desk) allocate(site poolSite, request placement.Request) placement.Result {
	if site.static {
		return d.AllocateStatic(request)
	}
	return d.Allocate(request)
}

// apply turns what placement wants for one address into the step that tenure allows now.
func (p *Proposal) apply(w *World, want placement.Statement, recorded *tenure.Statement, why *reasons, now time.Time) {
	before := *recorded
	after := before
	switch claim := w.Claim(want.Owner); {
	case want.Owner.IsZero() || claim.IsZero():
		// Nobody fit: what is on record stays, and explains itself.
	case before.Owner.IsZero():
		after, _ = w.step(before, tenure.Change{Action: tenure.Assign, To: claim, Reason: why.of(want.Address), Now: now})
	case w.Free(before) || w.Over(before.Owner) && claim.LNN == before.Owner.LNN:
		after = p.failOver(w, before, claim, why.of(want.Address), now)
	case claim != before.Owner:
		after, _ = w.step(before, tenure.Change{Action: tenure.BeginMove, To: claim, Reason: why.of(want.Address), Now: now})
	case !before.To.IsZero() && (w.Over(before.To) || p.mayCancel(w, before, want.Address)):
		after, _ = w.step(before, tenure.Change{Action: tenure.Cancel, By: before.Owner, Reason: why.of(want.Address), Now: now})
	}
	if next := w.Claim(want.Next); next != after.Next && after.State() == tenure.Held && !w.Over(after.Owner) && (next != after.Owner || next.IsZero()) {
		after, _ = w.step(after, tenure.Change{Action: tenure.Name, To: next, Reason: after.Reason})
	}
	if after != before || p.static {
		p.set(w, want.Address, before, after, why.of(want.Address))
	}
}

// mayCancel reports whether this node may take back a move: only the owner, which has told nobody that it let go, and which decides
// and tells in one place. What an operator asks for is decided elsewhere.
func (p *Proposal) mayCancel(w *World, st tenure.Statement, address netip.Addr) bool {
	return !p.asked && st.Owner.LNN == w.Self && st.Owner.Incarnation == w.node(w.Self).Incarnation && !w.Given[address].Of(st)
}

// failOver is the step for an address whose owner is over. Whoever may have taken it already becomes the owner; a next that is not
// wanted is replaced first, and has to acknowledge that.
func (p *Proposal) failOver(w *World, before tenure.Statement, to tenure.Claim, reason string, now time.Time) tenure.Statement {
	change := tenure.Change{Action: tenure.FailOver, To: to, Reason: failoverReason(w, before, to, reason), Now: now}
	heir := w.heir(before)
	switch {
	case heir.IsZero() || heir == to:
	case !w.settled(before) && w.UnfitFor(p.Pool, heir.Member()) != "":
		return before // it is about to acknowledge
	case w.UnfitFor(p.Pool, heir.Member()) == "":
		change.To = heir // it takes, whoever would be better
		change.Reason = failoverReason(w, before, heir, "")
	default:
		change.Action, change.Reason = tenure.Name, before.Reason
	}
	if change.Action == tenure.FailOver {
		p.takenFrom(w, before.Owner)
	}
	after, _ := w.step(before, change)
	return after
}

// set puts a new statement into the record.
func (p *Proposal) set(w *World, address netip.Addr, before, after tenure.Statement, reason string) {
	if p.static && !after.Owner.IsZero() && !w.Over(after.Owner) {
		after.Fixed = true // from now on only the owner lets go
	}
	if after == before {
		return
	}
	p.change()[address] = after
	p.Changed = append(p.Changed, address)
	if from, to := before.Owner.Member(), finalOwner(after); from != to {
		p.Moves = append(p.Moves, placement.Move{Address: address, From: from, To: to, Reason: reason})
	}
}

// change is the record as it is to become: a copy of the one that is there, which nobody changes.
func (p *Proposal) change() tenure.Record {
	if len(p.Changed) == 0 {
		if p.Record = maps.Clone(p.Record); p.Record == nil {
			p.Record = tenure.Record{}
		}
	}
	return p.Record
}

func finalOwner(st tenure.Statement) cluster.Member {
	if !st.To.IsZero() {
		return st.To.Member()
	}
	return st.Owner.Member()
}

func failoverReason(w *World, before tenure.Statement, to tenure.Claim, reason string) string {
	how := "chosen by the failover policy"
	if before.Next == to {
		how = "its successor on record"
	}
	if before.Owner.LNN == to.LNN {
		return fmt.Sprintf("%s came back as incarnation %d before anyone took over", w.nodeName(to.LNN), to.Incarnation)
	}
	why := fmt.Sprintf("%s went down; %s is %s", w.nodeName(before.Owner.LNN), w.nodeName(to.LNN), how)
	if before.Next == to || reason == "" {
		return why
	}
	return why + " (" + reason + ")"
}

// takenFrom notes whose addresses are being taken over.
func (p *Proposal) takenFrom(w *World, owner tenure.Claim) {
	if !w.node(owner.LNN).Present && !slices.Contains(p.Dead, owner.LNN) {
		p.Dead = append(p.Dead, owner.LNN)
	}
}

// dropRetired removes statements of addresses that are no longer configured, once nobody can hold them.
func (p *Proposal) dropRetired(w *World, addresses []netip.Addr) {
	for _, address := range slices.SortedFunc(maps.Keys(p.Record), netip.Addr.Compare) {
		st := p.Record[address]
		if _, configured := slices.BinarySearchFunc(addresses, address, netip.Addr.Compare); configured {
			continue
		}
		switch heir := w.heir(st); {
		case st.Owner.IsZero() && !w.settled(st): // nobody is over as soon as anybody, but whoever was next may still act
		case st.Owner.IsZero(), w.Free(st) && heir.IsZero():
			if !st.Owner.IsZero() {
				p.takenFrom(w, st.Owner)
			}
			delete(p.change(), address)
			p.Changed = append(p.Changed, address)
		case w.Free(st): // it may have it, as long as it has not read that the address is no longer configured
			p.takenFrom(w, st.Owner)
			after, _ := w.step(st, tenure.Change{Action: tenure.FailOver, To: heir, Reason: "the address is no longer configured"})
			p.set(w, address, st, after, after.Reason)
		}
	}
}

// retirePool empties the record of a pool that is no longer configured.
func retirePool(w *World, id cluster.PoolID) (Proposal, time.Duration, bool) {
	p := Proposal{Pool: id, Record: w.Pools[id], Rank: -1}
	p.dropRetired(w, nil)
	if len(p.Changed) == 0 {
		return p, 0, false
	}
	p.finish(w)
	return p, 0, true
}

// finish sets this node's turn: a successor that gains an address goes first, the others by number, so that many nodes do
// not write at once.
func (p *Proposal) finish(w *World) {
	p.Rank = w.roll.turn(w.Self)
	for _, address := range p.Changed {
		st := p.Record[address]
		if st.Owner.LNN == w.Self && w.Pools[p.Pool][address].Owner != st.Owner {
			p.Rank = 0
		}
	}
	switch {
	case len(p.Moves) == 1:
		p.Why = p.Moves[0].Reason
	case len(p.Moves) > 1:
		p.Why = fmt.Sprintf("%d addresses: %s", len(p.Moves), p.Moves[0].Reason)
	default:
		p.Why = fmt.Sprintf("successors of %d addresses renewed", len(p.Changed))
	}
}

// reasons are those of one result, for who asks in the order of addresses, which is theirs.
type reasons struct {
	moves     []placement.Move
	decisions []placement.Decision
}

// of is why an address goes where it goes, or else why it stays; empty where nothing was decided about it. Those before it are not asked
// for any more.
func (r *reasons) of(address netip.Addr) string {
	for len(r.moves) > 0 && r.moves[0].Address.Less(address) {
		r.moves = r.moves[1:]
	}
	if len(r.moves) > 0 && r.moves[0].Address == address && r.moves[0].Reason != "" {
		return r.moves[0].Reason
	}
	if len(r.decisions) == 0 {
		return ""
	}
	subject := address.String()
	at := slices.IndexFunc(r.decisions, func(d placement.Decision) bool { return d.Subject == subject })
	if at < 0 {
		return ""
	}
	r.decisions = r.decisions[at:]
	return r.decisions[0].Reason
}

// Request is the question to placement for one pool as things stand: for plans and explanations.
func Request(w *World, id cluster.PoolID, now time.Time) placement.Request {
	w = w.ForReading()
	site, exists := w.poolSite(id)
	if !exists {
		return placement.Request{Pool: id, Now: now}
	}
	request, _ := poolRequest(w, site, &desk{}, false, now)
	return request
}
