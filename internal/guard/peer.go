package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// peer is a process that has connected.
type peer struct {
	fd      int
	process int // a pidfd; -1: none could be had, and only the connection shows its end
	pid     int32
	greeted bool
}

// tell sends a message if it can be sent at once: nobody is waited for.
func (p *peer) tell(m message) {
	_ = unix.Sendto(p.fd, m.bytes(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) // one that does not read is judged by its deadline
}

// maxPath is what the kernel takes for the name of a socket.
const maxPath = 107

// listen opens the guard's socket, for its own user alone. One that a dead guard left is replaced, that of a living one is not.
func listen(path string) (int, error) {
	if len(path) > maxPath {
		return -1, fmt.Errorf("the path %s is too long for a socket: it may have %d bytes", path, maxPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return -1, fmt.Errorf("making the directory of the guard's socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening the guard's socket: %w", err)
	}
	address := &unix.SockaddrUnix{Name: path}
	err = unix.Bind(fd, address)
	if errors.Is(err, unix.EADDRINUSE) {
		if err = abandoned(address); err == nil {
			err = errors.Join(unix.Unlink(path), unix.Bind(fd, address))
		}
	}
	if err == nil {
		err = errors.Join(unix.Chmod(path, 0o600), unix.Listen(fd, 4))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("opening the guard's socket %s: %w", path, err)
	}
	return fd, nil
}

// abandoned reports nil if nobody listens on a socket that is there.
func abandoned(address *unix.SockaddrUnix) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, address); errors.Is(err, unix.ECONNREFUSED) {
		return nil
	} else if err != nil && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	return errors.New("another guard runs on it: one guard runs on a node")
}

// admit takes in a process that connects, if it may and no agent is there.
func (g *guard) admit() {
	fd, _, err := unix.Accept4(g.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return // it has gone again
	}
	p := &peer{fd: fd, process: -1}
	if reason := g.refusal(p); reason != "" {
		g.Logger.Warn("refused a process", "pid", p.pid, "reason", reason)
		p.tell(message{kind: kindRefused, text: reason})
		_ = unix.Close(fd)
		return
	}
	g.drop() // one that has connected and said nothing
	if p.process, err = processOf(p); err != nil {
		g.Logger.Warn("only the connection will show the agent's end", "pid", p.pid, "error", err)
	}
	g.agent = p
}

// refusal says why a process may not be the agent; empty if it may.
func (g *guard) refusal(p *peer) string {
	who, err := unix.GetsockoptUcred(p.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return "the kernel does not say who it is"
	}
	p.pid = who.Pid
	if who.Uid != 0 && who.Uid != uint32(os.Getuid()) {
		return fmt.Sprintf("user %d may not talk to the guard: it is for root and the guard's own user", who.Uid)
	}
	if g.agent != nil && g.agent.greeted {
		return fmt.Sprintf("an agent is connected already, as process %d: one agent runs on a node", g.agent.pid)
	}
	return ""
}

// processOf returns a descriptor that tells when the process ends. The kernel has it from the connection since Linux 6.5; before, the
// number in the credentials is good enough, since a process that is gone by now has ended the connection, too.
func processOf(p *peer) (int, error) {
	if fd, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
		unix.CloseOnExec(fd)
		return fd, nil
	}
	if p.pid <= 0 {
		return -1, errors.New("it is outside of this process's namespace")
	}
	return unix.PidfdOpen(int(p.pid), 0)
}

// drop closes the connection, whoever it is to.
func (g *guard) drop() {
	if g.agent == nil {
		return
	}
	_ = unix.Close(g.agent.fd)
	if g.agent.process >= 0 {
		_ = unix.Close(g.agent.process)
	}
	g.agent = nil
}

// lost enters that the agent is gone: dead, unless it has said goodbye.
func (g *guard) lost(why string) {
	g.Logger.Info("the agent is gone", "pid", g.agent.pid, "why", why, "goodbye", g.facts.Agent == AgentGoodbye)
	if g.facts.Agent == AgentAlive {
		g.facts.Agent = AgentDead
	}
	g.coming = nil
	g.drop()
}

// hearAtMost bounds the messages that are read before something is done about them.
const hearAtMost = 64

// hear takes in what the agent has said.
func (g *guard) hear() {
	var buffer [maxMessage + 1]byte
	for range hearAtMost {
		n, err := unix.Read(g.agent.fd, buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n == 0:
			g.lost("its connection ended")
			return
		}
		m, err := parse(buffer[:n])
		if err == nil {
			err = g.take(m)
		}
		if err != nil {
			g.Logger.Error("refused what the agent said", "pid", g.agent.pid, "error", err)
			g.agent.tell(message{kind: kindRefused, text: err.Error()})
			g.lost("it was not understood")
			return
		}
	}
}

// take takes in one message.
func (g *guard) take(m message) error {
	if m.kind == kindHello {
		if m.version != version {
			return fmt.Errorf("the agent speaks version %d and this guard version %d: run both from one version of holdfast, and start the guard anew", m.version, version)
		}
		g.agent.greeted = true
		g.facts.Agent, g.facts.Deadline = AgentAlive, 0
		g.agent.tell(message{kind: kindWelcome, version: version, text: g.Without})
		g.Logger.Info("an agent is here", "pid", g.agent.pid)
		return nil
	}
	if !g.agent.greeted {
		return fmt.Errorf("it did not say hello first: %w", errGarbage)
	}
	switch m.kind {
	case kindMoving:
		if m.first {
			g.coming = map[netip.Addr]bool{}
		}
		if g.coming == nil || len(g.coming)+len(m.moving) > maxMoving {
			return fmt.Errorf("more than %d moving addresses, or a part without a beginning: %w", maxMoving, errGarbage)
		}
		for _, a := range m.moving {
			g.coming[a] = true
		}
		if m.last {
			g.setMoving()
		}
	case kindDeadline:
		g.facts.Deadline = m.deadline
		if m.deadline > 0 {
			g.facts.Agent, g.facts.Handed = AgentAlive, true
		}
		g.agent.tell(message{kind: kindSeen, deadline: m.deadline})
	case kindGoodbye:
		g.facts = Facts{Agent: AgentGoodbye, Silenced: g.facts.Silenced}
	default:
		return fmt.Errorf("a message of kind %d is for the agent to hear, not to say: %w", m.kind, errGarbage)
	}
	return nil
}
