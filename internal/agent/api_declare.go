package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Bounds of an operator's word.
const (
	declaredTimeout = 2 * time.Second // for one node to answer
	maxDeclared     = 1024            // nodes in one message
	maxReason       = 500             // bytes of a reason
	declaredPoll    = 20 * time.Millisecond
)

// declaredAsker passes an operator's word on, or asks what speaks against it.
type declaredAsker interface {
	Declared(ctx context.Context, lnn int, r *holdfastv1.DeclaredRequest) (*holdfastv1.DeclaredResponse, error)
}

// Declared passes an operator's word on to another node.
func (p *peers) Declared(ctx context.Context, lnn int, r *holdfastv1.DeclaredRequest) (*holdfastv1.DeclaredResponse, error) {
	client, err := p.of(lnn)
	if err != nil {
		return nil, err
	}
	return client.Declared(ctx, r)
}

// Declared takes in an operator's word from the node that he asked.
func (s peerService) Declared(ctx context.Context, r *holdfastv1.DeclaredRequest) (*holdfastv1.DeclaredResponse, error) {
	if _, err := callerIn(ctx, s.known().world.Config); err != nil {
		return nil, err
	}
	return s.answerDeclared(r)
}

// answerDeclared says what this node knows of nodes, and takes in that they are dead unless it was only asked.
func (a *Agent) answerDeclared(r *holdfastv1.DeclaredRequest) (*holdfastv1.DeclaredResponse, error) {
	if len(r.Nodes) > maxDeclared || len(r.Reason) > maxReason || len(r.By) > maxReason {
		return nil, api.Invalid("too much at once: at most %d nodes, and %d bytes of text", maxDeclared, maxReason)
	}
	v := a.known()
	response := &holdfastv1.DeclaredResponse{StoreRevision: v.storeRevision}
	var lnns []int
	var words []declaration
	for _, n := range r.Nodes {
		lnn := int(n.Lnn)
		if _, known := v.world.Config.Node(lnn); !known {
			continue
		}
		lnns = append(lnns, lnn)
		words = append(words, declaration{lnn, tenure.Incarnation(n.Incarnation.GetStart()), declaredRecord{r.By, time.UnixMilli(r.AtUnixMs).UTC(), r.Reason}})
	}
	o := a.tenancy.Opinion(lnns)
	for _, lnn := range lnns {
		response.Nodes = append(response.Nodes, &holdfastv1.DeclaredNode{
			Lnn: int32(lnn), Incarnation: &holdfastv1.Incarnation{Start: uint64(o.latest[lnn])}, Heard: slices.Contains(o.heard, lnn),
		})
	}
	if !r.Ask {
		a.declare(words)
	}
	return response, nil
}

// DeclareDead takes an operator's word that nodes are dead.
func (s nodeService) DeclareDead(ctx context.Context, r *holdfastv1.DeclareDeadRequest) (*holdfastv1.ChangeResult, error) {
	v := s.known()
	dead, err := findEveryNode(v.world.Config, r.Nodes)
	if err != nil {
		return nil, err
	}
	if slices.Contains(dead, s.self.LNN) {
		return nil, api.Invalid("%s is the node that you ask, so it lives; ask a node that is to go on", s.self.Name)
	}
	reason := strings.TrimSpace(r.Reason)
	if reason == "" || len(reason) > maxReason {
		return nil, api.Invalid("say why with --reason, in at most %d bytes: it is kept, and whoever finds the nodes will want to know", maxReason)
	}
	d := s.collect(ctx, v, dead)
	if alive := d.alive(); alive != "" && !r.Force {
		return nil, api.NotNow("nothing was changed: %s. A node that lives and is declared dead would go on holding its addresses until it hears of it. Turn it off, or, if it must be, repeat with --force", alive)
	}
	if r.ForceStore {
		if err := s.mayRebuild(ctx, d); err != nil {
			return nil, err
		}
	}
	result := &holdfastv1.ChangeResult{DryRun: r.Options.GetDryRun(), Revision: v.configRevision, Note: d.follows(), Moves: s.movesIfDeclared(v, d)}
	for _, lnn := range dead {
		result.Changes = append(result.Changes, &holdfastv1.Change{Path: d.name(lnn), New: "declared dead"})
	}
	if r.ForceStore {
		result.Changes = append(result.Changes, &holdfastv1.Change{Path: "store", New: "rebuilt from the member of " + s.self.Name})
	}
	if result.DryRun {
		return result, nil
	}
	word := declaredRecord{By: callerOn(ctx, s.self.Name), At: time.Now().UTC(), Reason: reason}
	if r.ForceStore {
		if err := s.seat.rebuild(ctx, word.By, reason, d.revision()); err != nil {
			return nil, err
		}
	}
	result.PendingNodes = s.spreadWord(ctx, v, d, word)
	if result.PendingNodes == nil {
		result.PendingNodes = s.awaitDeclared(ctx, r.Options, d)
	}
	return result, nil
}

// known is what the loop saw last; of an agent that waits for a store without a majority it is the configuration in its directory.
func (a *Agent) known() *view {
	if v := a.view.Load(); v != nil {
		return v
	}
	return &view{world: &steering.World{Config: a.begun, Self: a.self.LNN}, configRevision: 0}
}

// callerOn names the user who asks, by the kernel's word, and the node that he asks.
func callerOn(ctx context.Context, node string) string {
	if caller, known := api.Caller(ctx); known {
		return fmt.Sprintf("user %d on %s", caller.UID, node)
	}
	return "somebody on " + node
}

// collect asks every other node, those that are to be declared dead as well: one that answers lives.
func (s nodeService) collect(ctx context.Context, v *view, dead []int) declaring {
	d := declaring{self: s.self.LNN, dead: dead, opinions: map[int]opinion{}, name: func(lnn int) string { return nameOf(v.world, lnn) }}
	own := s.tenancy.Opinion(dead)
	own.revision = v.storeRevision
	d.opinions[s.self.LNN] = own
	request := &holdfastv1.DeclaredRequest{Ask: true}
	for _, lnn := range dead {
		request.Nodes = append(request.Nodes, &holdfastv1.DeclaredNode{Lnn: int32(lnn)})
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, node := range v.world.Config.Nodes {
		d.all = append(d.all, tenure.Voice{LNN: node.LNN, Rack: node.Rack, Voter: hosts(v.world.Config, node.LNN)})
		if node.LNN == s.self.LNN {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, declaredTimeout)
			defer cancel()
			answer, err := s.edges.declared.Declared(ctx, node.LNN, request)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			d.opinions[node.LNN] = opinionOf(answer)
		})
	}
	group.Wait()
	return d
}

func opinionOf(answer *holdfastv1.DeclaredResponse) opinion {
	o := opinion{latest: map[int]tenure.Incarnation{}, revision: answer.StoreRevision}
	for _, n := range answer.Nodes[:min(len(answer.Nodes), maxDeclared)] {
		o.latest[int(n.Lnn)] = tenure.Incarnation(n.Incarnation.GetStart())
		if n.Heard {
			o.heard = append(o.heard, int(n.Lnn))
		}
	}
	return o
}

// spreadWord tells this node and all that answered, and names those that could not be told.
func (s nodeService) spreadWord(ctx context.Context, v *view, d declaring, word declaredRecord) []*holdfastv1.PendingNode {
	request := &holdfastv1.DeclaredRequest{By: word.By, AtUnixMs: word.At.UnixMilli(), Reason: word.Reason}
	var words []declaration
	for _, lnn := range d.dead {
		incarnation := d.incarnation(lnn)
		words = append(words, declaration{lnn, incarnation, word})
		request.Nodes = append(request.Nodes, &holdfastv1.DeclaredNode{Lnn: int32(lnn), Incarnation: &holdfastv1.Incarnation{Start: uint64(incarnation)}})
	}
	s.declare(words)
	var mu sync.Mutex
	var group sync.WaitGroup
	var pending []*holdfastv1.PendingNode
	for lnn := range d.opinions {
		if lnn == s.self.LNN {
			continue
		}
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, declaredTimeout)
			defer cancel()
			if _, err := s.edges.declared.Declared(ctx, lnn, request); err != nil {
				mu.Lock()
				defer mu.Unlock()
				pending = append(pending, &holdfastv1.PendingNode{Name: d.name(lnn), Why: "it was not told: it " + whySilent(v, lnn, declaredTimeout, err) + "; it learns from the store, or repeat the command"})
			}
		})
	}
	group.Wait()
	return pending
}

// awaitDeclared waits until the store has the word, and this node may hold.
func (s nodeService) awaitDeclared(ctx context.Context, options *holdfastv1.ChangeOptions, d declaring) []*holdfastv1.PendingNode {
	if options.GetNoWait() {
		return nil
	}
	limit := defaultWait
	if options.GetWaitMs() > 0 {
		limit = time.Duration(options.GetWaitMs()) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		var pending []*holdfastv1.PendingNode
		for _, word := range s.declarations.list() {
			if slices.Contains(d.dead, word.lnn) {
				pending = append(pending, &holdfastv1.PendingNode{Name: d.name(word.lnn), Why: "the store does not answer, so that the word is not on record yet; bring back a majority of its members, or repeat with --force-store"})
			}
		}
		if standing := s.tenancy.Standing(); len(pending) == 0 && !standing.MayHold {
			pending = append(pending, &holdfastv1.PendingNode{Name: s.self.Name, Why: "it may not hold yet: " + standing.Reason})
		}
		if len(pending) == 0 || ctx.Err() != nil {
			return pending
		}
		wait(ctx, declaredPoll)
	}
}

// movesIfDeclared says what would move if nodes were declared dead and all that answer could hold again.
func (s nodeService) movesIfDeclared(v *view, d declaring) []*holdfastv1.Move {
	w := *v.world
	w.Settling = false
	w.Nodes = map[int]steering.Node{}
	for lnn, node := range v.world.Nodes {
		node.Lapsed = ""
		w.Nodes[lnn] = node
	}
	var moves []*holdfastv1.Move
	for _, id := range w.Config.Pools() {
		moves = append(moves, moveMessages(&w, id, steering.ForeseeDown(&w, id, d.dead, s.now()).Moves)...)
	}
	return append(moves, serviceMoveMessages(&w, steering.ForeseeServicesDown(&w, d.dead, s.now()).Moves)...)
}
