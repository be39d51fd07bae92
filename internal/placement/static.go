package placement

import (
	"cmp"
	"strconv"
)

// AllocateStatic proposes the owners of a static pool: one address for each member interface, the lowest address to the
// lowest member. An address never moves while its owner is a member, fit or not; addresses beyond the number of members
// have no owner, members beyond the number of addresses have none, and the Decision of the first unowned address or the
// last owned one says so. Nobody is ever next.
//
// Of a member that holds several on record, as after a change from dynamic, only the lowest stays. An address that
// nobody holds and that is pinned goes to its pin or to nobody.
func AllocateStatic(req Request) Result {
	var w Workspace
	return w.AllocateStatic(req)
}

// AllocateStatic is the function of that name.
func (w *Workspace) AllocateStatic(req Request) Result {
	req.FailoverPolicy = ""
	t := &w.table
	t.lay(req, nil)
	for i := range t.slots {
		s := &t.slots[i]
		if owner := t.seatOf(s.recorded.Owner); owner != nobody && t.seats[owner].held == 0 {
			t.give(s, owner, causeStays)
		}
	}
	for i := range t.slots {
		s := &t.slots[i]
		if pin := t.seatOf(s.pin); s.owner == nobody && pin != nobody && t.seats[pin].held == 0 {
			t.give(s, pin, causePinned)
		}
	}
	at := 0
	for i := range t.slots {
		s := &t.slots[i]
		for at < len(t.seats) && t.seats[at].held > 0 {
			at++
		}
		if at == len(t.seats) {
			break
		}
		if s.owner == nobody && s.pin.IsZero() {
			t.give(s, at, causeNew)
		}
	}
	return t.staticResult()
}

func (t *table) staticResult() Result {
	result := Result{Statements: make([]Statement, len(t.slots))}
	tell := t.staticTeller()
	for i := range t.slots {
		s := &t.slots[i]
		statement := Statement{Address: s.address, Owner: t.member(s.owner)}
		result.Statements[i] = statement
		if statement.Owner == s.recorded.Owner && s.recorded.Next.IsZero() {
			continue
		}
		d := Decision{
			Subject: s.address.String(),
			Reason:  tell.staticReason(s),
			Among:   tell.among,
			LeftOut: tell.leftOut,
			At:      t.req.Now,
		}
		if s.owner != nobody {
			d.Chosen = tell.names[s.owner]
		}
		result.Decisions = append(result.Decisions, d)
		if statement.Owner != s.recorded.Owner {
			result.Moves = append(result.Moves, Move{
				Address: s.address, From: s.recorded.Owner, To: statement.Owner, Reason: d.Reason,
			})
		}
	}
	for _, statement := range t.gone {
		if !statement.Owner.IsZero() {
			result.Moves = append(result.Moves, Move{
				Address: statement.Address, From: statement.Owner, Reason: "the address is no longer in the pool",
			})
		}
	}
	return result
}

// staticTeller is a teller for whom every member counts, fit or not, and who names the members that get no address.
func (t *table) staticTeller() *teller {
	tell := &teller{t: t, names: t.seatNames()}
	for i := range t.seats {
		s := &t.seats[i]
		if s.held == 0 {
			tell.leftOut = append(tell.leftOut, Excluded{
				Name:   tell.names[i],
				Reason: "the pool has no address left for it: " + strconv.Itoa(len(t.slots)) + " for " + strconv.Itoa(len(t.seats)) + " members",
			})
			continue
		}
		tell.among = append(tell.among, Considered{
			Name: tell.names[i], Weight: int(s.weight), Score: float64(s.before), Note: cmp.Or(s.Node, tell.names[i]) + ", held " + strconv.Itoa(s.before),
		})
	}
	return tell
}

func (tell *teller) staticReason(s *slot) string {
	switch {
	case s.owner != nobody && s.why == causeStays:
		return tell.names[s.owner] + " holds it, and a static address never moves"
	case s.owner != nobody && s.why == causePinned:
		return "pinned to " + tell.names[s.owner]
	case s.owner != nobody:
		return tell.names[s.owner] + " is the lowest member without an address"
	case !s.pin.IsZero():
		return "pinned to " + tell.name(s.pin) + ", which has another address or is no member; nobody else may hold it"
	case tell.t.seatOf(s.recorded.Owner) != nobody:
		return tell.name(s.recorded.Owner) + " holds a lower address, and every member has one"
	case len(tell.t.seats) == 0:
		return "the pool has no member"
	}
	return "every member has an address"
}
