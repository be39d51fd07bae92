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
	coming  map[netip.Addr]bool // parts of the next set of addresses

	// Of a successor, until it takes over.
	moving   map[netip.Addr]bool // nil: it has handed over none
	deadline int64
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
	if p.process, err = processOf(p); err != nil {
		g.Logger.Warn("only the connection will show the agent's end", "pid", p.pid, "error", err)
	}
	if g.agent != nil && g.agent.greeted {
		g.heir.drop()
		g.heir = p
		return
	}
	g.agent.drop() // one that has connected and said nothing
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
	if g.agent != nil && g.agent.greeted && (g.successor == 0 || g.successor != p.pid) {
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

// drop closes the connection; of none there is none to close.
func (p *peer) drop() {
	if p == nil {
		return
	}
	_ = unix.Close(p.fd)
	if p.process >= 0 {
		_ = unix.Close(p.process)
	}
}

// lost enters that a process is gone. The agent is dead, unless it has said goodbye; a successor that has not taken over has done nothing.
func (g *guard) lost(p *peer, why string) {
	p.drop()
	if p == g.heir {
		g.Logger.Info("the agent's successor is gone before it took over", "pid", p.pid, "why", why)
		g.heir = nil
		return
	}
	g.Logger.Info("the agent is gone", "pid", p.pid, "why", why, "goodbye", g.facts.Agent == AgentGoodbye)
	if g.facts.Agent == AgentAlive {
		g.facts.Agent = AgentDead
	}
	g.agent = nil
}

// there reports whether a process is still connected.
func (g *guard) there(p *peer) bool { return p != nil && (p == g.agent || p == g.heir) }

// hearAtMost bounds the messages that are read before something is done about them.
const hearAtMost = 64

// hear takes in what a process has said.
func (g *guard) hear(p *peer) {
	var buffer [maxMessage + 1]byte
	for range hearAtMost {
		n, err := unix.Read(p.fd, buffer[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil || n == 0:
			g.lost(p, "its connection ended")
			return
		}
		m, err := parse(buffer[:n])
		if err == nil {
			err = g.take(p, m)
		}
		if err != nil {
			g.Logger.Error("refused what the agent said", "pid", p.pid, "error", err)
			p.tell(message{kind: kindRefused, text: err.Error()})
			g.lost(p, "it was not understood")
			return
		}
	}
}

// take takes in one message.
func (g *guard) take(p *peer, m message) error {
	if m.kind == kindHello {
		return g.greet(p, m)
	}
	if !p.greeted {
		return fmt.Errorf("it did not say hello first: %w", errGarbage)
	}
	switch m.kind {
	case kindMoving:
		if m.first {
			p.coming = map[netip.Addr]bool{}
		}
		if p.coming == nil || len(p.coming)+len(m.moving) > maxMoving {
			return fmt.Errorf("more than %d moving addresses, or a part without a beginning: %w", maxMoving, errGarbage)
		}
		for _, a := range m.moving {
			p.coming[a] = true
		}
		if m.last {
			if p.moving, p.coming = p.coming, nil; p == g.agent {
				g.setMoving(p.moving)
			}
		}
	case kindDeadline:
		if p.deadline = m.deadline; p == g.agent {
			g.setDeadline(m.deadline)
		}
		p.tell(message{kind: kindSeen, deadline: m.deadline})
	case kindGoodbye:
		if p == g.agent {
			g.facts = Facts{Agent: AgentGoodbye, Silenced: g.facts.Silenced}
		}
	case kindSuccessor:
		if p == g.agent {
			g.successor = m.pid
		}
	case kindTake:
		if p == g.heir {
			g.succeed()
		}
	default:
		return fmt.Errorf("a message of kind %d is for the agent to hear, not to say: %w", m.kind, errGarbage)
	}
	return nil
}

func (g *guard) greet(p *peer, m message) error {
	if m.version != version {
		return fmt.Errorf("the agent speaks version %d and this guard version %d: run both from one version of holdfast, and start the guard anew", m.version, version)
	}
	p.greeted = true
	p.tell(message{kind: kindWelcome, version: version, text: g.Without})
	if p == g.heir {
		g.Logger.Info("the agent's successor is here", "pid", p.pid)
		return nil
	}
	g.heir.drop() // of an agent before
	g.heir, g.successor = nil, 0
	g.facts.Agent, g.facts.Deadline = AgentAlive, 0
	g.Logger.Info("an agent is here", "pid", p.pid)
	return nil
}

func (g *guard) setDeadline(deadline int64) {
	g.facts.Deadline = deadline
	if deadline > 0 {
		g.facts.Agent, g.facts.Handed = AgentAlive, true
	}
}

// succeed makes the successor the agent. The right is the same one: what the agent before handed over counts until a later word, and its
// end is no death.
func (g *guard) succeed() {
	p := g.heir
	g.Logger.Info("the agent was replaced", "pid", p.pid)
	g.agent.drop()
	g.agent, g.heir, g.successor = p, nil, 0
	g.facts.Agent = AgentAlive
	if p.moving != nil {
		g.setMoving(p.moving)
	}
	if p.deadline > 0 {
		g.setDeadline(p.deadline)
	}
}
