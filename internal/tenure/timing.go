package tenure

import "time"

// Bounds of the heartbeats.
const (
	MaxSpan     = 10 * time.Second // longer ones are cut: nobody may bind an observer for ever
	MinInterval = time.Millisecond
	// driftPerMille is what a clock's rate may be wrong by; the holder gives it away on every acknowledgement.
	driftPerMille = 1
	// The margin is the lateness of the holder's timers and the time that silencing takes: a tenth of the span within these.
	minMargin = 2 * time.Millisecond
	maxMargin = 100 * time.Millisecond
	// maxWindow is for how long a confirmation counts at most, from the question. Whoever asks takes it from the interval that it heard last,
	// which may be an old one; so what others wait for, for the sake of questions that they do not know, is leastWait.
	maxWindow = 100 * time.Millisecond
	leastWait = 2 * maxWindow
)

// Timing is how often a node's heartbeats go, and how many may be missing.
type Timing struct {
	Interval   time.Duration // at least MinInterval
	Multiplier int           // at least 2
}

// Span is how long an acknowledgement counts.
func (t Timing) Span() time.Duration { return min(t.Interval*time.Duration(t.Multiplier), MaxSpan) }

// Margin is what the holder takes off each acknowledgement.
func (t Timing) Margin() time.Duration { return min(max(t.Span()/10, minMargin), maxMargin) }

// bounded is the timing within the bounds.
func (t Timing) bounded() Timing {
	t.Interval = min(max(t.Interval, MinInterval), MaxSpan/2)
	t.Multiplier = min(max(t.Multiplier, 2), int(MaxSpan/t.Interval)) // and no product overflows
	return t
}

// plausible reports whether a heartbeat names times that a node may use. Others are not acknowledged: their sender counts what it named.
func (m *Message) plausible() bool {
	return m.Span > 0 && m.Span <= MaxSpan && m.Interval >= MinInterval && m.Interval <= MaxSpan/2
}

// counted is the end of an acknowledgement as the holder counts it: from the sending, less drift and margin.
func counted(sent time.Time, span, margin time.Duration) time.Time {
	return sent.Add(span - span*driftPerMille/1000 - margin)
}

// promised is the end of a count or a promise as an observer counts it: from the receipt, with the drift on top.
func promised(from time.Time, span time.Duration) time.Time {
	return from.Add(span + span*driftPerMille/1000)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sooner is the earlier of two moments, of which the zero one is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
