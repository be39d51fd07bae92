package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/tenure"
)

// How often a majority is asked again whether a node whose lease is gone has been given up, how long one answer may take, how long
// the node itself has to say that it lives, and for how long its silence counts.
const (
	askAgainAfter  = 100 * time.Millisecond
	confirmTimeout = 300 * time.Millisecond
	aliveTimeout   = 100 * time.Millisecond
	silenceCounts  = 100 * time.Millisecond
)

// peerConfirmer asks the other nodes whether they have given up an incarnation, and the node itself whether it lives.
type peerConfirmer interface {
	Confirm(ctx context.Context, observer, lnn int, incarnation tenure.Incarnation) (tenure.Answer, error)
	// Alive reports whether a node answers that it is of this incarnation and may hold. An error counts as no answer.
	Alive(ctx context.Context, lnn int, incarnation tenure.Incarnation) (holds bool, err error)
}

// watchtower is this node as an observer of the others: it answers their questions and finds out who is Down.
// All methods are safe for concurrent use.
type watchtower struct {
	self      int
	peers     peerConfirmer
	now       func() time.Time
	log       *slog.Logger
	found     func(lnn int, over tenure.Incarnation, took time.Duration) // an incarnation is Down; must not block
	mu        sync.Mutex
	observer  *tenure.Observer
	others    []int
	inquiries map[int]*inquiry
	seen      map[int]tenure.Incarnation
	down      map[int]tenure.Incarnation
	calls     map[int]*aliveCall
}

// aliveCall is one question to a node whether it lives; all who want to know share its answer.
type aliveCall struct {
	incarnation tenure.Incarnation
	done        chan struct{}
	holds       bool      // once done
	ended       time.Time // once done
}

// inquiry is one that goes on.
type inquiry struct {
	incarnation tenure.Incarnation
	cancel      context.CancelFunc
}

// newWatchtower makes the observer of a node that starts now. What it granted before it died lasts at most a span: so long it
// only listens.
func newWatchtower(self int, span span, now func() time.Time, log *slog.Logger) *watchtower {
	return &watchtower{
		self: self, now: now, log: log,
		observer:  tenure.NewObserver(now(), span.lease()),
		inquiries: map[int]*inquiry{}, seen: map[int]tenure.Incarnation{}, down: map[int]tenure.Incarnation{}, calls: map[int]*aliveCall{},
	}
}

// Down is the latest incarnation of a node that was found Down from here.
func (w *watchtower) Down(lnn int) tenure.Incarnation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down[lnn]
}

// Acknowledge answers another node that asks for a span.
func (w *watchtower) Acknowledge(lnn int, incarnation tenure.Incarnation, span time.Duration) tenure.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if span <= 0 || span > longestSpan {
		return tenure.Answer{Reason: "a span of more than " + longestSpan.String() + " is not granted"}
	}
	return w.observer.Grant(lnn, incarnation, span, w.now())
}

// Confirm answers another node that asks whether an incarnation is given up here. One that this node has not seen is not given up:
// otherwise whoever asks for a number that is yet to come would bar a node before it begins. Nor is one whose node answers that it
// holds: a store can end a lease before its time (etcd-io/etcd issue 15247), and its holder goes on until it hears of that.
func (w *watchtower) Confirm(ctx context.Context, lnn int, incarnation tenure.Incarnation) tenure.Answer {
	w.mu.Lock()
	answer := w.observer.WouldConfirm(lnn, incarnation, w.now())
	known, settled := incarnation <= w.seen[lnn], incarnation <= w.observer.Over(lnn)
	w.mu.Unlock()
	switch {
	case settled:
		return answer
	case !known:
		return tenure.Answer{Reason: fmt.Sprintf("this node knows of no incarnation %d of node %d", incarnation, lnn)}
	case !answer.Yes:
		return answer
	case w.alive(ctx, lnn, incarnation):
		return tenure.Answer{Reason: fmt.Sprintf("node %d answers and has the right to hold", lnn)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observer.Confirm(lnn, incarnation, w.now())
}

// alive asks a node itself, once for all who want to know at about the same time.
func (w *watchtower) alive(ctx context.Context, lnn int, incarnation tenure.Incarnation) bool {
	w.mu.Lock()
	call := w.calls[lnn]
	fresh := call != nil && call.incarnation == incarnation
	if fresh {
		select {
		case <-call.done:
			fresh = w.now().Sub(call.ended) < silenceCounts && !call.holds
		default: // it is being asked
		}
	}
	if !fresh {
		call = &aliveCall{incarnation: incarnation, done: make(chan struct{})}
		w.calls[lnn] = call
		go w.ask(context.WithoutCancel(ctx), lnn, call)
	}
	w.mu.Unlock()
	<-call.done
	return call.holds
}

func (w *watchtower) ask(ctx context.Context, lnn int, call *aliveCall) {
	ctx, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	holds, err := w.peers.Alive(ctx, lnn, call.incarnation)
	w.mu.Lock()
	defer w.mu.Unlock()
	call.holds, call.ended = holds && err == nil, w.now()
	close(call.done)
}

// Saw takes in that an incarnation has had a lease: its report was in the store, or it owns something on record.
func (w *watchtower) Saw(lnn int, incarnation tenure.Incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[lnn] = max(w.seen[lnn], incarnation)
}

// Learn takes in proof that every incarnation of a node up to this one is over.
func (w *watchtower) Learn(lnn int, over tenure.Incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observer.Learn(lnn, over)
}

// SetOthers says who the other nodes are.
func (w *watchtower) SetOthers(others []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.others = others
}

// Inquire begins to ask a majority whether an incarnation is over; it goes on until it is, until Stop, or until a later one of the
// same node is asked about.
func (w *watchtower) Inquire(ctx context.Context, lnn int, incarnation tenure.Incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[lnn] = max(w.seen[lnn], incarnation)
	if present := w.inquiries[lnn]; present != nil {
		if present.incarnation >= incarnation {
			return
		}
		present.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	w.inquiries[lnn] = &inquiry{incarnation, cancel}
	go w.inquire(ctx, lnn, incarnation)
}

// Stop ends an inquiry: the node is back.
func (w *watchtower) Stop(lnn int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if present := w.inquiries[lnn]; present != nil {
		present.cancel()
		delete(w.inquiries, lnn)
	}
}

// inquire asks in rounds. Each round starts from nothing, so that all confirmations that count were given within one.
func (w *watchtower) inquire(ctx context.Context, lnn int, incarnation tenure.Incarnation) {
	began := w.now()
	for ctx.Err() == nil {
		if w.round(ctx, lnn, incarnation) {
			w.conclude(lnn, incarnation)
			w.found(lnn, incarnation, w.now().Sub(began))
			return
		}
		wait(ctx, askAgainAfter)
	}
}

// conclude notes that an incarnation is Down, and ends its inquiry, unless that is about a later one by now.
func (w *watchtower) conclude(lnn int, incarnation tenure.Incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[lnn] = max(w.down[lnn], incarnation)
	if present := w.inquiries[lnn]; present != nil && present.incarnation <= incarnation {
		present.cancel()
		delete(w.inquiries, lnn)
	}
}

// round asks everybody once, this node itself among them, and reports whether the incarnation is Down.
func (w *watchtower) round(ctx context.Context, lnn int, incarnation tenure.Incarnation) bool {
	w.mu.Lock()
	ask := []int{w.self}
	for _, other := range w.others {
		if other != lnn {
			ask = append(ask, other)
		}
	}
	w.mu.Unlock()
	inquiry := tenure.NewInquiry(lnn, incarnation, len(ask))
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	type word struct {
		from int
		yes  bool
	}
	words := make(chan word, len(ask))
	for _, observer := range ask {
		go func() {
			if observer == w.self {
				words <- word{observer, w.Confirm(ctx, lnn, incarnation).Yes}
				return
			}
			answer, err := w.peers.Confirm(ctx, observer, lnn, incarnation)
			words <- word{observer, err == nil && answer.Yes}
		}()
	}
	own, down := false, false
	for range ask {
		said := <-words
		own = own || said.yes && said.from == w.self
		down = said.yes && inquiry.Confirmed(said.from) || down
		if own && down {
			return true
		}
		if !said.yes && said.from == w.self {
			return false // this node itself acknowledges it still
		}
	}
	return false
}
