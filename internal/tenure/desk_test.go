package tenure

import (
	"slices"
	"testing"
	"time"
)

// desk is one peer, node 1, with a test in the place of all others. Times are milliseconds since its start. Its heartbeats go every
// 100 ms, three of them to a span: an acknowledgement counts for 269.7 ms from the sending, and binds an observer for 300.3 ms.
type desk struct {
	t       testing.TB
	peer    *Peer
	now     time.Time
	out     Outbox
	said    []Outgoing // all but heartbeats
	beats   []Outgoing // heartbeats
	found   []Finding
	friends []int   // who acknowledges this node's heartbeats at once
	lives   uint64  // what a friend's life is, plus its number
	version uint64  // of this node's set, as the friends have recorded it
	rival   Message // the heartbeat that node 4 sends every 100 ms, if it names one
}

var usual = Timing{Interval: 100 * time.Millisecond, Multiplier: 3}

// newDesk is a peer that has just started, in a cluster of so many nodes.
func newDesk(t testing.TB, nodes int) *desk {
	d := &desk{t: t, now: epoch, lives: 100, version: 1}
	d.peer = NewPeer(1, 11, usual, d.now)
	all := voices(nodes)
	if nodes > 3 {
		all = all[1:] // without the node itself, all others are its observers, also where that is an odd number
	}
	d.step(&Configured{Timing: usual, Voices: all})
	return d
}

func voices(nodes int) []Voice {
	var all []Voice
	for lnn := 1; lnn <= nodes; lnn++ {
		all = append(all, Voice{LNN: lnn})
	}
	return all
}

// newHolder is a peer that has its right under incarnation 7 by the acknowledgement of all others at 0.
func newHolder(t testing.TB, nodes int) *desk {
	d := newDesk(t, nodes)
	for lnn := 2; lnn <= nodes; lnn++ {
		d.friends = append(d.friends, lnn)
	}
	d.step(&Entered{Incarnation: 7})
	d.due()
	d.wants(true)
	d.published()
	return d
}

// newObserver is a holder among four that has heard node 4, incarnation 5, from 1000 on, and has it on record that it observes it, too.
func newObserver(t testing.TB) *desk {
	d := newHolder(t, 4)
	d.record4(1, false, []int{1, 2, 3}, nil)
	d.run(1000)
	d.rival = Message{Kind: Heartbeat, Subject: 4, Incarnation: 5, Number: 1, Span: usual.Span(), Interval: usual.Interval}
	d.run(1500)
	return d
}

func (d *desk) record4(version uint64, changing bool, current, previous []int) {
	d.step(&Recorded{LNN: 4, Incarnation: 5, Span: usual.Span(), Observers: Observers{Version: version, Current: current, Previous: previous, Changing: changing}})
}

func (d *desk) step(e Event) Standing {
	standing := d.peer.Step(e, d.now, &d.out)
	for _, o := range d.out.Messages {
		if o.Message.Kind == Heartbeat {
			d.beats = append(d.beats, o)
		} else {
			d.said = append(d.said, o)
		}
	}
	d.found = append(d.found, d.out.Findings...)
	d.out.Reset()
	return standing
}

// due ends a batch, and has the friends acknowledge the heartbeats that went out.
func (d *desk) due() {
	d.step(&Due{})
	beats := d.beats
	d.beats = nil
	for _, o := range beats {
		if slices.Contains(d.friends, o.To) {
			d.acknowledge(o.To, o.Message)
		}
	}
}

// acknowledge is what an observer says to a heartbeat of this node.
func (d *desk) acknowledge(from int, beat Message) {
	d.hears(from, Message{Kind: Acknowledgement, Lapsed: beat.Lapsed, Subject: 1, Incarnation: beat.Incarnation, Number: beat.Number,
		Life: d.lives + uint64(from), Version: d.version})
}

// hears passes in a message that arrives now.
func (d *desk) hears(from int, m Message) {
	d.step(&Received{Message: &m, From: from, Arrived: d.now})
}

// published says that what should be on record about this node is there.
func (d *desk) published() {
	incarnation, _ := d.peer.Incarnation()
	o, span := d.peer.OnRecord()
	d.step(&Published{Incarnation: incarnation, Version: o.Version, Span: span})
}

// run lets time pass until so many milliseconds after the start.
func (d *desk) run(until int) {
	for d.now.Before(after(until)) {
		d.now = d.now.Add(10 * time.Millisecond)
		if d.rival.Subject != 0 && d.now.Sub(epoch)%usual.Interval == 0 {
			d.hears(d.rival.Subject, d.rival)
			d.rival.Number++
		}
		d.due()
	}
}

func after(milliseconds int) time.Time {
	return epoch.Add(time.Duration(milliseconds) * time.Millisecond)
}

// ask has node 2 ask for this node's word about node 4, incarnation 5, and returns the answer.
func (d *desk) ask(version uint64) Message {
	d.said = nil
	d.hears(2, Message{Kind: Question, Subject: 4, Incarnation: 5, Number: 77, Interval: usual.Interval, Version: version})
	d.due()
	for _, o := range d.said {
		if o.To == 2 && o.Message.Number == 77 {
			return o.Message
		}
	}
	d.t.Fatal("the question got no answer")
	return Message{}
}

// acknowledged reports whether this node acknowledges a heartbeat of node 4 that comes now.
func (d *desk) acknowledged(beat Message) bool {
	d.said = nil
	d.hears(4, beat)
	d.due()
	return slices.ContainsFunc(d.said, func(o Outgoing) bool { return o.To == 4 && o.Message.Kind == Acknowledgement })
}

func (d *desk) wants(mayHold bool) {
	d.t.Helper()
	if s := d.peer.Standing(d.now); s.MayHold != mayHold {
		d.t.Fatalf("after %s the node may hold: %t (%s), wanted %t", d.now.Sub(epoch), s.MayHold, s.Reason, mayHold)
	}
}

func (d *desk) wantsAnswer(got Message, kind Kind, reason Denied) {
	d.t.Helper()
	if got.Kind != kind || got.Reason != reason {
		d.t.Fatalf("after %s the answer is a %s (%s), wanted a %s (%s)", d.now.Sub(epoch), got.Kind, got.Reason, kind, reason)
	}
}

func (d *desk) wantsAcknowledged(beat Message, wanted bool) {
	d.t.Helper()
	if got := d.acknowledged(beat); got != wanted {
		d.t.Fatalf("after %s the heartbeat is acknowledged: %t, wanted %t", d.now.Sub(epoch), got, wanted)
	}
}
