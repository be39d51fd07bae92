package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/store"
)

// seat is this node's place in the embedded store: the member that runs here, if one does, and the endpoints that follow the
// roster. Where its member leads, it also brings the members to those of the configuration (reseat.go). A node with an external
// store has an empty one. All methods are safe for concurrent use.
type seat struct {
	*Agent
	wake chan struct{}

	mu      sync.Mutex
	member  *store.Member // nil: none runs here
	stuck   bool          // the last one did not end: no other can start in this process
	fault   string        // why the member whose data is here does not run
	belongs bool          // this node has belonged to a store before
	hosts   []string      // peer addresses of the store's hosts in the configuration of the start
	roster  rosterRecord  // as last known
	waits   string        // what a first start waits for
	tried   time.Time     // when a member was last started here, or tried to

	rebuilding bool // an operator has the store rebuilt from the member here, which is stopped and started for it

	// Of the goroutine that runs rounds.
	client   store.Client // nil: the store is external
	followed int64        // revision of the roster whose endpoints are in use
	bench    bench
	failing  string // why the last step failed
}

// How a seat paces itself.
const (
	seatLook    = time.Second      // how often it looks while nothing calls it
	seatTry     = 5 * time.Second  // bounds a step and the questions before it
	seatRestart = 10 * time.Second // between two tries to start a member here
)

func newSeat(a *Agent) *seat {
	return &seat{Agent: a, wake: make(chan struct{}, 1), bench: newBench()}
}

func (s *seat) dir() string { return filepath.Join(s.options.Dir, storeDir) }

// begin starts the member whose data is here, or takes part in founding the store at a first start, and returns the endpoints of
// the members.
func (s *seat) begin(ctx context.Context, config *cluster.Config) ([]string, error) {
	kept, err := readRoster(s.options.Dir)
	if err != nil {
		return nil, err
	}
	_, unknown := os.Stat(filepath.Join(s.options.Dir, clusterIDFile))
	if unknown != nil {
		kept = rosterRecord{} // of another cluster, or of none
	}
	s.mu.Lock()
	s.hosts, s.belongs = hostPeers(config), unknown == nil
	s.mu.Unlock()
	switch {
	case store.HasData(s.dir()):
		err = s.startFirst(config)
	case unknown == nil:
		// Its member, if it has one, lost its data, or never was here: the roster will say which.
	default:
		var decision foundingDecision
		if decision, err = s.askFounding(ctx, config, s.peers); err != nil {
			return nil, err
		}
		kept = decision.roster
		if decision.found {
			err = s.startFirst(config)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(kept.Members) == 0 {
		kept = rosterOfPeers(hostPeers(config))
	}
	s.mu.Lock()
	s.roster = kept
	s.mu.Unlock()
	return endpointsOf(kept, peerAddress(s.self)), nil
}

// startFirst starts this node's member at the start of the agent. A full disk is no reason not to run: the other members may carry the
// store, and what this node holds does not need its own.
func (s *seat) startFirst(config *cluster.Config) error {
	peers := map[string]string{s.self.Name: peerAddress(s.self)}
	for _, node := range config.Voters() {
		if len(node.Addresses) > 0 {
			peers[node.Name] = peerAddress(node)
		}
	}
	err := s.start(peers, false)
	if errors.Is(err, store.ErrFull) {
		s.log.Error("this node runs without its member of the store", "error", err)
		if !errors.Is(err, store.ErrStuck) {
			s.wg.Go(func() { s.insist(peers) })
		}
		return nil
	}
	return err
}

// insist tries to start the member again until this node has a view of the cluster and the rounds look after it: where this member
// is the only one, there is none before it runs.
func (s *seat) insist(peers map[string]string) {
	for {
		if wait(s.ctx, seatRestart); s.ctx.Err() != nil || s.view.Load() != nil {
			return
		}
		if err := s.start(peers, false); err == nil || errors.Is(err, store.ErrStuck) {
			return
		}
	}
}

// start starts a member here.
func (s *seat) start(peers map[string]string, joining bool) error {
	return s.startWith(store.MemberOptions{Peers: peers, Joining: joining})
}

// startWith starts a member here; what is the same for all is added to the options.
func (s *seat) startWith(options store.MemberOptions) error {
	s.mu.Lock()
	s.tried = s.now()
	s.mu.Unlock()
	options.Name, options.Dir, options.Cluster = s.self.Name, s.dir(), s.identity.Cluster
	options.ListenClient = []string{net.JoinHostPort(s.self.Addresses[0].String(), strconv.Itoa(StoreClientPort))}
	options.Files = store.Files{AuthorityCert: s.identity.Paths.AuthorityCert, NodeCert: s.identity.Paths.NodeCert, NodeKey: s.identity.Paths.NodeKey,
		ServerName: identity.ServerName}
	options.Logger, options.Board = s.log, s.board
	member, err := store.StartMember(options)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("starting this node's member of the store: %w", err)
		s.fault, s.stuck = err.Error(), errors.Is(err, store.ErrStuck)
		s.board.Set(problemSeat, s.self.Name, s.fault, s.now())
		return err
	}
	s.member, s.fault = member, ""
	s.board.Clear(problemSeat, s.self.Name)
	return nil
}

// connected gives the seat the client whose endpoints it keeps, once the store is known to be the right one.
func (s *seat) connected(client store.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.belongs = client, true
}

// setWaits notes what a first start waits for, and says whether that is news.
func (s *seat) setWaits(why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.waits != why
	s.waits = why
	return changed
}

// starting says what a starting agent waits for.
func (s *seat) starting() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.waits != "":
		return "this agent is starting: " + s.waits
	case s.fault != "":
		return "this agent is starting and has not read the configuration from the store yet; its own member does not run: " + s.fault
	}
	return "this agent is starting and has not read the configuration from the store yet"
}

// tell is what this node knows of the store, for one that starts.
func (s *seat) tell() *holdfastv1.RosterResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &holdfastv1.RosterResponse{Belongs: s.belongs, Hosts: s.hosts}
	if s.belongs {
		response.Members = rosterMessages(s.roster)
	}
	return response
}

// says is what this node reports of its member: the number of the one that runs or whose data it has, and why that one does not run.
func (s *seat) says() (id, fault string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.member == nil {
		return "", s.fault
	}
	if err := s.member.Err(); err != nil {
		return memberID(s.member.ID()), err.Error()
	}
	return memberID(s.member.ID()), s.fault
}

// note wakes the seat; it never blocks.
func (s *seat) note() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run follows the roster, and brings the members to those of the configuration where this node's member leads.
func (s *seat) run(ctx context.Context) {
	if s.client == nil {
		return
	}
	timer := time.NewTicker(seatLook)
	defer timer.Stop()
	for {
		if v := s.view.Load(); v != nil {
			s.round(ctx, v)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

func (s *seat) round(ctx context.Context, v *view) {
	s.follow(v)
	s.attend(v)
	s.reseat(ctx, v)
}

// follow takes up a new roster: whom to talk to, now and at the next start.
func (s *seat) follow(v *view) {
	s.board.Is(v.roster.Change != "", problemReseating, "store", v.roster.Change, s.now())
	s.board.Is(v.roster.Fault != "", problemReseatFailed, "store", v.roster.Fault, s.now())
	if v.rosterRevision == 0 || v.rosterRevision == s.followed {
		return
	}
	if err := s.client.SetEndpoints(endpointsOf(v.roster, peerAddress(s.self))); err != nil {
		s.log.Warn("the members of the store on record cannot be used", "error", err)
	}
	s.followed = v.rosterRevision
	s.mu.Lock()
	s.roster = v.roster
	s.mu.Unlock()
	s.keepRoster(v.roster)
}

// seatAction is what a node does about its own member.
type seatAction string

// The actions.
const (
	seatStay    seatAction = "stay"
	seatLeave   seatAction = "leave"     // end the member and set its data aside
	seatAside   seatAction = "set aside" // set the data of a member aside that does not run
	seatJoin    seatAction = "join"      // start the member that was added, with no data
	seatResume  seatAction = "resume"    // start the member whose data is here
	seatMissing seatAction = "missing"   // the member had data and has none: the others have to remove it
)

// attending decides it from the roster's word on this node, which is never older than the member that runs here: a member starts
// only after it was put on the roster, or before there was one.
func attending(listed, started bool, id, running string, data bool) seatAction {
	switch {
	case running != "" && (!listed || running != id):
		return seatLeave
	case running != "":
		return seatStay
	case !listed && data:
		return seatAside
	case !listed:
		return seatStay
	case data:
		return seatResume
	case started:
		return seatMissing
	}
	return seatJoin
}

// attend does about this node's own member what the roster asks for.
func (s *seat) attend(v *view) {
	if v.rosterRevision == 0 {
		return
	}
	s.mu.Lock()
	member, stuck, tried, rebuilding := s.member, s.stuck, s.tried, s.rebuilding
	s.mu.Unlock()
	if rebuilding {
		return
	}
	running := ""
	if member != nil {
		running = memberID(member.ID())
	}
	entry, listed := v.roster.at(peerAddress(s.self))
	action := attending(listed, entry.Started, entry.ID, running, store.HasData(s.dir()))
	s.board.Is(action == seatMissing, problemSeatLost, s.self.Name, "member "+entry.ID+" of this node has no data in "+s.dir(), s.now())
	if stuck {
		return // until the agent is restarted; the problem says so
	}
	switch action {
	case seatStay, seatMissing:
	case seatLeave:
		s.leaveSeat(member)
	case seatAside:
		s.aside()
	case seatJoin, seatResume:
		if !tried.IsZero() && s.now().Before(tried.Add(seatRestart)) {
			return
		}
		peers := map[string]string{}
		for _, m := range v.roster.Members {
			peers[m.Name] = m.Peer
		}
		if err := s.start(peers, action == seatJoin); err != nil {
			s.log.Warn("trying again", "error", err)
			return
		}
		s.event("store.joined", s.self.Name, "this node's member of the store has started", nil)
		s.loop.note()
	}
}

// leaveSeat ends a member that the others have removed.
func (s *seat) leaveSeat(member *store.Member) {
	err := member.Close()
	s.mu.Lock()
	s.member, s.tried = nil, time.Time{}
	if err != nil {
		s.stuck, s.fault = true, err.Error()
		s.board.Set(problemSeat, s.self.Name, s.fault, s.now())
	}
	s.mu.Unlock()
	if err == nil {
		s.aside()
	}
	s.loop.note()
}

func (s *seat) aside() {
	to, err := store.SetAside(s.dir(), time.Now())
	if err != nil {
		s.board.Set(problemDirectory, s.dir(), err.Error(), s.now())
		return
	}
	s.mu.Lock()
	s.fault = ""
	s.mu.Unlock()
	s.board.Clear(problemDirectory, s.dir())
	s.board.Clear(problemSeat, s.self.Name)
	s.event("store.left", s.self.Name, "this node's member was removed from the store; its data is in "+to, nil)
}

// close ends the member in good order.
func (s *seat) close() {
	s.mu.Lock()
	member := s.member
	s.member = nil
	s.mu.Unlock()
	if member == nil {
		return
	}
	if err := member.Close(); err != nil {
		s.log.Warn("stopping this node's member of the store", "error", err)
	}
}
