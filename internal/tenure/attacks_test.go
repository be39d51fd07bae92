package tenure

import (
	"math"
	"testing"
	"time"
)

// A faulty node can have others take an incarnation for over; it cannot bar the ones to come.
func TestNobodyIsBarredForEver(t *testing.T) {
	d := newObserver(t)
	for _, kind := range []Kind{DownNotice, Refusal} {
		d.hears(3, Message{Kind: kind, Subject: 4, Incarnation: math.MaxUint64})
	}
	d.rival.Incarnation = 6
	d.wantsAcknowledged(d.rival, true)
}

// A notice that comes before its incarnation was heard or read of counts when it is, and no later.
func TestANoticeMayComeFirst(t *testing.T) {
	d := newHolder(t, 4)
	d.run(1000)
	d.hears(3, Message{Kind: DownNotice, Subject: 4, Incarnation: 5})
	d.due()
	if over := d.peer.Over(4); over != 0 || len(d.found) > 0 {
		t.Fatalf("incarnation %d is taken for over on hearsay alone", over)
	}
	d.record4(1, false, []int{1, 2, 3}, nil)
	if over := d.peer.Over(4); over != 5 || len(d.found) != 1 || d.found[0].Over != 5 {
		t.Fatalf("up to incarnation %d of node 4 is over, found %v; wanted 5", over, d.found)
	}
	beat := Message{Kind: Heartbeat, Subject: 4, Incarnation: 5, Number: 1, Span: usual.Span(), Interval: usual.Interval}
	d.wantsAcknowledged(beat, false)
	beat.Incarnation = 6
	d.wantsAcknowledged(beat, true)
}

// Messages of and about nodes that nobody has configured take no room.
func TestStrangersTakeNoRoom(t *testing.T) {
	d := newObserver(t)
	before := len(d.peer.watches)
	for lnn := 5; lnn < 3000; lnn++ {
		d.hears(lnn, Message{Kind: Heartbeat, Subject: lnn, Incarnation: 5, Number: 1, Span: usual.Span(), Interval: usual.Interval})
		for kind := Acknowledgement; kind < kinds; kind++ {
			d.hears(3, Message{Kind: kind, Subject: lnn, Incarnation: 5, Number: 1})
		}
	}
	if len(d.peer.questions) > maxQuestions {
		t.Errorf("%d questions wait", len(d.peer.questions))
	}
	d.due()
	if len(d.peer.watches) != before || len(d.peer.questions) > 0 {
		t.Errorf("there are %d watches after messages of strangers, %d before", len(d.peer.watches), before)
	}
}

// Heartbeats that name times which nobody may use are not acknowledged, and questions that would bind an observer for minutes get no word.
func TestTimesOutOfBounds(t *testing.T) {
	d := newObserver(t)
	for _, times := range [][2]time.Duration{{0, 100}, {-1, 100}, {60_000, 100}, {300, 0}, {300, -1}, {300, 60_000}} {
		beat := d.rival
		beat.Span, beat.Interval = times[0]*time.Millisecond, times[1]*time.Millisecond
		d.wantsAcknowledged(beat, false)
	}
	beat := d.rival
	d.rival = Message{}
	d.run(1900)
	d.hears(2, Message{Kind: Question, Subject: 4, Incarnation: 5, Number: 77, Interval: time.Minute, Version: 1})
	d.due()
	d.wantsAcknowledged(beat, true)
	if w := (&watch{span: 3 * time.Second, interval: time.Second}); d.peer.window(w) > maxWindow {
		t.Errorf("a confirmation counts for %s, longer than others listen", d.peer.window(w))
	}
	for _, timing := range []Timing{{}, {Interval: time.Hour, Multiplier: math.MaxInt}, {Interval: 1, Multiplier: math.MaxInt}, {Interval: -1, Multiplier: -1}} {
		got := timing.bounded()
		if got.Span() <= 0 || got.Span() > MaxSpan || got.Interval < MinInterval {
			t.Errorf("%v is bounded to %v with a span of %s", timing, got, got.Span())
		}
	}
}

// A node that no configuration names has no right, and one that is no longer named does not take itself for the only one left.
func TestNoRightWithoutAConfiguration(t *testing.T) {
	d := newDesk(t, 0)
	d.step(&Entered{Incarnation: 7})
	d.due()
	d.wants(false)
	d.step(&Configured{Timing: usual, Voices: voices(1)})
	d.due()
	d.wants(true)
	if got := ChooseObservers(1, []Voice{{LNN: 3}}, nil); len(got) != 1 {
		t.Errorf("a node beside a cluster of one is observed by %v", got)
	}
	for _, left := range [][]Voice{{{LNN: 3}}, {{LNN: 2}, {LNN: 3}}, nil} {
		d := newHolder(t, 3)
		d.run(1000)
		d.step(&Configured{Timing: usual, Voices: left})
		d.run(1200)
		d.published()
		d.version = 2
		d.run(2000)
		d.published()
		d.run(2100)
		d.wants(true)
		d.friends = nil
		d.run(2500)
		d.wants(false)
	}
}

// A node that dies while it changes from no observers to some is found down by them: what the empty set says was never asked.
func TestDeathOfOneThatHadNoObservers(t *testing.T) {
	d := newHolder(t, 4)
	d.record4(2, true, []int{1, 2, 3}, nil)
	answered := false
	for i := 0; i < 200 && d.peer.Over(4) < 5; i++ {
		said := d.said
		d.said = nil
		for _, o := range said {
			if o.Message.Kind == Question && o.To == 2 {
				answered = true
				d.hears(2, Message{Kind: Confirmation, Subject: 4, Incarnation: 5, Number: o.Message.Number})
			}
		}
		d.run(10 * i)
	}
	if !answered || d.peer.Over(4) != 5 {
		t.Fatalf("node 2 was asked: %t; up to incarnation %d is over", answered, d.peer.Over(4))
	}
}

// Who left the configuration and comes back under its number has not been forgotten: it was confirmed, so it does not resume.
func TestWhoLeftIsNotForgotten(t *testing.T) {
	d := newObserver(t)
	marked := d.rival
	d.rival = Message{}
	d.run(1900)
	d.wantsAnswer(d.ask(1), Confirmation, 0)
	d.hears(2, Message{Kind: DownNotice, Subject: 4, Incarnation: 5})
	d.step(&Configured{Timing: usual, Voices: voices(3)})
	d.run(2500)
	d.step(&Configured{Timing: usual, Voices: voices(4)})
	d.run(3000)
	marked.Lapsed, marked.Life = true, 11
	d.wantsAcknowledged(marked, false)
	if d.peer.Over(4) != 5 {
		t.Fatalf("up to incarnation %d of node 4 is over, wanted 5", d.peer.Over(4))
	}
}

// A longer span is used only once it is on record, also when it was there before a shorter one: a write of the shorter may be under way.
func TestALongerSpanWaitsForItsRecord(t *testing.T) {
	short, long := Timing{Interval: 10 * time.Millisecond, Multiplier: 3}, usual
	d := newHolder(t, 3)
	configure := func(timing Timing) { d.step(&Configured{Timing: timing, Voices: voices(3)}) }
	wants := func(span time.Duration) {
		t.Helper()
		if got := d.peer.right.timing.Span(); got != span {
			t.Fatalf("the span in use is %s, wanted %s", got, span)
		}
	}
	configure(short)
	configure(long)
	wants(short.Span())
	configure(short)
	d.step(&Published{Incarnation: 7, Version: 1, Span: long.Span()}) // which was written before
	configure(long)
	d.run(100)
	wants(short.Span())
	d.published()
	wants(long.Span())
}

// After a stall all that arrived is read before anything is judged: a question that lies before the heartbeats of the node is answered
// after them, and an observer whose own right ran out meanwhile confirms nothing.
func TestReadsBeforeItJudges(t *testing.T) {
	d := newObserver(t)
	beat := d.rival
	d.rival = Message{}
	d.run(1890)
	d.said = nil
	d.hears(2, Message{Kind: Question, Subject: 4, Incarnation: 5, Number: 77, Interval: usual.Interval, Version: 1})
	d.hears(4, beat)
	d.due()
	if last := d.said[len(d.said)-1]; last.Message.Kind != Denial || last.Message.Reason != DeniedHeard {
		t.Errorf("the answer is a %s (%s)", last.Message.Kind, last.Message.Reason)
	}
	d.run(2300)
	d.now = after(2700)
	w := d.peer.watches[4]
	if denied := d.peer.denied(w, 5, 1, d.now); denied != DeniedLapsed {
		t.Errorf("an observer whose right ran out and that has not noticed denies because %s", denied)
	}
}

// What is on record may be read again at any time: words that were given count on.
func TestReadingARecordAgainChangesNothing(t *testing.T) {
	d := newObserver(t)
	d.rival = Message{}
	d.run(1900)
	w := d.peer.watches[4]
	declared := w.declared
	if declared.IsZero() {
		t.Fatal("the node is not pursued")
	}
	d.record4(1, false, []int{1, 2, 3}, nil)
	if !w.declared.Equal(declared) || len(w.inquiry.asked) == 0 {
		t.Error("the inquiry began anew")
	}
}

// After a stall an old answer begins nothing that is over already: the right comes back by what still counts.
func TestNothingBeginsInThePast(t *testing.T) {
	d := newDesk(t, 3)
	d.step(&Entered{Incarnation: 7})
	d.step(&Due{})
	beat := d.beats[0].Message
	arrived := after(10)
	d.now = after(1000)
	m := Message{Kind: Acknowledgement, Subject: 1, Incarnation: 7, Number: beat.Number, Life: 5}
	d.step(&Received{Message: &m, From: 2, Arrived: arrived})
	if _, begun := d.peer.Incarnation(); begun {
		t.Error("the incarnation has begun with leases that are over")
	}
}

// A number of no heartbeat, and a life that nobody has, prove nothing.
func TestZeroIsNoNumber(t *testing.T) {
	d := newDesk(t, 3)
	d.step(&Entered{Incarnation: 7})
	d.hears(2, Message{Kind: Acknowledgement, Subject: 1, Incarnation: 7, Life: 5})
	d.wants(false)
	if (&watch{}).answers(&Message{Incarnation: 5, Lapsed: true}, 0, epoch) {
		t.Error("a marked heartbeat that names no life is answered")
	}
}

// In steady operation a datagram costs no allocation.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	const nodes = 17
	now := epoch
	p := NewPeer(1, 11, usual, now)
	var out Outbox
	step := func(e Event) Standing { return p.Step(e, now, &out) }
	step(&Configured{Timing: usual, Voices: voices(nodes)})
	step(&Entered{Incarnation: 7})
	for lnn := 2; lnn <= nodes; lnn++ {
		var others []int
		for other := 1; other <= nodes; other++ {
			if other != lnn {
				others = append(others, other)
			}
		}
		step(&Recorded{LNN: lnn, Incarnation: 3, Observers: Observers{Version: 1, Current: others}, Span: usual.Span()})
	}
	number := uint64(0)
	var received Received
	var m Message
	due := &Due{}
	hears := func(from int) {
		received = Received{Message: &m, From: from, Arrived: now}
		step(&received)
	}
	var standing Standing
	round := func() {
		now = now.Add(usual.Interval)
		number++
		for lnn := 2; lnn <= nodes; lnn++ {
			m = Message{Kind: Heartbeat, Subject: lnn, Incarnation: 3, Number: number, Span: usual.Span(), Interval: usual.Interval, Version: 1}
			hears(lnn)
		}
		standing = step(due)
		for lnn := 2; lnn <= nodes; lnn++ {
			m = Message{Kind: Acknowledgement, Subject: 1, Incarnation: 7, Number: p.right.number, Life: 5, Version: 1}
			hears(lnn)
		}
		standing = step(due)
		p.Wake(now)
		out.Reset()
	}
	for range 10 {
		round()
	}
	if allocations := testing.AllocsPerRun(100, round); allocations != 0 {
		t.Errorf("a round of heartbeats and acknowledgements among %d nodes allocates %v times", nodes, allocations)
	}
	if !standing.MayHold {
		t.Errorf("the node may not hold: %s", standing.Reason)
	}
}
