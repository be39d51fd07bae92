package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// listenHandover opens the socket on which a new agent asks for this one's place, and owns it. The caller has the local API's socket, so
// nobody else listens there.
func (a *Agent) listenHandover() error {
	if a.from != nil {
		a.successors = a.from.successors
		return nil
	}
	path := a.socketPath() + handoverSuffix
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket that an agent before left: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err == nil {
		if err = os.Chmod(path, 0o600); err != nil {
			listener.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("opening the socket for `holdfast agent --replace`: %w", err)
	}
	a.successors = listener
	return nil
}

func (a *Agent) socketPath() string {
	if a.options.Socket == "" {
		return api.DefaultSocket
	}
	return a.options.Socket
}

// meetSuccessors serves those who want this agent's place, one after the other, until the context ends or one has it.
func (a *Agent) meetSuccessors(ctx context.Context) {
	if a.successors == nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = a.successors.SetDeadline(time.Unix(1, 0)) })()
	for ctx.Err() == nil {
		conn, err := a.successors.AcceptUnix()
		if err != nil {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		pid, err := a.handOver(ctx, conn)
		if err == nil {
			a.retired(pid, conn) // the connection stays open until this process ends, so that the new one sees its end
			return
		}
		conn.Close()
		a.event("agent.not-replaced", a.self.Name, "another agent asked to replace this one, which goes on: "+err.Error(), nil)
	}
	if !a.wasReplaced.Load() {
		a.successors.Close()
	}
}

// handOver gives this agent's place to the process at the other end. With an error, everything goes on here as if nothing had happened.
func (a *Agent) handOver(ctx context.Context, conn *net.UnixConn) (pid int, err error) {
	if pid, err = processAt(conn); err != nil {
		return 0, err
	}
	_ = conn.SetDeadline(time.Now().Add(2 * prepareLimit))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := a.welcome(conn, pid); err != nil {
		return 0, err
	}
	if err := expect(conn, wordPrepared); err != nil {
		return 0, err
	}
	if err := a.tenancy.settle(ctx, standLimit); err != nil {
		err = fmt.Errorf("the right to hold: %w", err)
		_ = sendHandover(conn, handoverRooms{Failed: err.Error()})
		return 0, err
	}
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.leaving.Load() || ctx.Err() != nil {
		return 0, errors.New("this agent is stopping")
	}
	_ = conn.SetDeadline(time.Now().Add(2 * standLimit))
	rest, err := a.standStill()
	if err != nil {
		_ = sendHandover(conn, handoverRooms{Failed: err.Error()})
		return 0, err
	}
	if err := a.give(conn, rest); err != nil {
		rest.end(false)
		return 0, err
	}
	a.wasReplaced.Store(true)
	rest.end(true)
	return pid, nil
}

// give hands everything over. With an error nothing has been.
func (a *Agent) give(conn *net.UnixConn, rest *atRest) error {
	addresses, further, fds := layOut(rest.sockets)
	rest.rooms.DNS, rest.rooms.DNSFurther = addresses, further
	err := sendRooms(conn, rest.rooms, fds)
	closeDescriptors(fds)
	if err == nil {
		err = expect(conn, wordReady)
	}
	if err == nil {
		err = a.giveRight(conn, rest.held)
	}
	return err
}

// expect reads a word.
func expect(conn *net.UnixConn, want string) error {
	var got handoverWord
	fds, err := receiveHandover(conn, &got)
	closeDescriptors(fds)
	switch {
	case err != nil:
		return fmt.Errorf("waiting for the new agent to be %s: %w", want, err)
	case got.Word != want:
		return fmt.Errorf("the new agent said %q and not %q", got.Word, want)
	}
	return nil
}

// welcome lets the new agent in, or says why not.
func (a *Agent) welcome(conn *net.UnixConn, pid int) error {
	var hello handoverHello
	fds, err := receiveHandover(conn, &hello)
	closeDescriptors(fds)
	if err != nil {
		return fmt.Errorf("hearing who it is: %w", err)
	}
	answer := handoverWelcome{Notify: os.Getenv("NOTIFY_SOCKET"), Watchdog: os.Getenv("WATCHDOG_USEC")}
	_, handable := a.edges.wire.(*datagram.Link)
	switch v := a.view.Load(); {
	case hello.Node != a.self.Name || hello.Cluster != a.identity.Cluster:
		answer.Refused = fmt.Sprintf("this agent is %s of cluster %s, and that one would be %s of cluster %s", a.self.Name, a.identity.Cluster, hello.Node, hello.Cluster)
	case hello.Format != handoverFormat || !handable:
		answer.Refused, answer.Drain = fmt.Sprintf("this agent, of version %s, hands over in another form", a.options.Version), true
	case v == nil || !v.ready || !a.tenancy.Permitted():
		answer.Refused = "this agent has not the right to hold at this moment; try again when `holdfast status` shows it up"
	}
	if answer.Refused != "" {
		_ = sendHandover(conn, answer)
		return errors.New(answer.Refused)
	}
	answer.Guarded = a.guard != nil && a.guard.Successor(pid)
	if fds, err = a.sharedSockets(); err == nil {
		err = sendHandover(conn, answer, fds...)
	}
	closeDescriptors(fds)
	return err
}

// sharedSockets are descriptors of what both agents may have open.
func (a *Agent) sharedSockets() (fds []int, err error) {
	for _, server := range a.servers {
		fd, err := server.Share()
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
	}
	raw, err := a.successors.SyscallConn()
	if err != nil {
		return fds, err
	}
	var fault error
	err = raw.Control(func(from uintptr) {
		var fd int
		if fd, fault = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0); fault == nil {
			fds = append(fds, fd)
		}
	})
	if err := errors.Join(err, fault); err != nil {
		return fds, err
	}
	link, _ := a.edges.wire.(*datagram.Link)
	more, err := link.Share()
	return append(fds, more...), err
}

// atRest is an agent that stands still.
type atRest struct {
	rooms   handoverRooms
	sockets []dns.Socket
	held    *address.Standstill
	undo    []func(retired bool)
}

// end lets everything go on, or ends it for good where another agent has taken over.
func (r *atRest) end(retired bool) {
	for _, f := range slices.Backward(r.undo) {
		f(retired)
	}
}

// standStill has everything stop that decides, touches interfaces, reports or answers; the right to hold is renewed on, and
// so are the lifetimes of what is there.
func (a *Agent) standStill() (rest *atRest, err error) {
	rest = &atRest{}
	fail := func(what string, err error) (*atRest, error) {
		rest.end(false)
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	deciding, err := a.loop.stills.hold(standLimit)
	if err != nil {
		return fail("the loop", err)
	}
	rest.undo = append(rest.undo, func(retired bool) {
		if !retired { // otherwise it stands until this process's context ends
			deciding()
			a.loop.note()
		}
	})
	a.tenancy.reports.Lock()
	rest.undo = append(rest.undo, func(bool) { a.tenancy.reports.Unlock() })
	revision, err := a.writer.rest(standLimit)
	if err != nil {
		return fail("writing to the store", err)
	}
	if !a.hooks.gates.rest(standLimit / 10) {
		return fail("hooks", errors.New("some are running or waiting; try again when they have run"))
	}
	applying, err := a.applier.stills.hold(standLimit)
	if err != nil {
		return fail("the interfaces", err)
	}
	rest.undo = append(rest.undo, func(retired bool) {
		if !retired {
			applying()
			a.applier.again()
		}
	})
	held := a.applier.reconciler.Hold()
	rest.undo = append(rest.undo, func(retired bool) {
		if retired {
			held.Retire()
		} else {
			held.Resume()
		}
	})
	if server, ok := a.answers.server.(*dns.Server); ok {
		rest.sockets, err = server.Suspend()
		rest.undo = append(rest.undo, func(retired bool) {
			if !retired {
				server.Resume()
			}
		})
		if err != nil {
			return fail("answering names", err)
		}
	}
	rest.held, rest.rooms = held, a.roomsAtRest(held)
	rest.rooms.Revision = max(revision, a.loop.replica.revision)
	return rest, nil
}

// roomsAtRest is what the rooms know. The loop and the applier stand still.
func (a *Agent) roomsAtRest(held *address.Standstill) handoverRooms {
	a.historyMu.Lock()
	past := a.history
	a.historyMu.Unlock()
	rooms := handoverRooms{
		Holdings: held.Desired.Holdings, Routes: held.Desired.Routes, Held: held.Held, Proven: held.Proven,
		Carried: a.applier.carried, Known: slices.Collect(maps.Keys(a.applier.known)),
		Given: maps.Clone(a.loop.promises.Given), Releases: a.releases.everything(), Renounced: slices.Collect(maps.Keys(a.loop.promises.Renounced)),
		Outage: past.Outage, HoldDown: past.HoldDown,
	}
	a.tenancy.mu.Lock()
	rooms.Member = a.tenancy.written
	a.tenancy.mu.Unlock()
	return rooms
}

// everything is a copy of what others have let go of.
func (r *releases) everything() map[netip.Addr]steering.Release {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.all)
}

// giveRight stops the heartbeats and hands the right to hold to the new agent. With an error they have gone on.
func (a *Agent) giveRight(conn *net.UnixConn, held *address.Standstill) error {
	link, ok := a.edges.wire.(*datagram.Link)
	if !ok {
		return errors.New("these heartbeats cannot be handed over")
	}
	if a.guard != nil {
		a.guard.Yield(true)
	}
	done := make(chan error, 1)
	err := link.Pause(func(m datagram.Memory) (goOn bool) {
		err := a.tenancy.withdraw(func(right handoverRight, left time.Duration) error {
			if err := held.Freeze(); err != nil {
				return err
			}
			right.Link = m
			for i := range m.Networks {
				m.Networks[i].Named = boottime.Nanoseconds(m.Networks[i].Empty)
			}
			return offer(conn, right, left)
		})
		done <- err
		return err != nil
	})
	if err == nil {
		err = <-done
	}
	if err != nil && a.guard != nil {
		a.guard.Yield(false)
	}
	return err
}

// offer is the moment of the handover: afterwards exactly one of the two agents goes on. It is the new one if and only if there is no
// error.
func offer(conn *net.UnixConn, right handoverRight, limit time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(limit))
	err := sendHandover(conn, right)
	if err == nil {
		if err = readTaken(conn); err == nil {
			return nil
		}
	}
	// It may say so at this very moment. From here on it cannot; what it said before is there to be read.
	if shut := conn.CloseRead(); shut != nil {
		err = errors.Join(err, shut) // it is not connected any more, and cannot say so either
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	if readTaken(conn) == nil {
		return nil
	}
	return fmt.Errorf("the new agent did not take over within %v: %w", limit.Round(time.Millisecond), err)
}

// readTaken reads the one byte with which the new agent takes over. It is read whole or not at all.
func readTaken(conn *net.UnixConn) error {
	var b [1]byte
	n, err := conn.Read(b[:])
	if err == nil && (n != 1 || b[0] != byteTaken) {
		err = errors.New("it said something else")
	}
	return err
}

// retired does what is left to do once another agent has taken over.
func (a *Agent) retired(pid int, _ *net.UnixConn) {
	a.event("agent.replaced", a.self.Name, fmt.Sprintf("process %d is this node's agent now", pid), nil)
	if socket := os.Getenv("NOTIFY_SOCKET"); socket != "" {
		a.say(socket, fmt.Sprintf("MAINPID=%d", pid))
	}
	a.successors.SetUnlinkOnClose(false)
	for _, server := range a.servers {
		server.Bequeath()
	}
	close(a.replaced)
}

// leaveRetired ends this process without a word to anybody: what it held is held on.
func (a *Agent) leaveRetired() {
	if a.guard != nil {
		ctx, cancel := context.WithTimeout(context.Background(), goneLimit/2)
		defer cancel()
		a.guard.Leave(ctx)
	}
}
