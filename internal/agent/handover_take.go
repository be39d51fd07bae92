package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// predecessor is the running agent whose place this one is to take.
type predecessor struct {
	conn       *net.UnixConn
	process    int // a pidfd
	guarded    bool
	peers      net.Listener
	local      net.Listener
	successors *net.UnixListener
	heartbeats []int
	gone       chan struct{} // closed when its process has ended
	once       sync.Once
}

// meetPredecessor finds the agent that runs. Nil means that none runs any more: either there was none, or it does not know how to be
// replaced and has been drained and ended.
func (a *Agent) meetPredecessor(ctx context.Context) (*predecessor, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.socketPath() + handoverSuffix, Net: "unix"})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, a.drainPredecessor(ctx, "it does not know how to hand over to another")
	}
	if err != nil {
		return nil, fmt.Errorf("reaching the agent that runs: %w", err)
	}
	p := &predecessor{conn: conn, process: -1, gone: make(chan struct{})}
	welcome, err := p.greet(a)
	switch {
	case err != nil:
		p.close()
		return nil, fmt.Errorf("asking the running agent for its place: %w", err)
	case welcome.Drain:
		p.close()
		return nil, a.drainPredecessor(ctx, welcome.Refused)
	case welcome.Refused != "":
		p.close()
		return nil, fmt.Errorf("the running agent goes on: %s", welcome.Refused)
	}
	p.guarded = welcome.Guarded
	for name, value := range map[string]string{"NOTIFY_SOCKET": welcome.Notify, "WATCHDOG_USEC": welcome.Watchdog} {
		if value != "" {
			_ = os.Setenv(name, value) // systemd told the other one; only a name without sense fails
		}
	}
	return p, nil
}

// greet says who this is, and takes in what both may have open.
func (p *predecessor) greet(a *Agent) (welcome handoverWelcome, err error) {
	pid, err := processAt(p.conn)
	if err != nil {
		return welcome, err
	}
	if p.process, err = unix.PidfdOpen(pid, 0); err != nil {
		return welcome, fmt.Errorf("following process %d: %w", pid, err)
	}
	_ = p.conn.SetDeadline(time.Now().Add(standLimit))
	hello := handoverHello{Format: handoverFormat, Version: a.options.Version, Cluster: a.identity.Cluster, Node: a.self.Name}
	if err := sendHandover(p.conn, hello); err != nil {
		return welcome, err
	}
	fds, err := receiveHandover(p.conn, &welcome)
	if err != nil || welcome.Refused != "" {
		closeDescriptors(fds)
		return welcome, err
	}
	if len(fds) < 4 {
		closeDescriptors(fds)
		return welcome, fmt.Errorf("it handed over %d sockets", len(fds))
	}
	p.heartbeats = fds[3:]
	var errs [3]error
	var successors net.Listener
	p.peers, errs[0] = listenerOf(fds[0])
	p.local, errs[1] = listenerOf(fds[1])
	successors, errs[2] = listenerOf(fds[2])
	p.successors, _ = successors.(*net.UnixListener)
	if p.successors == nil {
		errs[2] = errors.Join(errs[2], errors.New("the socket for handovers is of another kind"))
	}
	return welcome, errors.Join(errs[:]...)
}

// close ends the connection. Where this agent has not taken over, the other one goes on.
func (p *predecessor) close() {
	p.once.Do(func() {
		_ = p.conn.Close()
		if p.process >= 0 {
			_ = unix.Close(p.process)
		}
	})
}

// await closes gone when the process of the one that was replaced has ended. One that does not end in time is ended: it has
// nothing left to do.
func (p *predecessor) await(a *Agent) {
	defer close(p.gone)
	poll := []unix.PollFd{{Fd: int32(p.process), Events: unix.POLLIN}}
	for deadline := time.Now().Add(goneLimit); poll[0].Revents == 0; {
		left := time.Until(deadline)
		if left <= 0 {
			a.log.Error("the agent that was replaced does not end, and is ended")
			_ = unix.PidfdSendSignal(p.process, unix.SIGKILL, nil, 0)
			left = goneLimit
		}
		if _, err := unix.Poll(poll, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			a.log.Error("waiting for the end of the agent that was replaced", "error", err)
			break
		}
		if left == goneLimit {
			break
		}
	}
	p.close()
}

// drainLimit is what an agent that is stopped may take: as long as its unit gives it.
const drainLimit = 60 * time.Second

// drainPredecessor ends the agent that runs as `systemctl stop` does, if one runs.
func (a *Agent) drainPredecessor(ctx context.Context, why string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.socketPath(), Net: "unix"})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		a.log.Info("no agent runs that could be replaced: this one starts as usual")
		return nil
	}
	if err != nil {
		return fmt.Errorf("reaching the agent that runs: %w", err)
	}
	defer conn.Close()
	pid, err := processAt(conn)
	if err != nil {
		return err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("the running agent cannot be stopped: following process %d: %w", pid, err)
	}
	defer unix.Close(process)
	a.log.Warn("the running agent cannot be replaced and is stopped: what it holds moves to other nodes", "process", pid, "reason", why)
	if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("stopping the running agent, process %d: %w", pid, err)
	}
	poll := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	for deadline := time.Now().Add(drainLimit); time.Now().Before(deadline) && ctx.Err() == nil; {
		if n, err := unix.Poll(poll, 100); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return fmt.Errorf("the running agent, process %d, did not stop within %v", pid, drainLimit)
}

// replace takes the place of the running agent and serves. Until it has, it touches nothing; with an error the other one goes on.
func (a *Agent) replace(ctx, running context.Context, stop context.CancelFunc) error {
	defer a.from.close()
	a.rooms = newRooms(a, running)
	prepare, cancel := context.WithTimeout(ctx, prepareLimit)
	defer cancel()
	batches, err := a.openStoreBeside(prepare)
	if err == nil {
		a.lookOn(batches)
		err = a.untilPrepared(prepare)
	}
	if err == nil {
		err = a.takeOver()
	}
	if err != nil {
		a.from.close() // first of all: the other one need not wait
		stop()
		a.wg.Wait()
		return fmt.Errorf("the running agent goes on: %w", err)
	}
	defer a.heartbeat()()
	a.startServers(a.servers)
	own(a.from.local)
	own(a.from.successors)
	go a.from.await(a)
	a.event("agent.took-over", a.self.Name, "this agent has taken the place of another, with all that it held", nil)
	return a.serve(ctx, running, stop)
}

// own makes a Unix socket that was inherited this process's own: its name goes with it, and who connects is told that this process
// listens (the kernel notes it at listen(2)).
func own(listener net.Listener) {
	socket, ok := listener.(*net.UnixListener)
	if !ok {
		return
	}
	socket.SetUnlinkOnClose(true)
	if raw, err := socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), unix.SOMAXCONN) }) // it has done so before
	}
}

// openStoreBeside connects to the store while another agent's member of it may run here, and returns the watch of everything.
func (a *Agent) openStoreBeside(ctx context.Context) (<-chan store.Batch, error) {
	config := a.config
	endpoints := config.Settings.StoreEndpoints
	embedded := len(endpoints) == 0
	if embedded {
		kept, err := readRoster(a.options.Dir)
		if err != nil {
			return nil, err
		}
		if len(kept.Members) == 0 {
			kept = rosterOfPeers(hostPeers(config))
		}
		a.seat.mu.Lock()
		a.seat.roster, a.seat.hosts = kept, hostPeers(config)
		a.seat.mu.Unlock()
		endpoints = endpointsOf(kept, peerAddress(a.self))
	}
	client, err := store.Open(store.Options{
		Endpoints: endpoints, TLS: a.identity.ClientTLS(), Cluster: config.Settings.Name, Logger: a.log, Board: a.board, Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(a.options.Dir, clusterIDFile)); err != nil {
		return nil, errors.Join(fmt.Errorf("it has not joined its cluster's store yet: %w", err), client.Close())
	}
	if a.clusterID, err = a.belong(ctx, client, config.Settings.Name); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if embedded {
		a.seat.connected(client)
	}
	a.useStore(store.Guard(client, a.clusterID, a.board))
	return a.store.Watch(a.ctx, "", 0), nil
}

// lookOn starts what only learns: the view of the store, checks, interfaces, and the line to the guard.
func (a *Agent) lookOn(batches <-chan store.Batch) {
	a.loop.beside.Store(true)
	a.rooms.learn(batches)
	if a.guard != nil {
		a.wg.Go(func() { a.guard.Run(a.ctx) })
	}
}

// untilPrepared waits until this agent knows what it needs.
func (a *Agent) untilPrepared(ctx context.Context) error {
	for {
		waits := "its first copy of the store"
		if said := a.loop.besideWaits.Load(); said != nil {
			waits = *said
		}
		if waits == "" && a.from.guarded {
			if waits = a.guardAbsent(); waits != "" {
				waits = "the guard: " + waits
			}
		}
		if waits == "" {
			return nil
		}
		if wait(ctx, 5*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("this agent was not ready within %v: it waits for %s", prepareLimit, waits)
		}
	}
}

func (a *Agent) guardAbsent() string {
	if a.guard == nil {
		return "the running agent has one, and this one was told to have none; give it the same --guard"
	}
	return a.guard.Absent()
}

// takeOver does it. With an error the other agent goes on, and this one has done nothing.
func (a *Agent) takeOver() error {
	conn := a.from.conn
	_ = conn.SetDeadline(time.Now().Add(4 * standLimit))
	if err := sendHandover(conn, handoverWord{wordPrepared}); err != nil {
		return fmt.Errorf("telling it: %w", err)
	}
	var rooms handoverRooms
	fds, err := receiveRooms(conn, &rooms)
	if err != nil {
		closeDescriptors(fds)
		return err
	}
	a.adopt(&rooms, fds)
	if err := sendHandover(conn, handoverWord{wordReady}); err != nil {
		return fmt.Errorf("telling it: %w", err)
	}
	var right handoverRight
	if fds, err = receiveHandover(conn, &right); err != nil {
		closeDescriptors(fds)
		return fmt.Errorf("hearing of the right to hold: %w", err)
	}
	link, ok := a.edges.wire.(*datagram.Link)
	if !ok {
		return errors.New("these heartbeats cannot be taken over")
	}
	for i := range right.Link.Networks {
		right.Link.Networks[i].Empty = moment(right.Link.Networks[i].Named)
	}
	link.Resume(right.Link)
	err = a.tenancy.takeOver(right, rooms.Member, func() error {
		if _, err := conn.Write([]byte{byteTaken}); err != nil {
			return fmt.Errorf("it has gone on meanwhile: %w", err)
		}
		if a.guard != nil {
			a.guard.Take()
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.loop.heritage.Store(&rooms)
	a.loop.beside.Store(false)
	a.loop.note()
	return nil
}

// adopt gives the rooms what the other agent's rooms had. None of them acts yet.
func (a *Agent) adopt(rooms *handoverRooms, fds []int) {
	a.applier.reconciler.Adopt(address.Desired{Holdings: rooms.Holdings, Routes: rooms.Routes}, rooms.Held, rooms.Proven)
	held := map[netip.Addr]bool{}
	for _, h := range rooms.Held {
		held[h.Address] = true
	}
	a.applier.last = applied{held: held, at: time.Now()}
	a.applier.carried, a.applier.known = rooms.Carried, map[netip.Addr]bool{}
	for _, addr := range rooms.Known {
		a.applier.known[addr] = true
	}
	for addr, release := range rooms.Releases {
		a.releases.add(addr, release)
	}
	a.historyMu.Lock()
	a.history = steering.Past{Outage: rooms.Outage, HoldDown: rooms.HoldDown}
	a.historyMu.Unlock()
	if server, ok := a.answers.server.(*dns.Server); ok {
		server.Inherit(rooms.socketsOf(fds))
		return
	}
	closeDescriptors(fds)
}

// looksOn reports whether the loop does nothing yet, because another agent runs or has seen more of the store than this one.
func (l *loop) looksOn() bool {
	if l.beside.Load() {
		waits := l.waitingBeside()
		if config := l.replica.config; l.checksOf != config {
			l.checksOf = config
			l.checks.Set(l.checkTargets(l.world(l.now())))
			waits = "the first result of its checks"
			l.wakeIn(evaluateStep)
		}
		l.besideWaits.Store(&waits)
		return true
	}
	if rooms := l.heritage.Swap(nil); rooms != nil {
		l.inherit(rooms)
	}
	return l.replica.revision < l.least
}

// waitingBeside is what a new agent waits for before it can take over. Loads come to whoever has the place.
func (l *loop) waitingBeside() string {
	if _, known := l.links.get(); !known {
		return "the state of its interfaces"
	}
	if !l.checks.Ready() {
		l.wakeIn(10 * time.Millisecond)
		return "the first result of " + pendingChecks(l.checks.Status())
	}
	return ""
}

// inherit goes on from what the other agent's loop knew.
func (l *loop) inherit(rooms *handoverRooms) {
	l.wasReady, l.readySince, l.least = true, l.now(), rooms.Revision
	maps.Copy(l.promises.Given, rooms.Given)
	l.promises.Renounce(rooms.Renounced...)
	l.tenancy.Configure(l.replica.config)
	for lnn, entry := range l.replica.members {
		if lnn != l.self.LNN {
			l.tenancy.Recorded(lnn, entry.record)
		}
	}
	for lnn, gone := range l.replica.gone {
		if gone.record.Over && lnn != l.self.LNN {
			l.tenancy.Recorded(lnn, gone.record)
		}
	}
}
