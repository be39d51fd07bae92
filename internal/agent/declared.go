package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
)

// A majority of the nodes can die at once. Then nobody can find out that they did, and an operator says so (tenure, declared.go). His
// word goes to every node that the asked one reaches, and into the member records of the dead as soon as the store answers, so that
// whoever starts later knows.

// declaration is an operator's word that a node is dead.
type declaration struct {
	lnn         int
	incarnation tenure.Incarnation // up to which it is over; zero: the node was never heard of
	word        declaredRecord
}

// text says it for people.
func (d declaration) text() string {
	return fmt.Sprintf("declared dead by %s: %s", d.word.By, d.word.Reason)
}

// declarations are those words that are not in the store yet. It is safe for concurrent use. There is at most one for each node that is
// configured.
type declarations struct {
	mu   sync.Mutex
	open map[int]declaration
	wake chan struct{}
}

func newDeclarations() *declarations {
	return &declarations{open: map[int]declaration{}, wake: make(chan struct{}, 1)}
}

func (d *declarations) add(word declaration) {
	d.mu.Lock()
	if old, there := d.open[word.lnn]; !there || old.incarnation <= word.incarnation {
		d.open[word.lnn] = word
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *declarations) done(word declaration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[word.lnn].incarnation == word.incarnation {
		delete(d.open, word.lnn)
	}
}

// list are the open ones, by node.
func (d *declarations) list() []declaration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.open), func(a, b declaration) int { return cmp.Compare(a.lnn, b.lnn) })
}

// declare acts on an operator's word: at once by what this node knows, and in the store as soon as that answers.
func (a *Agent) declare(words []declaration) {
	for _, word := range words {
		name := "node " + strconv.Itoa(word.lnn)
		if v := a.view.Load(); v != nil {
			name = nameOf(v.world, word.lnn)
		}
		a.event("node.declared-dead", name, name+" was "+word.text(), map[string]string{
			"by": word.word.By, "reason": word.word.Reason, "at": word.word.At.UTC().Format(time.RFC3339), "incarnation": strconv.FormatUint(uint64(word.incarnation), 10),
		})
		a.declarations.add(word)
		a.tenancy.Declare(word.lnn, word.incarnation, word.text())
	}
	a.loop.note()
}

// declaredAgain is the time between two tries to write an operator's word into the store.
const declaredAgain = 500 * time.Millisecond

// keepDeclared writes what operators declared into the store, however long that does not answer.
func (a *Agent) keepDeclared(ctx context.Context) {
	for ctx.Err() == nil {
		for _, word := range a.declarations.list() {
			if err := a.writeDeclared(ctx, word); err != nil {
				a.log.Debug("an operator's word is not in the store yet; trying again", "node", word.lnn, "error", err)
				continue
			}
			a.declarations.done(word)
		}
		timer := time.NewTimer(declaredAgain)
		again := timer.C
		if len(a.declarations.list()) == 0 {
			again = nil
		}
		select {
		case <-ctx.Done():
		case <-a.declarations.wake:
		case <-again:
		}
		timer.Stop()
	}
}

// writeDeclared writes one word, unless another node has done so, or the node has come back.
func (a *Agent) writeDeclared(ctx context.Context, word declaration) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := memberKey(word.lnn)
	present, _, err := store.GetRecord[memberRecord](ctx, a.store, key)
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	record, changed := present.Value.declared(word)
	if !changed {
		return nil
	}
	if record.Name == "" {
		if v := a.view.Load(); v != nil {
			record.Name = nameOf(v.world, word.lnn)
		}
	}
	put, err := store.PutOp(key, record, 0)
	if err != nil {
		return err
	}
	_, err = a.store.Commit(ctx, store.Txn{If: []store.Condition{{Key: key, Revision: present.Revision}}, Then: []store.Op{put}})
	return err
}

// declared is a node's report with an operator's word that it is dead, and whether that changes it. A report of a later incarnation
// says that it came back.
func (m memberRecord) declared(word declaration) (memberRecord, bool) {
	if m.Incarnation > word.incarnation || m.Incarnation == word.incarnation && m.Over && m.Declared != nil {
		return m, false
	}
	m.Incarnation, m.Over, m.Declared = word.incarnation, true, &word.word
	return m, true
}

// opinion is what one node says of those that are to be declared dead.
type opinion struct {
	heard    []int // it has heard them within their span
	latest   map[int]tenure.Incarnation
	revision int64 // up to which it has seen the store
}

// declaring is what an operator asks for, and what is known about it.
type declaring struct {
	self     int
	dead     []int
	all      []tenure.Voice  // every node of the configuration
	opinions map[int]opinion // of this node, and of every one that answered
	name     func(lnn int) string
}

// alive says what speaks against it: somebody lives who is to be declared dead. Empty: nothing does.
func (d declaring) alive() string {
	var why []string
	for _, lnn := range d.dead {
		if _, answers := d.opinions[lnn]; answers {
			why = append(why, fmt.Sprintf("the agent of %s answers", d.name(lnn)))
			continue
		}
		for _, hearer := range slices.Sorted(maps.Keys(d.opinions)) {
			if slices.Contains(d.opinions[hearer].heard, lnn) {
				why = append(why, fmt.Sprintf("%s hears the heartbeats of %s", d.name(hearer), d.name(lnn)))
				break
			}
		}
	}
	return strings.Join(why, "; ")
}

// silent are the nodes that neither answer nor are to be declared dead.
func (d declaring) silent() []int {
	var lnns []int
	for _, v := range d.all {
		if _, answers := d.opinions[v.LNN]; !answers && !slices.Contains(d.dead, v.LNN) {
			lnns = append(lnns, v.LNN)
		}
	}
	return lnns
}

// incarnation is the latest of a node that anybody knows.
func (d declaring) incarnation(lnn int) tenure.Incarnation {
	var latest tenure.Incarnation
	for _, o := range d.opinions {
		latest = max(latest, o.latest[lnn])
	}
	return latest
}

// revision is how far anybody has seen the store.
func (d declaring) revision() int64 {
	var revision int64
	for _, o := range d.opinions {
		revision = max(revision, o.revision)
	}
	return revision
}

// follows says who may hold when the word is given, and who still may not and why.
func (d declaring) follows() string {
	voices := slices.Clone(d.all)
	for i := range voices {
		voices[i].Declared = slices.Contains(d.dead, voices[i].LNN)
	}
	var texts []string
	for _, v := range voices {
		if _, answers := d.opinions[v.LNN]; !answers || v.Declared {
			continue
		}
		texts = append(texts, d.right(v.LNN, tenure.ChooseObservers(v.LNN, voices, nil)))
	}
	if silent := d.silent(); len(silent) > 0 {
		texts = append(texts, fmt.Sprintf("%s: no answer, and not named here, so that the others still need that word; name it too if it is dead", d.names(silent)))
	}
	return strings.Join(texts, "\n")
}

// right says whether a node may hold by the word of its observers.
func (d declaring) right(lnn int, observers []int) string {
	var answering []int
	for _, o := range observers {
		if _, answers := d.opinions[o]; answers {
			answering = append(answering, o)
		}
	}
	need := tenure.Need(len(observers))
	switch {
	case len(observers) == 0:
		return d.name(lnn) + ": may hold by itself, whoever else is reached"
	case len(answering) < need:
		return fmt.Sprintf("%s: may not hold, since only %d of its %d observers answer and it needs %d", d.name(lnn), len(answering), len(observers), need)
	}
	return fmt.Sprintf("%s: may hold by the word of %s", d.name(lnn), d.names(answering))
}

func (d declaring) names(lnns []int) string {
	names := make([]string, len(lnns))
	for i, lnn := range lnns {
		names[i] = d.name(lnn)
	}
	return strings.Join(names, ", ")
}
