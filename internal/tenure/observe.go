package tenure

import "time"

// receive takes in a message.
func (p *Peer) receive(e *Received, now time.Time, out *Outbox) {
	m := e.Message
	if e.From == p.self {
		return
	}
	switch m.Kind {
	case Heartbeat:
		p.heartbeat(e, now, out)
	case Acknowledgement:
		if m.Subject == p.self {
			p.told = p.told && m.Incarnation != p.right.incarnation
			p.right.acknowledged(m, e.From, e.Network, e.Arrived, now)
		}
	case Refusal, DownNotice:
		p.hearsay(m, e.From, "other nodes have found it down", out)
	case Farewell:
		if m.Subject == e.From {
			p.hearsay(m, e.From, "its agent was stopped", out)
		}
	case Hint:
		p.hinted(e, now, out)
	case Question:
		if len(p.questions) < maxQuestions {
			p.questions = append(p.questions, question{e.From, *m})
		}
	case Confirmation, Denial:
		p.answered(e, now)
	default:
		panic("tenure: a message of no kind got past the decoder")
	}
}

// heartbeat acknowledges another node's heartbeat, or does not.
func (p *Peer) heartbeat(e *Received, now time.Time, out *Outbox) {
	m := e.Message
	w := p.known(e.From)
	if w == nil || m.Subject != e.From || m.Incarnation == 0 || !m.plausible() {
		return
	}
	w.sounded = later(w.sounded, e.Arrived)
	if m.Incarnation > w.incarnation {
		p.later(w, m.Incarnation, "it has begun a later incarnation", out)
	}
	if m.Incarnation <= w.over {
		out.Messages = append(out.Messages, Outgoing{e.From, e.Network, Message{Kind: Refusal, Subject: e.From, Incarnation: w.over}})
		return
	}
	listening := e.Arrived.Before(later(p.listens(w), promised(p.born, m.Span+m.Interval)))
	if m.Lapsed {
		// One that is not answered is as if it had not come ("mark-heard").
		if listening || e.Arrived.Before(w.promise) || !w.answers(m, p.life, e.Arrived) {
			return
		}
	} else {
		w.answering = time.Time{}
	}
	w.hear(m, e.Network, e.Arrived)
	if listening || e.Arrived.Before(w.promise) {
		return
	}
	ack := Message{Kind: Acknowledgement, Subject: e.From, Incarnation: m.Incarnation, Number: m.Number, Lapsed: m.Lapsed, Life: p.life}
	if w.record.Incarnation == m.Incarnation {
		ack.Version = w.record.Observers.Version
	}
	out.Messages = append(out.Messages, Outgoing{e.From, e.Network, ack})
}

// denied says why this node does not confirm that an incarnation has stopped; zero when it does.
func (p *Peer) denied(w *watch, incarnation Incarnation, version uint64, now time.Time) Denied {
	switch {
	case now.Before(p.listens(w)):
		return DeniedListening
	case incarnation != w.incarnation:
		return DeniedLater
	case w.record.Incarnation != incarnation || w.record.Observers.Version != version: // "moved-confirms", "forgets-view"
		return DeniedVersion
	case !w.record.Observers.has(p.self):
		return DeniedStranger
	case w.quiet.IsZero() || now.Before(w.quiet):
		return DeniedHeard
	}
	return p.right.mayConfirm(now)
}

// confirm gives this node's word, with its promise. Window is for how long the asker counts it.
func (p *Peer) confirm(w *watch, window time.Duration, now time.Time) {
	span, interval := w.timing(p.right.timing)
	w.confirmed = max(w.confirmed, w.incarnation)
	w.promise = later(w.promise, promised(now, max(span+2*interval, 2*window)))
}

// question is one that waits for the end of the batch.
type question struct {
	from    int
	message Message
}

// reply answers what was asked. It waits until the end of the batch: after a stall the heartbeats that came meanwhile may lie behind the question.
func (p *Peer) reply(q *question, now time.Time, out *Outbox) {
	m := &q.message
	w := p.watches[m.Subject]
	if w == nil || m.Subject == q.from || m.Interval < 0 || m.Interval > maxWindow {
		return
	}
	reply := Message{Kind: Denial, Subject: m.Subject, Incarnation: m.Incarnation, Number: m.Number}
	if m.Incarnation <= w.over {
		reply = Message{Kind: DownNotice, Subject: m.Subject, Incarnation: w.over}
	} else if reply.Reason = p.denied(w, m.Incarnation, m.Version, now); reply.Reason == 0 {
		reply.Kind = Confirmation
		p.confirm(w, m.Interval, now)
	}
	out.Messages = append(out.Messages, Outgoing{q.from, AllNetworks, reply})
}

// hinted: another observer hears nothing either, so its word can be had now.
func (p *Peer) hinted(e *Received, now time.Time, out *Outbox) {
	m := e.Message
	w := p.watches[m.Subject]
	switch {
	case w == nil:
	case m.Incarnation <= w.over:
		out.Messages = append(out.Messages, Outgoing{e.From, e.Network, Message{Kind: DownNotice, Subject: m.Subject, Incarnation: w.over}})
	case w.silent(now):
		if a := w.inquiry.of(e.From); a != nil && a.counts.IsZero() {
			a.due = now
		}
	}
}

// answered takes in an observer's word. It is weighed at the end of the batch.
func (p *Peer) answered(e *Received, now time.Time) {
	m := e.Message
	w := p.watches[m.Subject]
	if w == nil || m.Incarnation != w.incarnation || !w.silent(now) {
		return
	}
	a := w.inquiry.of(e.From)
	if a == nil || a.number != m.Number {
		return
	}
	if a.said = m.Reason; m.Kind == Confirmation {
		a.counts, a.came = a.sent, e.Arrived
	}
}

// window is for how long a confirmation counts, from the question: one interval of the node that is asked about, within bounds.
func (p *Peer) window(w *watch) time.Duration {
	_, interval := w.timing(p.right.timing)
	return min(interval, maxWindow)
}

// pursue is what an observer does about a node that it does not hear: it tells the other observers, and asks for their word.
func (p *Peer) pursue(w *watch, now time.Time, out *Outbox) {
	_, interval := w.timing(p.right.timing)
	if w.declared.IsZero() {
		w.declared, w.hintDue = now, now
		w.inquiry = openInquiry(p.self, w.record.Observers, now)
	}
	if denied := p.denied(w, w.incarnation, w.record.Observers.Version, now); denied != 0 {
		w.hintDue = now.Add(interval) // its word would not count; later perhaps
		for i := range w.inquiry.asked {
			w.inquiry.asked[i].due = later(w.inquiry.asked[i].due, w.hintDue)
		}
		return
	}
	if !now.Before(w.hintDue) {
		hint := Message{Kind: Hint, Subject: w.lnn, Incarnation: w.incarnation}
		for i := range w.inquiry.asked {
			out.Messages = append(out.Messages, Outgoing{w.inquiry.asked[i].observer, AllNetworks, hint})
		}
		if w.record.Observers.has(Ground) {
			p.putQuestion(now, out)
		}
		w.hintDue = now.Add(interval)
		if now.Sub(w.declared) > slowAsk {
			w.hintDue = now.Add(max(slowAsk, interval))
		}
	}
	p.ask(w, now, out)
	p.conclude(w, now, out)
}

// ask sends the questions that are due.
func (p *Peer) ask(w *watch, now time.Time, out *Outbox) {
	window := p.window(w)
	for i := range w.inquiry.asked {
		a := &w.inquiry.asked[i]
		if now.Before(a.due) {
			continue
		}
		p.number++
		a.number, a.sent = p.number, now
		w.inquiry.first = sooner(w.inquiry.first, now)
		a.tries++
		if a.due = now.Add(window / 2); a.tries > quickTries {
			a.due = now.Add(max(slowAsk, window))
		}
		out.Messages = append(out.Messages, Outgoing{a.observer, AllNetworks, Message{
			Kind: Question, Subject: w.lnn, Incarnation: w.incarnation, Number: a.number, Interval: window, Version: w.record.Observers.Version,
		}})
	}
}

// conclude finds the node Down if enough words count at this moment. This node's own word is among them, and given now.
func (p *Peer) conclude(w *watch, now time.Time, out *Outbox) {
	window := p.window(w)
	if p.denied(w, w.incarnation, w.record.Observers.Version, now) != 0 {
		return
	}
	grounded := w.record.Observers.has(Ground)
	if !w.inquiry.down(p.self, w.record.Observers, grounded && p.vouches(w), window, now) {
		return // its own word is given only when it decides: one given in vain would keep the node from resuming
	}
	p.confirm(w, window, now)
	how := "a majority of its observers confirmed it"
	if grounded {
		how = "nothing was heard of it while the gateway answered"
	}
	p.learn(w.lnn, w.incarnation, 0, how, out)
	w.notices, w.noticeDue = noticeTimes, now
	p.tellAgain(w, now, out)
}

// tellAgain repeats a notice, since datagrams get lost.
func (p *Peer) tellAgain(w *watch, now time.Time, out *Outbox) {
	if w.notices == 0 || now.Before(w.noticeDue) {
		return
	}
	w.notices--
	w.noticeDue = now.Add(p.window(w))
	notice := Message{Kind: DownNotice, Subject: w.lnn, Incarnation: w.over}
	p.tellAll(notice, out)
	if w.record.Observers.has(Ground) { // it may live, and hear this node
		out.Messages = append(out.Messages, Outgoing{w.lnn, AllNetworks, notice})
	}
}
