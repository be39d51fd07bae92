package placement

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Explain says who holds an address of a dynamic pool, who is next, and why, in the words of the Decision that Allocate
// would give if it were to change. False if the address is not one of the request's.
func Explain(req Request, address netip.Addr) (Decision, bool) {
	t := newTable(req, nil)
	t.allocate()
	for i := range t.slots {
		if t.slots[i].address == address {
			return t.teller().decision(&t.slots[i]), true
		}
	}
	return Decision{}, false
}

// result reads the proposal off the table.
func (t *table) result() Result {
	result := Result{Statements: make([]Statement, len(t.slots)), Even: t.plainlyEven()}
	var tell *teller
	for i := range t.slots {
		s := &t.slots[i]
		statement := Statement{Address: s.address, Owner: t.member(s.owner), Next: t.member(s.next)}
		result.Statements[i] = statement
		if statement.Owner == s.recorded.Owner && statement.Next == s.recorded.Next {
			continue
		}
		if tell == nil {
			tell = t.teller()
		}
		result.Decisions = append(result.Decisions, tell.decision(s))
		if statement.Owner != s.recorded.Owner {
			result.Moves = append(result.Moves, Move{
				Address: s.address,
				From:    s.recorded.Owner,
				To:      statement.Owner,
				Reason:  tell.ownerReason(s),
			})
		}
	}
	for _, statement := range t.gone {
		if !statement.Owner.IsZero() {
			result.Moves = append(result.Moves, Move{
				Address: statement.Address,
				From:    statement.Owner,
				Reason:  "the address is no longer in the pool",
			})
		}
	}
	return result
}

func (t *table) member(seat int) cluster.Member {
	if seat == nobody {
		return cluster.Member{}
	}
	return t.seats[seat].Member
}

// teller puts a table's choices into words. What all Decisions share is made once.
type teller struct {
	t       *table
	names   []string // by seat
	among   []Considered
	leftOut []Excluded
	dataAge time.Duration
}

func (t *table) teller() *teller {
	tell := &teller{t: t, names: t.seatNames()}
	notes := t.seatNotes()
	tell.among = make([]Considered, 0, len(t.fit))
	for i := range t.seats {
		s := &t.seats[i]
		switch {
		case !s.Fit:
			tell.leftOut = append(tell.leftOut, Excluded{Name: tell.names[i], Reason: t.whyUnfit(i)})
			continue
		case s.HoldDown && len(t.open) < len(t.fit):
			tell.leftOut = append(tell.leftOut, Excluded{Name: tell.names[i], Reason: "in hold-down: " + t.whyUnfit(i)})
		}
		considered := Considered{Name: tell.names[i], Weight: int(s.weight), Note: notes[i]}
		if t.byLoad {
			considered.Score = s.use
		} else {
			considered.Score = float64(s.before) / s.weight
		}
		if s.known {
			tell.dataAge = max(tell.dataAge, s.Load.Age)
		}
		tell.among = append(tell.among, considered)
	}
	return tell
}

// seatNames writes the members as operators do. All share one string, as there may be thousands in a plan.
func (t *table) seatNames() []string {
	return shareString(len(t.seats), func(text []byte, i int) []byte {
		text = strconv.AppendInt(text, int64(t.seats[i].Member.LNN), 10)
		return append(append(text, ':'), t.seats[i].Member.Interface...)
	})
}

// seatNotes says what the score of each seat stands for.
func (t *table) seatNotes() []string {
	return shareString(len(t.seats), func(text []byte, i int) []byte {
		s := &t.seats[i]
		if !s.Fit {
			return text
		}
		if s.Node != "" {
			text = append(append(text, s.Node...), ", "...)
		}
		text = append(text, "held "...)
		text = strconv.AppendInt(text, int64(s.before), 10)
		switch {
		case measureOf(t.req.FailoverPolicy) == byNumber || s.known:
		case !t.byLoad:
			text = append(text, "; no load to go by"...)
		case s.Load.Known:
			text = append(text, "; its load is stale and counts as the mean of the others"...)
		default:
			text = append(text, "; its load is not known and counts as the mean of the others"...)
		}
		return text
	})
}

// sharedLength is about how long the names and notes of members are.
const sharedLength = 24

// shareString makes count strings with one allocation of text.
func shareString(count int, write func(text []byte, i int) []byte) []string {
	text := make([]byte, 0, count*sharedLength)
	ends := make([]int, count)
	for i := range count {
		text = write(text, i)
		ends[i] = len(text)
	}
	all, from := string(text), 0
	parts := make([]string, count)
	for i, end := range ends {
		parts[i] = all[from:end]
		from = end
	}
	return parts
}

// decision is the record of one slot's choice.
func (tell *teller) decision(s *slot) Decision {
	d := Decision{
		Subject: s.address.String(),
		Reason:  tell.ownerReason(s) + "; " + tell.nextReason(s),
		Among:   tell.among,
		LeftOut: tell.leftOut,
		DataAge: tell.dataAge,
		At:      tell.t.req.Now,
	}
	if s.owner != nobody {
		d.Chosen = tell.names[s.owner]
	}
	return d
}

// ownerReason says why a slot has its owner.
func (tell *teller) ownerReason(s *slot) string {
	return tell.choiceReason(s) + tell.pinReason(s)
}

func (tell *teller) choiceReason(s *slot) string {
	if s.why == causeNone {
		if s.owner == nobody {
			return "no member is fit to hold it"
		}
		return "no member is fit; the record stays with " + tell.names[s.owner]
	}
	name := tell.names[s.owner]
	switch s.why {
	case causeStays:
		return name + " holds it and is fit"
	case causePinned:
		return "pinned to " + name
	case causeNext:
		return tell.unfit(s.recorded.Owner) + ", " + name + " was its next"
	case causeOrphan:
		reason := tell.unfit(s.recorded.Owner)
		if !s.recorded.Next.IsZero() {
			reason += ", its next " + tell.unfit(s.recorded.Next)
		}
		if tell.t.byLoad && !tell.t.req.Rebalance {
			return reason + "; " + name + " has the least load"
		}
		return reason + "; " + name + " keeps the spread even"
	case causeNew:
		return "nobody held it; " + name + " keeps the spread even"
	}
	return "moved from " + tell.name(s.recorded.Owner) + " to " + name + " to even out the spread"
}

// pinReason says why a pinned address is not where it is pinned to.
func (tell *teller) pinReason(s *slot) string {
	if s.pin.IsZero() || s.why == causePinned {
		return ""
	}
	pin := tell.t.seatOf(s.pin)
	if pin != nobody && pin == s.owner {
		return ""
	}
	if pin != nobody && tell.t.seats[pin].Fit {
		return "; pinned to " + tell.names[pin] + ", which is in hold-down (" + tell.t.whyUnfit(pin) +
			"): the address returns when that is over"
	}
	if pin == nobody {
		return "; pinned to " + s.pin.String() + ", which is no member of the pool"
	}
	return "; pinned to " + tell.names[pin] + ", which is not fit (" + tell.t.whyUnfit(pin) + "): the address returns when it is"
}

// nextReason says who is next and why.
func (tell *teller) nextReason(s *slot) string {
	if s.next == nobody {
		return "nobody can be next"
	}
	t, name := tell.t, tell.names[s.next]
	switch {
	case s.why == causeNone:
		return "next stays " + name
	case t.seats[s.next].node == t.seats[s.owner].node:
		return "next is " + name + ", as no other node is fit"
	case t.byLoad && s.next == s.recNext:
		return "next stays " + name + ", as no other has so much less load"
	case t.byLoad:
		return "next is " + name + ", which has the least load"
	case s.next == s.recNext:
		return "next stays " + name
	}
	return "next is " + name + ", so that the death of node " + strconv.Itoa(t.seats[s.owner].Member.LNN) +
		" leaves the spread even"
}

// name writes a member that may not be a candidate.
func (tell *teller) name(member cluster.Member) string {
	if i := tell.t.seatOf(member); i != nobody {
		return tell.names[i]
	}
	return member.String()
}

// unfit says why a member cannot hold an address.
func (tell *teller) unfit(member cluster.Member) string {
	i := tell.t.seatOf(member)
	switch {
	case i == nobody:
		return member.String() + " is no longer a member"
	case tell.t.seats[i].Fit:
		return tell.names[i] + " is fit" // only reached for a next that is the owner itself
	}
	return tell.names[i] + " is not fit (" + tell.t.whyUnfit(i) + ")"
}
