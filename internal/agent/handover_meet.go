package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	welcome, err := p.greet(a, standLimit)
	switch {
	case err != nil:
		p.close()
		return nil, p.unmet(err)
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

// unmet is why the running agent could not be asked for its place, and what to do.
func (p *predecessor) unmet(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) || p.pid == 0 {
		return fmt.Errorf("asking the running agent for its place: %w", err)
	}
	return fmt.Errorf("the running agent, process %d, does not answer: it is frozen (by a signal, a debugger or its cgroup), or this machine has no time for it; "+
		"have it go on (kill -CONT %d) and try again, or end it and start this one anew (systemctl restart holdfast-agent; if that hangs, kill -KILL %d first). "+
		"What it held is taken over by other nodes", p.pid, p.pid, p.pid)
}

// greet says who this is, and takes in what both may have open.
func (p *predecessor) greet(a *Agent, limit time.Duration) (welcome handoverWelcome, err error) {
	pid, err := processAt(p.conn)
	if err != nil {
		return welcome, err
	}
	p.pid = pid
	if p.process, err = unix.PidfdOpen(pid, 0); err != nil {
		return welcome, fmt.Errorf("following process %d: %w", pid, err)
	}
	_ = p.conn.SetDeadline(time.Now().Add(limit))
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
