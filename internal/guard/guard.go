// Package guard silences a node whose agent is dead, frozen or late: the dead man's hand.
//
// The guard is a small process of its own, in a unit and cgroup of its own. The agent connects to its Unix socket and hands it, with
// every renewal, the moment at which the right to hold runs out, and the addresses of the cluster that may move. When that moment
// comes without a later one, or the agent's process ends without a goodbye, the guard silences the node: first all addresses at once,
// by the packet filter (internal/linux/nft), then it takes them off the interfaces, in batches.
//
// It guarantees that it waits for nobody: not for the agent, a disk, the network or a store. It keeps one connection, at most 65,536
// addresses, and no history. Only root and its own user may connect. It never silences a node because no agent has come, since an
// agent works without its guard as well: behind its own deadline, and behind the lifetimes that the kernel keeps.
//
// Serve runs on one thread. A Client is the agent's side and is safe for concurrent use. What is done when is decided by Decide, which
// is pure.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/linux/link"
)

// DefaultSocket is where the guard listens unless it is told otherwise. It is not in the agent's directory, which goes with the agent.
const DefaultSocket = "/run/holdfast-guard/guard.sock"

// Kernel is what the guard needs of link.Kernel.
type Kernel interface {
	Addresses() ([]link.Address, error)
	Apply(operations []link.Operation) []error
}

// Filter is what it needs of nft.Filter.
type Filter interface {
	Set(addresses []netip.Addr) error
	Silence() error
	Lift() error
}

// Options are what a guard works with.
type Options struct {
	Path    string // of its socket; empty: DefaultSocket
	Kernel  Kernel
	Filter  Filter // nil: this kernel has none, and addresses are only removed
	Without string // why there is no Filter
	Logger  *slog.Logger
	Ready   func() // called when it listens; may be nil
}

// cleanAgain is how soon what could not be taken off is tried again.
const cleanAgain = 50 * time.Millisecond

// guard is the state of Serve.
type guard struct {
	Options
	listener int
	timer    int
	wake     int // an eventfd: the context has ended
	agent    *peer
	heir     *peer // a process that is to replace the agent, and has not taken over; nil: none
	// successor is the process that the agent has named as such; 0: none.
	successor int32
	facts     Facts
	moving    map[netip.Addr]bool
	unclean   bool // something may still be on an interface
}

// Serve guards until the context ends. What the node holds then stays: the agent works on without a guard.
func Serve(ctx context.Context, o Options) error {
	if o.Path == "" {
		o.Path = DefaultSocket
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := &guard{Options: o, facts: Facts{Agent: AgentNone}, moving: map[netip.Addr]bool{}}
	if err := g.open(); err != nil {
		return err
	}
	defer g.close()
	defer context.AfterFunc(ctx, func() { _, _ = unix.Write(g.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })()
	if g.Ready != nil {
		g.Ready()
	}
	g.Logger.Info("guarding", "socket", o.Path, "at-once", o.Filter != nil)
	for ctx.Err() == nil {
		if err := g.round(); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) open() error {
	var err error
	if g.listener, err = listen(g.Path); err != nil {
		return err
	}
	if g.timer, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return errors.Join(fmt.Errorf("making a timer: %w", err), unix.Close(g.listener))
	}
	if g.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return errors.Join(fmt.Errorf("making an event: %w", err), unix.Close(g.listener), unix.Close(g.timer))
	}
	return nil
}

func (g *guard) close() {
	g.agent.drop()
	g.heir.drop()
	_ = unix.Unlink(g.Path)
	for _, fd := range []int{g.listener, g.timer, g.wake} {
		_ = unix.Close(fd)
	}
}

// round acts on what is known, waits until something happens, and takes it in. What the agent has said is read before anything is
// judged, so that a guard that stood still does not judge by what is no longer true.
func (g *guard) round() error {
	g.act()
	fds := []unix.PollFd{{Fd: int32(g.wake), Events: unix.POLLIN}, {Fd: int32(g.timer), Events: unix.POLLIN}, {Fd: int32(g.listener), Events: unix.POLLIN}}
	agent, heir := g.agent, g.heir
	ends := map[*peer]int{} // where the word on a process's end stands
	for _, p := range []*peer{agent, heir} {
		if p == nil {
			continue
		}
		fds = append(fds, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
		if p.process >= 0 {
			ends[p] = len(fds)
			fds = append(fds, unix.PollFd{Fd: int32(p.process), Events: unix.POLLIN})
		}
	}
	if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for the agent: %w", err)
	}
	var expired [8]byte
	_, _ = unix.Read(g.timer, expired[:]) // so that it can be waited for again
	for _, p := range []*peer{agent, heir} {
		if g.there(p) {
			g.hear(p)
		}
		if end := ends[p]; end > 0 && fds[end].Revents != 0 && g.there(p) {
			g.lost(p, "its process ended")
		}
	}
	if fds[2].Revents != 0 {
		g.admit()
	}
	return nil
}

// now reads the clock that deadlines are in.
func now() int64 { return boottime.Nanoseconds(boottime.Now()) }

// act does what the facts ask for, and sets the timer.
func (g *guard) act() {
	action := Decide(g.facts, now())
	switch action.Verb {
	case Silence:
		g.silence(action.Reason)
		action = Decide(g.facts, now())
	case Lift:
		g.lift()
	case Stay:
		if g.unclean && (g.facts.Agent != AgentAlive || g.facts.Deadline <= now()) {
			g.clean()
		}
	}
	next := action.Next
	if g.unclean {
		next = now() + int64(cleanAgain)
	}
	setting := unix.ItimerSpec{Value: unix.NsecToTimespec(next)} // 0 stops it
	if err := unix.TimerfdSettime(g.timer, unix.TFD_TIMER_ABSTIME, &setting, nil); err != nil {
		g.Logger.Error("setting the timer", "error", err)
	}
}

// silence silences the node: all addresses at once, then off the interfaces.
func (g *guard) silence(reason string) {
	began := now()
	if g.Filter != nil {
		if err := g.Filter.Silence(); err != nil {
			g.Logger.Error("cannot silence all addresses at once; taking them off one by one", "error", err)
		}
	}
	silent := now()
	off := g.clean()
	clean := now()
	g.facts.Silenced, g.facts.Handed = true, false
	g.Logger.Warn("silenced this node", "reason", reason, "addresses", off, "silent-after", time.Duration(silent-began), "off-after", time.Duration(clean-began))
	if g.agent != nil {
		g.agent.tell(message{kind: kindSilenced, text: fmt.Sprintf("%s; silent within %v, %d addresses off within %v", reason, time.Duration(silent-began), off, time.Duration(clean-began))})
	}
}

// clean takes every moving address off, and returns how many there were. One that is part of a larger prefix is an operator's own
// configuration, which the agent does not touch either.
func (g *guard) clean() int {
	g.unclean = true
	addresses, err := g.Kernel.Addresses()
	if err != nil {
		g.Logger.Error("cannot read the addresses of this node; trying again", "error", err)
		return 0
	}
	var operations []link.Operation
	for _, a := range addresses {
		if a.Prefix.IsSingleIP() && g.moving[a.Prefix.Addr()] {
			operations = append(operations, link.Operation{Verb: link.Remove, Object: a})
		}
	}
	g.unclean = len(operations) > 0 // looked at once more, also when all went well: the agent may have been in the middle of adding
	for _, err := range g.Kernel.Apply(operations) {
		if err != nil && !errors.Is(err, link.ErrMissing) && !errors.Is(err, link.ErrNoInterface) {
			g.Logger.Error("cannot take an address off; trying again", "error", err)
		}
	}
	return len(operations)
}

// lift ends the silence.
func (g *guard) lift() {
	if g.Filter != nil {
		if err := g.Filter.Lift(); err != nil {
			g.Logger.Error("cannot lift the silence", "error", err)
			return
		}
	}
	g.facts.Silenced, g.unclean = false, false
	g.Logger.Info("the right to hold is there: this node may be heard again")
}

// setMoving takes in the addresses that may move.
func (g *guard) setMoving(moving map[netip.Addr]bool) {
	g.moving = moving
	if g.Filter == nil {
		return
	}
	list := make([]netip.Addr, 0, len(g.moving))
	for a := range g.moving {
		list = append(list, a)
	}
	if err := g.Filter.Set(list); err != nil {
		g.Logger.Error("cannot silence some addresses at once", "error", err)
	}
}
