package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/verdict"
)

// assemble makes the rooms that do not need the store, and drops every moving address that is found on this node before
// anybody is spoken to: they may be somebody else's by now.
func (a *Agent) assemble(config *cluster.Config, e edges) error {
	a.edges, a.begun = e, config
	a.loads = load.NewBoard(a.registry)
	a.checks = e.runner(verdict.Options{Logger: a.log, Board: a.board, Registerer: a.registry})
	a.loop = &loop{
		Agent: a, stills: newStills(), replica: newReplica(), notes: make(chan struct{}, 1), loadNotes: make(chan struct{}, 1), turns: steering.Turns{},
		moveFrom: map[netip.Addr]moveEnds{}, causes: map[netip.Addr]cause{}, promises: steering.NewPromises(),
		readiness: steering.NewReadiness(), toldReady: steering.ToldReady{}, reported: map[int]string{},
	}
	a.declarations = newDeclarations()
	a.peers.SetNodes(config.Nodes)
	a.tenancy = newTenancy(a.self.LNN, newLife(), timingOf(config.Settings), a.now)
	a.tenancy.wire, a.tenancy.log, a.tenancy.silence, a.tenancy.changed = e.wire, a.log, a.silence, a.loop.note
	a.tenancy.found, a.tenancy.draw = a.foundOver, a.draw
	a.haste = newHaste(e.hurry, a.now, a.log, a.registry)
	a.tenancy.hurry = a.haste.begin
	a.gateways = newGateways(e.gateways, a.tenancy.grounded, a.now, a.log)
	a.gateways.changed = a.loop.note
	a.gateways.configure(config, a.self.LNN)
	a.tenancy.probe = a.gateways.ask
	a.tenancy.idle = a.from != nil
	a.tenancy.Configure(config)
	a.hooks = &hookRelay{event: a.event, log: a.log, peers: a.peers, others: a.present, hooks: a.configuredHooks}
	a.clients = newClients(a, e)
	a.applier = &applier{
		leave: a.clients.leave, coming: newArrivals(a).coming, released: a.handed,
		reconciler: address.New(address.Options{
			Kernel: e.kernel, Announcer: e.announcer, Logger: a.log, Board: a.board, Registerer: a.registry, Now: a.now,
			Permit: a.tenancy.Permitted,
		}),
		hooks: a.hooks, mayHold: a.tenancy.Permitted, log: a.log, done: a.applied, wake: make(chan struct{}, 1), stills: newStills(),
	}
	a.seat = newSeat(a)
	a.meetGuard(config)
	a.answers = &answers{Agent: a, rates: map[int]float64{}, agreed: map[int]time.Time{}}
	a.answers.server = e.names(a.answers.answered)
	a.registry.MustRegister(collector{a})
	if a.from != nil {
		return nil // what is there is the running agent's
	}
	if err := a.applier.reconciler.CleanUp(a.ctx, movingAddress(config)); err != nil {
		return fmt.Errorf("dropping addresses that an earlier agent left behind: %w", err)
	}
	return nil
}

// cookieSecrets is the key of the server cookies (RFC 9018), the same on every node, so that a resolver which turns to another
// service address keeps its cookie.
func (a *Agent) cookieSecrets() []dns.CookieSecret {
	var secret dns.CookieSecret
	copy(secret[:], a.identity.Derive("dns cookie"))
	return []dns.CookieSecret{secret}
}

func (a *Agent) configuredHooks() []cluster.Hook {
	if v := a.view.Load(); v != nil {
		return v.world.Config.Settings.Hooks
	}
	return nil
}

// present are the numbers of the other nodes that are up.
func (a *Agent) present() []int {
	v := a.view.Load()
	if v == nil {
		return a.peers.all()
	}
	var lnns []int
	for lnn, node := range v.world.Nodes {
		if node.Present && lnn != a.self.LNN {
			lnns = append(lnns, lnn)
		}
	}
	return lnns
}

// silence takes every moving address off this node at once: the right to hold them has run out.
func (a *Agent) silence(reason string) {
	a.applier.reconciler.Silence(reason)
	a.clients.silenced()
	a.loop.note() // the right may be back already
	if !a.leaving.Load() {
		a.event("node.lapsed", a.self.Name, reason, nil)
	}
}

// newLife is a number that no other start of this node has had.
func newLife() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// foundOver writes down that incarnations of another node are over. The tenancy wakes the loop.
func (a *Agent) foundOver(f tenure.Finding) {
	name := a.calledNode(f.LNN)
	message := fmt.Sprintf("incarnation %d of %s is down: %s", f.Over, name, f.How)
	if !f.Heard.IsZero() {
		message += fmt.Sprintf("; last heard %s ago", a.now().Sub(f.Heard).Round(time.Millisecond))
	}
	now := a.now()
	a.event(kindFoundDown, name, message, findingFields(f, a.calledNode, func(t time.Time) time.Time { return wall(t, now) }))
}

// takenFields is what is known of how addresses came here; failover is empty unless they came by one.
func takenFields(failover string, done applied, now time.Time) map[string]string {
	fields := map[string]string{}
	if failover != "" {
		fields[fieldFailover] = failover
	}
	if !done.put.IsZero() {
		fields[fieldPut] = timeField(wall(done.put, now))
	}
	if !done.announced.IsZero() {
		fields[fieldAnnounced] = timeField(wall(done.announced, now))
	}
	return fields
}

// applied tells what a wish did to the interfaces.
func (a *Agent) applied(w wish, done applied) {
	now := a.now()
	a.clients.changed(w, done)
	for _, addr := range done.released {
		a.event("address.released", addr.String(), addr.String()+" is off this node", nil)
	}
	for _, addr := range done.taken {
		a.event(kindTaken, addr.String(), addr.String()+" is on this node and announced", takenFields(w.causes[addr], done, now))
	}
	a.loop.note()
}

// openStore starts this node's member of the store if it hosts one, connects, and makes sure that the store is this cluster's.
// It waits for the store as long as it takes: without it a starting node knows nothing.
func (a *Agent) openStore(ctx context.Context, config *cluster.Config) error {
	endpoints, embedded := config.Settings.StoreEndpoints, false
	if len(endpoints) == 0 {
		embedded = true
		var err error
		if endpoints, err = a.seat.begin(ctx, config); err != nil {
			return err
		}
	}
	client, err := store.Open(store.Options{
		Endpoints: endpoints, TLS: a.identity.ClientTLS(), Cluster: config.Settings.Name, Logger: a.log, Board: a.board, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	if a.clusterID, err = a.belong(ctx, client, config.Settings.Name); err != nil {
		return errors.Join(err, client.Close())
	}
	if embedded {
		a.seat.connected(client)
	}
	a.useStore(store.Guard(client, a.clusterID, a.board))
	return a.seed(ctx, config)
}

// useStore gives the store to the rooms that need it.
func (a *Agent) useStore(s store.Store) {
	a.store = s
	a.tenancy.store = s
	a.writer = &writer{store: s, log: a.log, done: a.loop.note, now: a.now, pending: map[string]int64{}, failing: map[string]time.Time{}}
}

// storePause is the time between two tries to reach the store at start.
const storePause = 250 * time.Millisecond

// belong returns the identity of the cluster whose store this is: the one that this node has seen before, or at the first
// start the one that the store has or gets now.
func (a *Agent) belong(ctx context.Context, client store.Store, name string) (store.ClusterID, error) {
	path := filepath.Join(a.options.Dir, clusterIDFile)
	if data, err := os.ReadFile(path); err == nil {
		var id store.ClusterID
		if err := json.Unmarshal(data, &id); err != nil {
			return id, fmt.Errorf("reading %s: %w; if the file is damaged, take a copy from another node", path, err)
		}
		return id, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return store.ClusterID{}, err
	}
	for {
		id, err := store.Found(ctx, client, name)
		if err == nil {
			data, _ := json.Marshal(id)
			return id, renameio.WriteFile(path, append(data, '\n'), 0o600)
		}
		if errors.Is(err, store.ErrForeign) || ctx.Err() != nil {
			return id, err
		}
		a.log.Info("waiting for the store", "error", err)
		wait(ctx, storePause)
	}
}

// seed puts the configuration of this node's directory into a store that has none.
func (a *Agent) seed(ctx context.Context, config *cluster.Config) error {
	record := configRecord{YAML: string(cluster.Print(config)), By: a.self.Name, At: time.Now()}
	put, err := store.PutOp(keyConfig, record, 0)
	if err != nil {
		return err
	}
	for {
		_, err = a.store.Commit(ctx, store.Txn{If: []store.Condition{store.Absent(keyConfig)}, Then: []store.Op{put}})
		if err == nil || errors.Is(err, store.ErrConflict) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.log.Info("waiting for the store", "error", err)
		wait(ctx, storePause)
	}
}

// keepConfig keeps the configuration in this node's directory, so that the next start knows where the others are.
func (l *loop) keepConfig(config *cluster.Config) {
	path := filepath.Join(l.options.Dir, configFile)
	if err := renameio.WriteFile(path, cluster.Print(config), 0o600); err != nil {
		l.board.Set(problemDirectory, path, err.Error(), l.now())
		return
	}
	l.board.Clear(problemDirectory, path)
}

// setHistory takes in what draw found; called by the tenancy.
func (l *loop) setHistory(past steering.Past) {
	l.historyMu.Lock()
	l.history = past
	l.historyMu.Unlock()
	l.note()
}

func (a *Agent) closeStore() {
	if a.store != nil {
		if err := a.store.Close(); err != nil {
			a.log.Warn("closing the store", "error", err)
		}
	}
	a.seat.close()
}

// How long a stopping agent waits for what it holds to move away.
const leaveLimit = 5 * time.Second

// rooms are what runs in an agent, and what of it failed.
type rooms struct {
	*Agent
	running context.Context
	failed  chan error
}

func newRooms(a *Agent, running context.Context) *rooms {
	return &rooms{Agent: a, running: running, failed: make(chan error, 8)}
}

// run runs one of them until the context ends.
func (r *rooms) run(what string, f func(context.Context) error) {
	r.wg.Go(func() {
		if err := f(r.running); err != nil && r.running.Err() == nil {
			r.failed <- fmt.Errorf("%s: %w", what, err)
		}
	})
}

func void(f func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error { f(ctx); return nil }
}

// learn starts those that only learn, besides the loop, which acts as soon as this agent has its node's place.
func (r *rooms) learn(batches <-chan store.Batch) {
	r.run("checks", void(r.checks.Run))
	r.run("news of the checks", void(r.passOnChecks))
	r.run("interfaces", void(r.watchLinks))
	r.run("the loop", func(ctx context.Context) error {
		r.loop.run(ctx, batches)
		return errors.New("the watch of the store ended")
	})
}

// act starts the others.
func (r *rooms) act() {
	r.run("keeping addresses", r.applier.reconciler.Run)
	r.run("taking addresses", void(r.applier.Run))
	r.run("networks", void(r.watchNetworks))
	r.run("load", void(r.measure))
	r.run("the site's DNS", void(r.watchSites))
	r.run("connections of clients", void(r.clients.follow))
	r.run("waking clients", void(r.clients.tickler.Run))
	r.run("members of the store", void(r.keepSeat))
	r.run("what operators declared", void(r.keepDeclared))
	r.run("systemd", void(r.notifySystemd))
	r.run("certificates", void(r.watchIdentity))
	r.run("the guard", void(r.keepGuard))
	r.run("handing over", void(r.meetSuccessors))
}

// keepSeat looks after this node's member of the store once no other agent has it.
func (r *rooms) keepSeat(ctx context.Context) {
	if r.from != nil {
		select {
		case <-r.from.gone:
		case <-ctx.Done():
			return
		}
		if r.options.MetricsAddress != "" {
			if err := r.listenMetrics(); err != nil {
				r.log.Error("this agent works on without it", "error", err)
			}
		}
	}
	r.seat.run(ctx)
}

// serve runs the rooms until the context ends, then hands over and stops.
func (a *Agent) serve(ctx, running context.Context, stop context.CancelFunc) error {
	// The right to hold outlives everything that could put an address on an interface: it is given up last.
	holding, release := context.WithCancel(context.WithoutCancel(running))
	var held sync.WaitGroup
	held.Go(func() { a.tenancy.Run(holding) })
	a.rooms.act()
	if a.options.Took != nil {
		a.options.Took()
	}
	err := a.untilEnd(ctx)
	a.answers.server.Close()
	stop()
	a.wg.Wait()
	if !a.wasReplaced.Load() {
		a.applier.reconciler.Silence("the agent stops")
		a.leaveGuard()
	}
	release()
	held.Wait()
	return err
}

// heartbeat has this node take part in the heartbeats until the returned function is called, which is after everything else has ended.
func (a *Agent) heartbeat() (still func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	a.beating = make(chan error, 1)
	var beats sync.WaitGroup
	beats.Go(func() {
		if err := a.edges.wire.Serve(ctx, a.tenancy); err != nil && ctx.Err() == nil {
			a.beating <- fmt.Errorf("heartbeats: %w", err)
		}
	})
	beats.Go(func() { a.tenancy.keepSilent(ctx) })
	beats.Go(func() { a.tenancy.tellFindings(ctx) })
	beats.Go(func() { a.gateways.run(ctx) })
	return func() {
		cancel()
		beats.Wait()
	}
}

// untilEnd waits until the agent is to end, and does what comes first then. A handover that has begun is waited for.
func (a *Agent) untilEnd(ctx context.Context) (err error) {
	select {
	case <-a.replaced:
		a.leaveRetired()
		return nil
	case <-ctx.Done():
	case err = <-a.rooms.failed:
	case err = <-a.beating:
	}
	a.ending.Lock()
	over := a.wasReplaced.Load()
	if !over {
		a.leaving.Store(true)
	}
	a.ending.Unlock()
	if over {
		<-a.replaced
		a.leaveRetired()
		return nil
	}
	if err == nil {
		a.leave()
	}
	return err
}

// identityEvery is how often this node looks at its certificates.
const identityEvery = 24 * time.Hour

// watchIdentity says in time when a certificate is about to run out.
func (a *Agent) watchIdentity(ctx context.Context) {
	for a.identity != nil && ctx.Err() == nil {
		a.identity.Check(a.board, time.Now())
		wait(ctx, identityEvery)
	}
}

// passOnChecks tells the loop when a verdict changed.
func (a *Agent) passOnChecks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.checks.Changed():
			a.loop.note()
		}
	}
}

// leave hands over what this node holds, for a bounded time: others take it while this node still works.
func (a *Agent) leave() {
	a.event("node.leaving", a.self.Name, "the agent stops: what it holds is handed over", nil)
	a.leaving.Store(true)
	a.loop.note()
	defer a.noteOutage()
	deadline := time.Now().Add(leaveLimit)
	for time.Now().Before(deadline) && a.ctx.Err() == nil {
		v := a.view.Load()
		over := v == nil || !v.holdsMoving() || !v.othersFitBut(a.self.LNN)
		if over && a.applier.AtRest() && a.clients.pushing.Load() == 0 { // clients that came late are to be woken: nobody else knows of them
			return
		}
		wait(a.ctx, 10*time.Millisecond)
	}
	a.log.Warn("stopping although some addresses were not handed over in time")
}
