package sim

import (
	"errors"
	"time"

	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/report.go and internal/agent/history.go: how a node draws its numbers and keeps its report.

const (
	reportTry   = time.Second
	reportAgain = 100 * time.Millisecond
	storeIdle   = time.Second
	resumeLimit = 3 * time.Second
)

// reporting is how far a process is with its report.
type reporting struct {
	member   memberRecord // what is to be published
	written  memberRecord // what is known to be in the store
	asking   bool         // a request is under way
	rounds   int          // of those that the calendar has, only the last counts
	asked    time.Time
	answered time.Time
	drew     time.Time // the start that draws, by the wall clock, and when it did
	drewAt   time.Time
	past     steering.Past
}

// stir has the report looked at soon.
func (p *process) stir() { p.roundIn(p.chance.between(50*time.Microsecond, 500*time.Microsecond)) }

func (p *process) roundIn(d time.Duration) {
	p.rounds++
	round := p.rounds
	p.later(d, func() {
		if p.rounds == round && !p.asking && !p.closing {
			p.round()
		}
	})
}

// round does what is due towards the store.
func (p *process) round() {
	now := p.time()
	needs, waits := p.needsIncarnation(now)
	member, due := p.due()
	p.asking = true
	done := func(err error) {
		p.asking, p.asked = false, p.time()
		if err == nil || errors.Is(err, errConflict) {
			p.answered = p.asked
		}
		if err != nil {
			p.roundIn(reportAgain)
			return
		}
		p.roundIn(0)
	}
	switch {
	case !p.subscribed:
		done(errSilent)
	case needs:
		p.draw(done)
	case due:
		p.putReport(member, func(_ int64, err error) {
			if err == nil {
				p.reported(member)
			} else {
				p.written = memberRecord{} // it may have been written all the same
			}
			done(err)
		})
	case now.Sub(p.asked) >= storeIdle:
		p.s.store.get(p, reportTry, incarnationKey(p.lnn), func(_ entry, err error) { done(err) })
	default:
		p.asking = false
		p.roundIn(min(storeIdle, waits))
	}
}

// needsIncarnation reports whether another number is to be drawn now, or else in what time that may be.
func (p *process) needsIncarnation(now time.Time) (bool, time.Duration) {
	if p.silencing > 0 && p.s.broken != BreakSilent {
		return false, storeIdle // what the last one held must be off before
	}
	if p.peer.Ended() {
		return true, 0
	}
	if p.lapsedAt.IsZero() {
		return false, storeIdle
	}
	left := p.lapsedAt.Add(p.resumeWithin()).Sub(now)
	return left <= 0, max(left, reportAgain)
}

// resumeWithin is for how long a node that has lapsed waits for an acknowledgement before it draws another number.
func (p *process) resumeWithin() time.Duration { return max(resumeLimit, 10*p.timing.Span()) }

// due is the report that is to be written, if it differs from what is there.
func (p *process) due() (memberRecord, bool) {
	incarnation, begun := p.peer.Incarnation()
	if !begun || p.peer.Ended() {
		return memberRecord{}, false
	}
	member := p.member
	observers, span := p.peer.OnRecord()
	member.Incarnation, member.Observers, member.Span = incarnation, observers, span
	return member, !member.equal(p.written)
}

// reported takes in that a report is in the store.
func (p *process) reported(member memberRecord) {
	p.written = member
	p.inform(&tenure.Published{Incarnation: member.Incarnation, Version: member.Observers.Version, Span: member.Span})
	p.note()
}

var errLater = errors.New("a later incarnation of this node has reported")

// putReport writes the report as the next version of what is there.
func (p *process) putReport(member memberRecord, done func(int64, error)) {
	key := memberKey(p.lnn)
	p.s.store.get(p, reportTry, key, func(e entry, err error) {
		if err != nil {
			done(0, err)
			return
		}
		present, _ := e.value.(memberRecord)
		switch {
		case present.Incarnation > member.Incarnation:
			done(0, errLater)
		case present.Over && present.Incarnation == member.Incarnation:
			p.inform(&tenure.Told{LNN: p.lnn, Over: member.Incarnation, By: "the store says so"})
			done(0, nil)
		default:
			p.s.store.commit(p, reportTry, []condition{{key, e.revision}}, []operation{{key, member}}, done)
		}
	})
}

// draw takes the next incarnation from the store, and enters it unless the old one has resumed meanwhile.
func (p *process) draw(done func(error)) {
	key := incarnationKey(p.lnn)
	p.s.store.get(p, reportTry, key, func(e entry, err error) {
		if err != nil {
			done(err)
			return
		}
		p.s.store.get(p, reportTry, outageKey(p.lnn), func(o entry, err error) {
			if err != nil {
				done(err)
				return
			}
			p.drawFrom(e, o, done)
		})
	})
}

func (p *process) drawFrom(e, o entry, done func(error)) {
	record, _ := e.value.(incarnationRecord)
	outage, away := o.value.(outageRecord)
	now := p.wallTime()
	next := incarnationRecord{record.Number + 1, steering.RecentStarts(record.Starts, p.startOf(now), now)}
	key := incarnationKey(p.lnn)
	operations := []operation{{key, next}}
	if away {
		operations = append(operations, operation{key: outageKey(p.lnn)})
	}
	p.s.store.commit(p, reportTry, []condition{{key, e.revision}}, operations, func(_ int64, err error) {
		if err != nil {
			done(err)
			return
		}
		p.past = steering.PastOf(next.Starts, outage.Since, now)
		p.changed(ofNodes)
		if needs, _ := p.needsIncarnation(p.time()); needs {
			p.s.say("%s draws incarnation %d", p, next.Number)
			p.lapsedAt = time.Time{}
			p.inform(&tenure.Entered{Incarnation: next.Number})
		}
		p.note()
		done(nil)
	})
}

// startOf is when the start that draws now began.
func (p *process) startOf(now time.Time) time.Time {
	if p.drew.IsZero() || p.written.Incarnation > 0 && !p.answered.Before(p.drewAt) {
		p.drew, p.drewAt = now, p.time()
	}
	return p.drew
}
