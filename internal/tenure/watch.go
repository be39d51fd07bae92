package tenure

import (
	"time"
)

// watch is what one node knows of another as its observer.
type watch struct {
	lnn         int
	incarnation Incarnation // the latest that was heard or is on record
	over        Incarnation // every one up to this is over
	span        time.Duration
	interval    time.Duration
	quiet       time.Time // when its count runs out; zero: it was never heard, nor is it on record
	heard       time.Time // the last heartbeat that counted
	heardOn     [MaxNetworks]time.Time
	promise     time.Time   // until when it is not acknowledged
	confirmed   Incarnation // the last that this node has confirmed, and remembers
	answering   time.Time   // when the first marked heartbeat of its present lapse came; zero: none has come
	rumoured    Incarnation // others say that this one is over, and it has not been heard of here

	record   Recorded  // what is on record about its observers
	mine     bool      // this node is one of them
	dead     bool      // an operator declared it dead, and no later incarnation has been heard
	sounded  time.Time // when any heartbeat of it came last, also one that did not count
	declared time.Time
	hintDue  time.Time
	inquiry  inquiry

	notices   int // how often the others are still told that it is down
	noticeDue time.Time
}

// begin is a later incarnation: what was promised about the one before is void, and that one is over. So is the new one, if just
// that was said before.
func (w *watch) begin(incarnation Incarnation) {
	gone := max(w.over, incarnation-1)
	if w.rumoured == incarnation {
		gone = incarnation
	}
	*w = watch{lnn: w.lnn, incarnation: incarnation, over: gone, record: w.record, mine: w.mine, notices: w.notices, noticeDue: w.noticeDue,
		span: w.span, interval: w.interval, rumoured: w.rumoured, sounded: w.sounded}
}

// hear takes in a heartbeat that counts. The count never ends before one that was given earlier ("last-span").
func (w *watch) hear(m *Message, network int, arrived time.Time) {
	w.span, w.interval = m.Span, m.Interval
	w.heard = later(w.heard, arrived)
	w.quiet = later(w.quiet, promised(arrived, m.Span))
	if network >= 0 && network < MaxNetworks {
		w.heardOn[network] = later(w.heardOn[network], arrived)
	}
	w.declared, w.hintDue, w.inquiry = time.Time{}, time.Time{}, inquiry{}
}

// answers reports whether a marked heartbeat is answered: only by an observer that has watched this incarnation in the life that
// the heartbeat names ("heard-again"), has never confirmed it, and only for one span in each lapse ("deaf").
func (w *watch) answers(m *Message, life uint64, arrived time.Time) bool {
	if m.Life == 0 || m.Life != life || w.confirmed >= m.Incarnation {
		return false
	}
	if w.answering.IsZero() {
		w.answering = arrived
	}
	return arrived.Before(promised(w.answering, m.Span))
}

// silent reports whether this node has heard nothing of an incarnation for its span, and it is on record, so that it matters.
func (w *watch) silent(now time.Time) bool {
	return w.mine && w.incarnation > w.over && w.record.Incarnation == w.incarnation && !w.quiet.IsZero() && !now.Before(w.quiet)
}

// timing is what is known of the node's heartbeats, at worst this node's own.
func (w *watch) timing(own Timing) (span, interval time.Duration) {
	if w.interval == 0 {
		return max(own.Span(), w.record.Span), own.Interval
	}
	return max(w.span, w.record.Span), w.interval
}

// finding is the news that incarnations up to one are over, with what this node knows of how it came to that.
func (w *watch) finding(gone Incarnation, by int, how string) Finding {
	return Finding{LNN: w.lnn, Over: gone, How: how, By: by, Heard: w.heard, Declared: w.declared, Asked: w.inquiry.first, Words: w.inquiry.words()}
}

// asked is one observer whose word an inquiry wants.
type asked struct {
	observer int
	number   uint64    // of the last question to it
	sent     time.Time // when that went
	counts   time.Time // when the question went that it has confirmed; zero: it has not
	came     time.Time // when that confirmation came
	due      time.Time // when to ask again
	tries    int
	said     Denied
}

// inquiry is a node's search for the word of another's observers.
type inquiry struct {
	asked []asked
	first time.Time // when the first question went; zero: none has
}

// open is the inquiry as it begins: nobody has been asked.
func openInquiry(self int, o Observers, now time.Time) inquiry {
	q := inquiry{}
	add := func(set []int) {
		for _, lnn := range set {
			if lnn == self || lnn == Ground || q.of(lnn) != nil {
				continue
			}
			q.asked = append(q.asked, asked{observer: lnn, due: now})
		}
	}
	add(o.Current)
	if o.Changing {
		add(o.Previous)
	}
	return q
}

func (q *inquiry) of(lnn int) *asked {
	for i := range q.asked {
		if q.asked[i].observer == lnn {
			return &q.asked[i]
		}
	}
	return nil
}

// due is when the next question goes.
func (q *inquiry) due() time.Time {
	var next time.Time
	for i := range q.asked {
		next = sooner(next, q.asked[i].due)
	}
	return next
}

// down reports whether a majority of each set that counts has confirmed, by words that all still count: each was given to a
// question that is younger than the window, and the promise behind it lasts longer ("short-promise"). This node's own word is
// given now; so is the ground's, if vouched says that there is one.
func (q *inquiry) down(self int, o Observers, vouched bool, window time.Duration, now time.Time) bool {
	majority := func(set []int) bool {
		words := 0
		for _, lnn := range set {
			if lnn == self || lnn == Ground && vouched {
				words++
			} else if a := q.of(lnn); a != nil && !a.counts.IsZero() && now.Before(a.counts.Add(window)) {
				words++
			}
		}
		return words >= Majority(len(set))
	}
	// A change from no observers at all asks nobody but the new ones: the node needs enough of them, whatever the old set says.
	return majority(o.Current) && (!o.Changing || len(o.Previous) == 0 || majority(o.Previous))
}
