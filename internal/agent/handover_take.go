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
	pid        int // 0: not known
	guarded    bool
	peers      net.Listener
	local      net.Listener
	successors *net.UnixListener
	heartbeats []int
	gone       chan struct{} // closed when its process has ended
	once       sync.Once
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
	if err := a.claimDirectory(); err != nil {
		a.log.Error("the directory is not this agent's alone", "error", err)
	}
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
	_ = conn.SetDeadline(time.Now().Add(5 * standLimit))
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
	l.gateways.configure(l.replica.config, l.self.LNN)
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
