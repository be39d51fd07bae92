package tenure

import (
	"slices"
	"time"
)

// Right is a node's own right as it stands, for people: what Standing says of it comes from these.
type Right struct {
	Incarnation Incarnation
	Timing      Timing    // in effect
	Observers   Observers // as they count now
	Recorded    uint64    // the version of the observers that is known to be on record
	Leases      []Lease   // of the observers that count or are about to, by LNN
}

// Lease is what one observer has acknowledged.
type Lease struct {
	Observer     int
	Until        time.Time              // when it ends; zero: there is none
	Recorded     uint64                 // the version of the set that the observer says it has recorded
	Acknowledged [MaxNetworks]time.Time // when its last acknowledgement came, by network; zero: never
}

// Last is when the observer's last acknowledgement came over any network; zero: never.
func (l Lease) Last() time.Time { return latest(l.Acknowledged) }

// Watched is what a node knows of another as its observer.
type Watched struct {
	LNN         int
	Incarnation Incarnation // the latest that was heard or is on record
	Over        Incarnation // every one up to this is over
	Observed    bool        // this node is on record as an observer of it
	Heard       [MaxNetworks]time.Time
	Quiet       time.Time   // when it counts as silent unless it is heard before; zero: it is not waited for
	Promise     time.Time   // until when it is not acknowledged; zero: nothing was promised
	Confirmed   Incarnation // the last that this node has confirmed to have stopped; zero: none
	Declared    time.Time   // when this node began to ask the others about it; zero: it does not ask
	Words       []Word      // what the others have said, while it asks
}

// Last is when the node was last heard over any network; zero: never.
func (w Watched) Last() time.Time { return latest(w.Heard) }

// Word is what one observer has said to a question.
type Word struct {
	Observer  int
	Asked     time.Time // when the last question went; zero: none has gone
	Confirmed time.Time // when the question went that it has confirmed; zero: it has not
	Came      time.Time // when that confirmation came
	Denied    Denied    // what it said last instead; zero: nothing
}

// Right shows this node's own right. It shares nothing with the peer.
func (p *Peer) Right() Right {
	r := &p.right
	shown := Right{Incarnation: r.incarnation, Timing: r.timing, Observers: r.set.clone(), Recorded: r.recorded}
	for _, lnn := range r.asked {
		l := r.leases[lnn]
		shown.Leases = append(shown.Leases, Lease{Observer: lnn, Until: l.until, Recorded: l.recorded, Acknowledged: l.heard})
	}
	return shown
}

// Watched shows what this node knows of the others, by LNN. It shares nothing with the peer.
func (p *Peer) Watched() []Watched {
	shown := make([]Watched, 0, len(p.order))
	for _, w := range p.order {
		one := Watched{LNN: w.lnn, Incarnation: w.incarnation, Over: w.over, Observed: w.mine, Heard: w.heardOn, Quiet: w.quiet, Promise: w.promise,
			Confirmed: w.confirmed, Declared: w.declared, Words: w.inquiry.words()}
		shown = append(shown, one)
	}
	return shown
}

// words is what the others have said so far.
func (q *inquiry) words() []Word {
	var words []Word
	for _, a := range q.asked {
		words = append(words, Word{Observer: a.observer, Asked: a.sent, Confirmed: a.counts, Came: a.came, Denied: a.said})
	}
	return words
}

func latest(times [MaxNetworks]time.Time) time.Time {
	return slices.MaxFunc(times[:], time.Time.Compare)
}
