package tenure

import (
	"slices"
	"testing"
	"time"
)

// TestRules has one small history for each rule, by the name that the run of docs/model has in which that rule is broken.
func TestRules(t *testing.T) {
	for name, play := range map[string]func(t *testing.T){
		"receipt": receipt, "no-margin": noMargin, "revive": revive, "unleased": unleased, "carry-lapse": carryLapse, "one-set": oneSet,
		"no-span": noSpan, "without-node": withoutNode, "without-majority": withoutMajority,
		"short-promise": shortPromise, "restart-acknowledges": restartAcknowledges, "restart-declares": restartDeclares,
		"heard-again": heardAgain, "mark-heard": markHeard, "deaf": deaf, "moved-confirms": movedConfirms, "forgets-view": forgetsView,
		"last-span": lastSpan, "hiccup": hiccup,
	} {
		t.Run(name, play)
	}
}

// A lease counts from when the heartbeat was sent, however late the acknowledgement comes.
func receipt(t *testing.T) {
	d := newDesk(t, 2)
	d.peer.self = 2 // whose one observer is node 1
	d.step(&Configured{Timing: usual, Voices: voices(2)})
	d.step(&Entered{Incarnation: 7})
	d.due()
	d.now = after(200)
	d.hears(1, Message{Kind: Acknowledgement, Subject: 2, Incarnation: 7, Number: 1, Life: 5})
	d.wants(true)
	d.now = after(300)
	d.wants(false)
}

// What the holder counts is shorter by the margin and by what clocks may drift.
func noMargin(t *testing.T) {
	d := newHolder(t, 3)
	d.friends = nil
	d.now = after(269)
	d.wants(true)
	d.now = after(270)
	d.wants(false)
}

// An acknowledgement extends only a right that was there when it arrived; afterwards only answers to marked heartbeats count, and only to
// those of this lapse.
func revive(t *testing.T) {
	d := newHolder(t, 3)
	d.friends = nil
	d.now = after(100)
	d.step(&Due{})
	second := d.beats[0].Message
	d.beats = nil
	d.now = after(290)
	d.acknowledge(2, second) // it would count until 369.7
	d.wants(false)
	d.due()
	if s := d.peer.Standing(d.now); !s.Lapsed {
		t.Fatalf("the node has not lapsed: %s", s.Reason)
	}
	d.now = after(400)
	d.step(&Due{})
	marked := d.beats[0].Message
	if !marked.Lapsed {
		t.Fatal("the heartbeat of a lapsed node is not marked")
	}
	d.acknowledge(2, marked)
	d.wants(true)
	d.friends, d.beats = nil, nil
	d.run(900) // lapsed again
	d.acknowledge(2, marked)
	d.wants(false)
}

// An incarnation has no name that a record could bear until it has had enough leases.
func unleased(t *testing.T) {
	d := newDesk(t, 3)
	d.step(&Entered{Incarnation: 7})
	d.run(500)
	if _, begun := d.peer.Incarnation(); begun {
		t.Fatal("the incarnation has begun without leases")
	}
	d.friends = []int{3}
	d.run(700)
	if _, begun := d.peer.Incarnation(); !begun {
		t.Fatal("the incarnation has not begun with enough leases")
	}
}

// newChanger is a holder of observers 2, 3, 4 that has begun to change to 2, 3, 5: node 4 is over, and node 5 is new. Nothing about it is
// on record yet.
func newChanger(t *testing.T) *desk {
	d := newHolder(t, 4)
	d.run(1000)
	d.step(&Configured{Timing: usual, Voices: append(voices(3)[1:], Voice{LNN: 5})})
	d.friends = []int{2, 3, 4, 5}
	d.run(1300)
	if o, _ := d.peer.OnRecord(); !o.Changing || o.Version != 2 {
		t.Fatalf("no change is under way: %v", o)
	}
	return d
}

func (d *desk) wantsChanging(changing bool) {
	d.t.Helper()
	if o, _ := d.peer.OnRecord(); o.Changing != changing {
		d.t.Fatalf("after %s what is to be on record is %v, wanted changing: %t", d.now.Sub(epoch), o, changing)
	}
}

// A node passes from both sets to the new one only while it has its right under both, even if nobody has noticed yet that it has not.
func carryLapse(t *testing.T) {
	for name, noticed := range map[string]bool{"noticed": true, "not noticed": false} {
		t.Run(name, func(t *testing.T) {
			d := newChanger(t)
			d.published()
			d.version = 2
			d.run(2200)
			d.wantsChanging(false)  // that is to be on record, and is not yet
			d.friends = []int{5, 3} // enough of the new set, not of 2, 3, 4
			d.run(2460)
			d.wants(true)
			d.now = after(2480)
			if noticed {
				d.step(&Due{})
			}
			d.published()
			d.wants(false)
			d.run(2800)
			d.wants(false)
			d.friends = []int{5, 2, 3}
			d.run(2900)
			d.wants(true)
		})
	}
}

// While the set changes a node needs enough of each.
func oneSet(t *testing.T) {
	d := newHolder(t, 3)
	d.step(&Configured{Timing: usual, Voices: []Voice{{LNN: 1}, {LNN: 2}, {LNN: 4}, {LNN: 5}, {LNN: 6}}})
	d.friends = []int{2, 3, 4, 5, 6}
	d.run(500)
	d.wantsChanging(true)
	d.friends = []int{3} // enough of 2, 3, not of 2, 4, 5, 6
	d.run(1000)
	d.wants(false)
	d.friends = []int{2, 4, 5} // enough of each
	d.run(1200)
	d.wants(true)
	d.friends = []int{4, 5, 6} // enough of 2, 4, 5, 6, not of 2, 3
	d.run(1700)
	d.wants(false)
}

// A change ends one span after it was recorded, and never sooner than a question of before could still count.
func noSpan(t *testing.T) {
	d := newChanger(t)
	d.published()
	d.version = 2
	d.run(1400) // here a heartbeat brings the word that all have recorded it
	d.run(1700)
	d.wantsChanging(true)
	d.run(2000)
	d.wantsChanging(false)
	t.Run("with a short span", func(t *testing.T) {
		d := newChanger(t)
		d.published()
		d.step(&Configured{Timing: Timing{Interval: 10 * time.Millisecond, Multiplier: 3}, Voices: append(voices(3)[1:], Voice{LNN: 5})})
		d.version = 2
		d.run(1400 + int(maxWindow.Milliseconds()))
		d.wantsChanging(true)
	})
}

// A change does not end before the node itself has recorded it.
func withoutNode(t *testing.T) {
	d := newChanger(t)
	d.version = 2
	d.run(3000)
	d.wantsChanging(true)
	d.published()
	d.run(3600)
	d.wantsChanging(false)
}

// A change does not end before so many of the old set have recorded it that the others are no majority.
func withoutMajority(t *testing.T) {
	d := newChanger(t)
	d.published()
	d.run(3000)
	d.wantsChanging(true)
	d.friends, d.version = []int{2, 5}, 2
	d.run(3100)
	d.friends, d.version = []int{2, 3, 4, 5}, 1
	d.run(4000)
	d.wantsChanging(true) // node 2 of 2, 3, 4
	d.version = 2
	d.run(4700)
	d.wantsChanging(false)
}

// Whoever has confirmed does not acknowledge until its promise is over, and that lasts longer than the word counts.
func shortPromise(t *testing.T) {
	d := newObserver(t)
	beat := d.rival
	d.rival = Message{}
	d.run(1900)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
	d.run(1900 + 100)
	d.wantsAcknowledged(beat, false)
	d.run(1900 + 300 + 200)
	d.wantsAcknowledged(beat, false)
	d.run(1900 + 300 + 200 + 10)
	d.wantsAcknowledged(beat, true)
	t.Run("to an asker that counts longer", func(t *testing.T) {
		d := newObserver(t)
		beat := d.rival
		beat.Span, beat.Interval = 30*time.Millisecond, 10*time.Millisecond
		d.hears(4, beat)
		d.rival = Message{}
		d.step(&Recorded{LNN: 4, Incarnation: 5, Span: 30 * time.Millisecond, Observers: Observers{Version: 1, Current: []int{1, 2, 3}}})
		d.run(1900)
		d.wantsAnswer(d.ask(1), Confirmation, 0) // the asker counts it for 100 ms
		d.run(2000)
		d.wantsAcknowledged(beat, false)
	})
}

// Whoever starts does not acknowledge until it has listened: it may have confirmed before.
func restartAcknowledges(t *testing.T) {
	beat := Message{Kind: Heartbeat, Subject: 4, Incarnation: 5, Number: 1, Span: usual.Span(), Interval: usual.Interval}
	long, short := beat, beat
	long.Span, long.Interval = time.Second, 300*time.Millisecond
	short.Span, short.Interval = 30*time.Millisecond, 10*time.Millisecond
	for _, c := range []struct {
		name  string
		own   Timing
		beat  Message
		until int
	}{
		{"", usual, beat, 400},
		{"a node of a longer span than its own", usual, long, 1300},
		{"a short span, of an asker that counts longer", Timing{Interval: 10 * time.Millisecond, Multiplier: 3}, short, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			started := func() *desk {
				d := newDesk(t, 4)
				d.peer = NewPeer(1, 11, c.own, d.now)
				d.step(&Configured{Timing: c.own, Voices: voices(4)})
				return d
			}
			for at := 0; at <= c.until; at += 50 {
				d := started()
				d.run(at)
				d.wantsAcknowledged(c.beat, false)
			}
			d := started()
			d.run(c.until + 150)
			d.wantsAcknowledged(c.beat, true)
		})
	}
}

// Whoever starts confirms nothing until it has listened: it may have acknowledged before.
func restartDeclares(t *testing.T) {
	d := newHolder(t, 4)
	d.record4(1, false, []int{1, 2, 3}, nil)
	d.run(390)
	d.wantsAnswer(d.ask(1), Denial, DeniedListening)
	d.run(410)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
	t.Run("what it reads of later", func(t *testing.T) {
		d := newHolder(t, 4)
		d.run(600)
		d.record4(1, false, []int{1, 2, 3}, nil)
		d.wantsAnswer(d.ask(1), Denial, DeniedHeard) // it has a span and an interval from the reading
		d.run(1010)
		d.wantsAnswer(d.ask(1), Confirmation, 0)
	})
}

// To have heard a node is not to have watched it: whoever restarted answers no marked heartbeat that names an earlier life, or none.
func heardAgain(t *testing.T) {
	d := newObserver(t)
	marked := d.rival
	d.rival = Message{}
	d.run(1600)
	marked.Lapsed, marked.Life = true, 10
	d.wantsAcknowledged(marked, false)
	marked.Life = 0
	d.wantsAcknowledged(marked, false)
	marked.Life = 11
	d.wantsAcknowledged(marked, true)
	t.Run("the holder names the life that extended its right", func(t *testing.T) {
		d := newHolder(t, 3)
		d.run(200)
		last := d.beats
		d.friends = nil
		d.run(600)
		d.wants(false)
		d.lives = 500 // both restart, and acknowledge an old heartbeat late
		d.acknowledge(2, Message{Incarnation: 7, Number: 3})
		d.now = after(800)
		d.step(&Due{})
		for _, o := range d.beats[len(last):] {
			if want := uint64(100 + o.To); o.Message.Life != want {
				t.Fatalf("the marked heartbeat to %d names life %d, wanted %d", o.To, o.Message.Life, want)
			}
		}
	})
}

// A marked heartbeat that is not answered is as if it had not come: it takes back no confirmation.
func markHeard(t *testing.T) {
	d := newObserver(t)
	marked := d.rival
	d.rival = Message{}
	marked.Lapsed, marked.Life = true, 10
	d.run(1900)
	d.wantsAcknowledged(marked, false)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
	marked.Life = 11 // now because it has confirmed
	d.run(2500)
	d.wantsAcknowledged(marked, false)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
}

// The marked heartbeats of one lapse are answered for one span, so that a node which hears nobody is not waited for.
func deaf(t *testing.T) {
	d := newObserver(t)
	d.rival.Lapsed, d.rival.Life = true, 11
	d.run(1890)
	d.wantsAcknowledged(d.rival, true)
	d.run(1910)
	d.wantsAcknowledged(d.rival, false)
	d.run(2250)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
}

// Who has recorded a change of the set does not confirm under the old version, nor under one that it does not know.
func movedConfirms(t *testing.T) {
	d := newObserver(t)
	d.rival = Message{}
	d.record4(2, true, []int{1, 2}, []int{1, 2, 3})
	d.run(1900)
	d.wantsAnswer(d.ask(1), Denial, DeniedVersion)
	d.wantsAnswer(d.ask(3), Denial, DeniedVersion)
	d.record4(1, false, []int{1, 2, 3}, nil) // an old record comes late
	d.wantsAnswer(d.ask(1), Denial, DeniedVersion)
	d.wantsAnswer(d.ask(2), Confirmation, 0)
}

// Who has restarted confirms nothing before it has read what is on record.
func forgetsView(t *testing.T) {
	d := newHolder(t, 4)
	d.run(500)
	d.hears(4, Message{Kind: Heartbeat, Subject: 4, Incarnation: 5, Number: 1, Span: usual.Span(), Interval: usual.Interval, Version: 1})
	d.run(1500)
	for version := range uint64(3) {
		d.wantsAnswer(d.ask(version), Denial, DeniedVersion)
	}
}

// An observer's count never ends before one that it gave earlier, whichever heartbeat comes last.
func lastSpan(t *testing.T) {
	d := newObserver(t)
	long := d.rival
	d.rival = Message{}
	long.Span = time.Second
	d.wantsAcknowledged(long, true) // at 1500
	short := long
	short.Span, short.Interval = 30*time.Millisecond, 10*time.Millisecond
	d.wantsAcknowledged(short, true)
	d.run(2490)
	d.wantsAnswer(d.ask(1), Denial, DeniedHeard)
	d.run(2510)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
}

// One observer's hiccup costs a healthy node nothing: whoever hears it again during its promise neither hints nor confirms any more, and
// acknowledges when the promise is over.
func hiccup(t *testing.T) {
	d := newObserver(t)
	beat := d.rival
	d.rival = Message{}
	d.run(1900)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
	d.rival = beat
	d.run(2000)
	d.said = nil
	d.run(2300)
	if at := slices.IndexFunc(d.said, func(o Outgoing) bool { return o.Message.Subject == 4 }); at >= 0 {
		t.Fatalf("during its promise the observer, which hears the node, says to %d: %s", d.said[at].To, d.said[at].Message.Kind)
	}
	d.wantsAnswer(d.ask(1), Denial, DeniedHeard)
	d.run(2410)
	d.wantsAcknowledged(d.rival, true)
}
