package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/problem"
)

// Peers are the other brokers, as this one reaches them.
type Peers interface {
	Names() []string
	// Rules asks one of them.
	Rules(ctx context.Context, name string, ask Ask) (Part, error)
}

// Ask tells another broker which rules this one has, and asks for a part of the other's.
type Ask struct {
	Digest Digest // of the asker's
	Wanted Digest // of the rules of which a part is wanted; zero: none is
	Offset int
}

// Part is what a broker says to that.
type Part struct {
	InUse  bool // false: it has neither fleets nor rules, and the rest is zero
	Digest Digest
	Total  int    // length of the whole text
	Text   []byte // empty if its rules are not those that were wanted any more
}

// Bounds of an exchange.
const (
	MaxPart       = 512 << 10 // bytes of one part
	askTimeout    = 3 * time.Second
	fetchTimeout  = time.Minute // for all parts of one broker's rules
	exchangedWith = 8           // others at the same time
	shownFaults   = 20          // problems of rules on the board; the last one says how many more there are
)

// exchange is what is known of the exchange of rules.
type exchange struct {
	kick chan struct{} // an exchange is wished now
	told atomic.Bool   // by a broker that has other rules

	mu    sync.Mutex
	fails map[string]bool // brokers with whose rules it did not work out
}

// wish has an exchange made now.
func (e *exchange) wish() { signal(e.kick) }

// asked has an exchange made because another broker has other rules.
func (e *exchange) asked() {
	e.told.Store(true)
	e.wish()
}

// AnswerRules answers another broker. If it has other rules, this one will ask it for them.
func (b *Broker) AnswerRules(ask Ask) Part {
	if !b.InUse() {
		return Part{}
	}
	r := b.rules.Load()
	if ask.Digest != r.digest {
		b.exchange.asked()
	}
	part := Part{InUse: true, Digest: r.digest, Total: len(r.text)}
	if ask.Wanted == r.digest && ask.Offset >= 0 && ask.Offset < len(r.text) {
		part.Text = r.text[ask.Offset:min(len(r.text), ask.Offset+MaxPart)]
	}
	return part
}

// exchangeRules asks the others from time to time, and when somebody wishes it; and judges the rules by the fleets as they are.
func (b *Broker) exchangeRules(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.exchange.kick:
		case <-timer.C:
		}
		begun, before := time.Now(), b.rules.Load()
		b.exchange.told.Store(false)
		b.judgeRules()
		if b.options.Peers != nil && b.InUse() {
			b.askAll(ctx)
		}
		if b.rules.Load() != before { // by what others had
			b.judgeRules()
		}
		timer.Reset(b.options.Exchange)
		if b.exchange.told.Load() { // others' wishes are not met faster than so, should two brokers never agree
			pause(ctx, b.options.Pace-time.Since(begun))
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// askAll asks all others which rules they have, and takes in those that differ.
func (b *Broker) askAll(ctx context.Context) {
	names := b.options.Peers.Names()
	turns := make(chan struct{}, exchangedWith)
	var under sync.WaitGroup
	for _, name := range names {
		under.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			b.askOne(ctx, name)
		})
	}
	under.Wait()
	b.exchange.mu.Lock()
	defer b.exchange.mu.Unlock()
	for name := range b.exchange.fails {
		if !slices.Contains(names, name) {
			delete(b.exchange.fails, name)
			b.options.Board.Clear(rules.Unmerged, name)
		}
	}
}

// errUnreached is what is no fault of the rules: the other broker does not answer, or has changed its rules meanwhile.
var errUnreached = errors.New("it does not answer")

func (b *Broker) askOne(ctx context.Context, name string) {
	err := b.fetchRules(ctx, name)
	if ctx.Err() != nil {
		return
	}
	b.measure.exchanged(err)
	if errors.Is(err, errUnreached) || errors.Is(err, ErrClosed) {
		return // a problem that there is stays until it is known to be over
	}
	b.exchange.mu.Lock()
	defer b.exchange.mu.Unlock()
	if err == nil {
		delete(b.exchange.fails, name)
	} else {
		if b.exchange.fails == nil {
			b.exchange.fails = map[string]bool{}
		}
		b.exchange.fails[name] = true
	}
	b.options.Board.Is(err != nil, rules.Unmerged, name, text(err), b.now())
}

// fetchRules asks one other broker, and merges its rules if they are others than this one's.
func (b *Broker) fetchRules(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	said, err := b.ask(ctx, name, Ask{Digest: b.rules.Load().digest})
	if err != nil {
		return err
	}
	if !said.InUse || said.Digest == b.rules.Load().digest {
		return nil
	}
	if said.Total > rules.MaxEncoded || said.Total <= 0 {
		return fmt.Errorf("its rules have %d bytes, 1 to %d are taken", said.Total, rules.MaxEncoded)
	}
	var whole bytes.Buffer
	for whole.Len() < said.Total {
		part, err := b.ask(ctx, name, Ask{Digest: b.rules.Load().digest, Wanted: said.Digest, Offset: whole.Len()})
		if err != nil {
			return err
		}
		if len(part.Text) == 0 || part.Digest != said.Digest {
			b.exchange.asked()
			return fmt.Errorf("%w: its rules have changed meanwhile", errUnreached)
		}
		whole.Write(part.Text)
	}
	if whole.Len() != said.Total || sha256.Sum256(whole.Bytes()) != said.Digest {
		return errors.New("its rules arrived otherwise than it has them")
	}
	book, err := rules.Decode(whole.Bytes())
	if err != nil {
		return err
	}
	return b.merge(name, book)
}

func (b *Broker) ask(ctx context.Context, name string, ask Ask) (Part, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	part, err := b.options.Peers.Rules(ctx, name, ask)
	if err != nil {
		return Part{}, fmt.Errorf("%w: %w", errUnreached, err)
	}
	return part, nil
}

// judged are the faults and contests of rules that are on the board.
type judged struct {
	mu      sync.Mutex
	present map[*problem.Kind]map[string]bool // by kind and subject
}

// judgeRules puts what is wrong with the rules, as the fleets are now, on the board.
func (b *Broker) judgeRules() {
	r := b.rules.Load()
	broken, contested := map[string]string{}, map[string]string{}
	for _, fault := range b.RuleFaults() {
		add(broken, fault.Key.String(), fault.Message)
	}
	for _, contest := range r.book.Contests() {
		add(contested, contest.Key.String(), contest.String())
	}
	b.judged.mu.Lock()
	defer b.judged.mu.Unlock()
	if b.judged.present == nil {
		b.judged.present = map[*problem.Kind]map[string]bool{}
	}
	for kind, found := range map[*problem.Kind]map[string]string{rules.Broken: broken, rules.Contested: contested} {
		there := map[string]bool{}
		for subject, detail := range found {
			there[subject] = true
			b.options.Board.Set(kind, subject, detail, b.now())
		}
		for subject := range b.judged.present[kind] {
			if !there[subject] {
				b.options.Board.Clear(kind, subject)
			}
		}
		b.judged.present[kind] = there
	}
}

// add notes a fault of a rule. There may be thousands; the board shows the first of them.
func add(found map[string]string, subject, detail string) {
	const rest = "further rules"
	switch before, known := found[subject]; {
	case known:
		if len(before) < 500 {
			found[subject] = before + "; " + detail
		}
	case len(found) < shownFaults:
		found[subject] = detail
	default:
		found[rest] = "more than are shown: holdfast broker rules list has them"
	}
}
