package tenure

import (
	"maps"
	"slices"
	"time"
)

// Memory is all that a Peer knows, in a form that another process can read: times are what name makes of them, and 0 is the zero time.
// An agent that replaces a running one goes on from it under the same incarnation, with the same leases and as the same observer.
// A field that is missing because an older version did not know it is read as its zero value.
type Memory struct {
	Self    int          `json:"self"`
	Life    uint64       `json:"life"`
	Born    int64        `json:"born"`
	Asked   Timing       `json:"asked"`
	Voices  []Voice      `json:"voices"`
	Right   RightState   `json:"right"`
	Watches []WatchState `json:"watches"`
	Number  uint64       `json:"number"`
	Stale   bool         `json:"stale,omitempty"`
	Waited  bool         `json:"waited,omitempty"`
	Told    bool         `json:"told,omitempty"`

	NoWitness bool        `json:"no-witness,omitempty"`
	Ground    GroundState `json:"ground"`

	Questions []QuestionState `json:"questions,omitempty"`
}

// GroundState is what the node knows of the ground.
type GroundState struct {
	Number   uint64 `json:"number,omitempty"`
	Asked    int64  `json:"asked,omitempty"`
	Last     int64  `json:"last,omitempty"`
	Answered int64  `json:"answered,omitempty"`
	Arrived  int64  `json:"arrived,omitempty"`
	Since    int64  `json:"since,omitempty"`
}

// QuestionState is a question that waits for the end of the batch.
type QuestionState struct {
	From    int     `json:"from"`
	Message Message `json:"message"`
}

// RightState is a node's own right.
type RightState struct {
	Incarnation  Incarnation  `json:"incarnation"`
	Phase        uint8        `json:"phase"`
	Why          string       `json:"why,omitempty"`
	Timing       Timing       `json:"timing"`
	Set          Observers    `json:"set"`
	Wanted       []int        `json:"wanted"`
	Leases       []LeaseState `json:"leases"`
	Until        int64        `json:"until"`
	Number       uint64       `json:"number"`
	Beats        []BeatState  `json:"beats"`
	BeatDue      int64        `json:"beat-due"`
	Lapses       uint64       `json:"lapses,omitempty"`
	Resumed      int64        `json:"resumed,omitempty"`
	Began        int64        `json:"began"`
	Recorded     uint64       `json:"recorded"`
	RecordedSpan int64        `json:"recorded-span"`
	Ending       bool         `json:"ending,omitempty"`
	Moved        int64        `json:"moved,omitempty"`
	Stranger     bool         `json:"stranger,omitempty"`
}

// LeaseState is what one observer has acknowledged.
type LeaseState struct {
	From     int     `json:"from"`
	Until    int64   `json:"until"`
	Life     uint64  `json:"life"`
	Recorded uint64  `json:"recorded"`
	Heard    []int64 `json:"heard"`
}

// BeatState is one round of heartbeats.
type BeatState struct {
	Number uint64 `json:"number"`
	Sent   int64  `json:"sent"`
	Span   int64  `json:"span"`
	Marked bool   `json:"marked,omitempty"`
	Lapse  uint64 `json:"lapse,omitempty"`
}

// WatchState is what the node knows of another as its observer. An observer that lost it would have to listen first, and to fail those
// that it observes meanwhile.
type WatchState struct {
	LNN         int         `json:"lnn"`
	Incarnation Incarnation `json:"incarnation"`
	Over        Incarnation `json:"over"`
	Span        int64       `json:"span"`
	Interval    int64       `json:"interval"`
	Quiet       int64       `json:"quiet"`
	Heard       int64       `json:"heard"`
	HeardOn     []int64     `json:"heard-on"`
	Promise     int64       `json:"promise,omitempty"`
	Confirmed   Incarnation `json:"confirmed,omitempty"`
	Answering   int64       `json:"answering,omitempty"`
	Record      Recorded    `json:"record"`
	Mine        bool        `json:"mine,omitempty"`
	Dead        bool        `json:"dead,omitempty"`
	Sounded     int64       `json:"sounded,omitempty"`
	Declared    int64       `json:"declared,omitempty"`
	HintDue     int64       `json:"hint-due,omitempty"`
	Inquired    int64       `json:"inquired,omitempty"`
	Rumoured    Incarnation `json:"rumoured,omitempty"`
	Inquiry     []AskState  `json:"inquiry,omitempty"`
	Notices     int         `json:"notices,omitempty"`
	NoticeDue   int64       `json:"notice-due,omitempty"`
}

// AskState is one observer whose word is wanted.
type AskState struct {
	Observer int    `json:"observer"`
	Number   uint64 `json:"number"`
	Sent     int64  `json:"sent"`
	Counts   int64  `json:"counts"`
	Came     int64  `json:"came"`
	Due      int64  `json:"due"`
	Tries    int    `json:"tries"`
	Said     Denied `json:"said"`
}

// Export writes the peer down. Name turns a time into what the other process reads it from; it is not asked about the zero time. The
// caller must not step this peer any more, unless nobody goes on from what was written.
func (p *Peer) Export(name func(time.Time) int64) Memory {
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return name(t)
	}
	s := Memory{
		Self: p.self, Life: p.life, Born: at(p.born), Asked: p.asked, Voices: slices.Clone(p.voices), Right: p.right.export(at),
		Number: p.number, Stale: p.stale, Waited: p.waited, Told: p.told, NoWitness: p.noWitness, Ground: p.ground.export(at),
	}
	for _, q := range p.questions {
		s.Questions = append(s.Questions, QuestionState{q.from, q.message})
	}
	for _, w := range p.order {
		s.Watches = append(s.Watches, w.export(at))
	}
	return s
}

func (g *ground) export(at func(time.Time) int64) GroundState {
	return GroundState{Number: g.number, Asked: at(g.asked), Last: at(g.last), Answered: at(g.answered), Arrived: at(g.arrived), Since: at(g.since)}
}

func (s *GroundState) ground(at func(int64) time.Time) ground {
	return ground{number: s.Number, asked: at(s.Asked), last: at(s.Last), answered: at(s.Answered), arrived: at(s.Arrived), since: at(s.Since)}
}

func (r *right) export(at func(time.Time) int64) RightState {
	s := RightState{
		Incarnation: r.incarnation, Phase: uint8(r.phase), Why: r.why, Timing: r.timing, Set: r.set.clone(), Wanted: slices.Clone(r.wanted),
		Until: at(r.until), Number: r.number, BeatDue: at(r.beatDue), Lapses: r.lapses, Resumed: at(r.resumed), Began: at(r.began),
		Recorded: r.recorded, RecordedSpan: int64(r.recordedSpan), Ending: r.ending, Moved: at(r.moved), Stranger: r.stranger,
	}
	for _, lnn := range slices.Sorted(maps.Keys(r.leases)) {
		l := r.leases[lnn]
		s.Leases = append(s.Leases, LeaseState{From: lnn, Until: at(l.until), Life: l.life, Recorded: l.recorded, Heard: eachAt(l.heard, at)})
	}
	for _, b := range r.beats {
		if b != (beat{}) {
			s.Beats = append(s.Beats, BeatState{b.number, at(b.sent), int64(b.span), b.marked, b.lapse})
		}
	}
	return s
}

func (w *watch) export(at func(time.Time) int64) WatchState {
	s := WatchState{
		LNN: w.lnn, Incarnation: w.incarnation, Over: w.over, Span: int64(w.span), Interval: int64(w.interval), Quiet: at(w.quiet), Heard: at(w.heard),
		HeardOn: eachAt(w.heardOn, at), Promise: at(w.promise), Confirmed: w.confirmed, Answering: at(w.answering), Record: w.record, Mine: w.mine,
		Dead: w.dead, Sounded: at(w.sounded), Declared: at(w.declared), HintDue: at(w.hintDue), Inquired: at(w.inquiry.first), Rumoured: w.rumoured, Notices: w.notices, NoticeDue: at(w.noticeDue),
	}
	s.Record.Observers = w.record.Observers.clone()
	for _, a := range w.inquiry.asked {
		s.Inquiry = append(s.Inquiry, AskState{a.observer, a.number, at(a.sent), at(a.counts), at(a.came), at(a.due), a.tries, a.said})
	}
	return s
}

// Import makes the peer that Export wrote down. Moment turns back what name made of a time.
func Import(s Memory, moment func(int64) time.Time) *Peer {
	at := func(n int64) time.Time {
		if n == 0 {
			return time.Time{}
		}
		return moment(n)
	}
	p := &Peer{
		self: s.Self, life: s.Life, born: at(s.Born), asked: s.Asked.bounded(), voices: slices.Clone(s.Voices), right: s.Right.right(at),
		watches: map[int]*watch{}, number: s.Number, stale: s.Stale, waited: s.Waited, told: s.Told, noWitness: s.NoWitness, ground: s.Ground.ground(at),
	}
	for _, q := range s.Questions {
		p.questions = append(p.questions, question{q.From, q.Message})
	}
	for i := range s.Watches {
		if w := p.watchOf(s.Watches[i].LNN); w != nil {
			*w = s.Watches[i].watch(at)
		}
	}
	return p
}

func (s *RightState) right(at func(int64) time.Time) right {
	r := right{
		incarnation: s.Incarnation, phase: phase(s.Phase), why: s.Why, timing: s.Timing.bounded(), set: s.Set.clone(), wanted: slices.Clone(s.Wanted),
		until: at(s.Until), number: s.Number, beatDue: at(s.BeatDue), lapses: s.Lapses, resumed: at(s.Resumed), began: at(s.Began),
		recorded: s.Recorded, recordedSpan: time.Duration(s.RecordedSpan), ending: s.Ending, moved: at(s.Moved), stranger: s.Stranger,
	}
	if r.phase != idle {
		r.leases = map[int]*lease{}
		for _, l := range s.Leases {
			r.leases[l.From] = &lease{until: at(l.Until), life: l.Life, recorded: l.Recorded, heard: eachMoment(l.Heard, at)}
		}
		r.asked = slices.Sorted(maps.Keys(r.leases))
	}
	for _, b := range s.Beats {
		r.beats[b.Number%beats] = beat{b.Number, at(b.Sent), time.Duration(b.Span), b.Marked, b.Lapse}
	}
	return r
}

func (s *WatchState) watch(at func(int64) time.Time) watch {
	w := watch{
		lnn: s.LNN, incarnation: s.Incarnation, over: s.Over, span: time.Duration(s.Span), interval: time.Duration(s.Interval), quiet: at(s.Quiet), heard: at(s.Heard),
		heardOn: eachMoment(s.HeardOn, at), promise: at(s.Promise), confirmed: s.Confirmed, answering: at(s.Answering), record: s.Record, mine: s.Mine,
		dead: s.Dead, sounded: at(s.Sounded), declared: at(s.Declared), hintDue: at(s.HintDue), inquiry: inquiry{first: at(s.Inquired)}, rumoured: s.Rumoured, notices: s.Notices, noticeDue: at(s.NoticeDue),
	}
	for _, a := range s.Inquiry {
		w.inquiry.asked = append(w.inquiry.asked, asked{a.Observer, a.Number, at(a.Sent), at(a.Counts), at(a.Came), at(a.Due), a.Tries, a.Said})
	}
	return w
}

// eachAt are the times of all networks, as far as there are any.
func eachAt(heard [MaxNetworks]time.Time, at func(time.Time) int64) []int64 {
	var list []int64
	for i, t := range heard {
		if !t.IsZero() {
			list = append(append(list, make([]int64, i-len(list))...), at(t))
		}
	}
	return list
}

func eachMoment(list []int64, at func(int64) time.Time) (heard [MaxNetworks]time.Time) {
	for i, n := range list[:min(len(list), MaxNetworks)] {
		heard[i] = at(n)
	}
	return heard
}
