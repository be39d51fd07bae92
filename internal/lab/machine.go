package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopPatience is how long a process may take to end by itself before it is killed.
const stopPatience = 15 * time.Second

// deathPatience is how long turning a member off waits for its processes to be gone.
const deathPatience = 3 * time.Second

// machine is one member with its power switch. Its methods are called with the host's lock held.
type machine struct {
	Member
	host *host

	on          bool
	frozen      bool
	carrierDown bool     // by cut --carrier
	unplugged   []string // interfaces, by cut --carrier --interface
	switchDown  bool     // by switch off --carrier
	pid         int      // of the member's first process, as the host sees it
	first       *exec.Cmd
	door        atomic.Int64 // pid once the member can be entered, else 0; read without the lock
	line        *initLine    // to the first process
	wires       []*wire
	hosted      []hosted // what a scenario runs here
}

// The services that a member's first process may run. The agent and its guard are a node's, the resolver the resolver's.
const (
	serviceAgent    = "agent"
	serviceGuard    = "guard"
	serviceResolver = "resolver"
)

// command does to the whole machine what an operator asked.
func (m *machine) command(op string) error {
	switch {
	case op == "start" && m.on:
		return fmt.Errorf("%s is already on", m.Name)
	case op == "start":
		return m.powerOn()
	case !m.on:
		return fmt.Errorf("%s is off", m.Name)
	case op == "kill":
		m.powerOff()
		return nil
	case op == "stop":
		return m.stop()
	case op == "freeze":
		return m.freeze()
	case op == "thaw":
		return m.thaw()
	}
	return fmt.Errorf("this lab cannot %q", op)
}

// serviceCommand does the same to the agent alone, or to its guard alone.
func (m *machine) serviceCommand(op, service string) error {
	switch {
	case m.Kind != KindNode:
		return fmt.Errorf("%s is a %s: it has no %s", m.Name, m.Kind, service)
	case !m.on:
		return fmt.Errorf("%s is off", m.Name)
	case m.frozen:
		return fmt.Errorf("%s is frozen: `holdfast lab thaw %s` first", m.Name, m.Name)
	}
	switch {
	case op == "replace":
		return m.replaceAgent()
	case op == "start" && service == serviceGuard:
		return m.startGuard()
	case op == "start":
		return m.startAgent()
	case op == "kill":
		return m.line.end(service, syscall.SIGKILL)
	case op == "stop":
		return m.line.end(service, syscall.SIGTERM)
	case op == "freeze":
		return m.line.signal(service, syscall.SIGSTOP)
	case op == "thaw":
		return m.line.signal(service, syscall.SIGCONT)
	}
	return fmt.Errorf("this lab cannot %q the %s alone", op, service)
}

// bothCommand does it to the agent and its guard. The guard comes first, so that it does not see what happens to the agent; an agent
// that is to stop in order does so while its guard is there. What is killed is killed at once.
func (m *machine) bothCommand(op string) error {
	first, second := serviceGuard, serviceAgent
	switch op {
	case "stop":
		first, second = second, first
	case "kill":
		if m.Kind != KindNode || !m.on || m.frozen {
			break // for the reason that serviceCommand gives
		}
		return m.killBoth(first, second)
	}
	if err := m.serviceCommand(op, first); err != nil {
		return err
	}
	return m.serviceCommand(op, second)
}

// killBoth kills two services and returns when they are gone.
func (m *machine) killBoth(first, second string) error {
	if !m.line.running(second) {
		return fmt.Errorf("the %s is not running", second) // or only one of them would be killed
	}
	ended := m.line.endOf(first)
	if err := m.line.signal(first, syscall.SIGKILL); err != nil {
		return err
	}
	if err := m.line.end(second, syscall.SIGKILL); err != nil {
		return err
	}
	<-ended
	return nil
}

// powerOn starts the member's first process in namespaces of its own, plugs it in, and starts what it runs.
func (m *machine) powerOn() error {
	if err := m.startFirst(); err != nil {
		return err
	}
	m.on = true
	if err := m.boot(); err != nil {
		m.powerOff()
		return err
	}
	m.door.Store(int64(m.pid))
	return nil
}

func (m *machine) startFirst() error {
	log, err := os.OpenFile(m.host.Dir.path(logFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ours, theirs, err := linePair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	m.first = exec.Command("/proc/self/exe", "lab", "node")
	m.first.Stdout, m.first.Stderr = log, log
	m.first.ExtraFiles = []*os.File{theirs}
	m.first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true,
	}
	if err := m.first.Start(); err != nil {
		ours.Close()
		return fmt.Errorf("starting its first process: %w", err)
	}
	m.pid = m.first.Process.Pid
	m.line = newInitLine(ours)
	return nil
}

// boot gives the running first process its network, its files and its services.
func (m *machine) boot() error {
	for _, iface := range m.Interfaces {
		if err := plug(iface, m.pid); err != nil {
			return err
		}
		if iface.Link != nil {
			if err := m.startLink(iface); err != nil {
				return err
			}
		}
	}
	if err := m.writeFiles(); err != nil {
		return err
	}
	world := bootOrder{Member: m.Member, Dir: m.host.Dir, Keep: binaryDirectory(m.host.Dir)}
	if err := m.line.boot(world); err != nil {
		return err
	}
	if err := m.setLinks(); err != nil {
		return err
	}
	if m.linksUp() {
		if err := m.settle(world); err != nil {
			return err
		}
	}
	switch m.Kind {
	case KindNode:
		if !m.host.NoGuard && len(m.host.Agent) == 0 {
			if err := m.startGuard(); err != nil {
				return err
			}
		}
		return m.startAgent()
	case KindResolver:
		return m.startResolver()
	}
	return m.startHosted()
}

func (m *machine) startLink(iface Interface) error {
	if err := noOffload(iface.Port); err != nil {
		return err
	}
	wire, err := startWire(innerPort(iface.Port), farPort(iface.Port), *iface.Link)
	if err != nil {
		return err
	}
	m.wires = append(m.wires, wire)
	return nil
}

// linksUp says whether the member should have carrier.
func (m *machine) linksUp() bool { return !m.carrierDown && !m.switchDown }

// plugged says whether an interface should have carrier.
func (m *machine) plugged(iface Interface) bool {
	return m.linksUp() && !slices.Contains(m.unplugged, iface.Name)
}

// settle waits until both ends of every link carry frames that is not unplugged.
func (m *machine) settle(world bootOrder) error {
	world.Member.Interfaces = slices.DeleteFunc(slices.Clone(m.Interfaces), func(iface Interface) bool { return !m.plugged(iface) })
	for _, iface := range world.Member.Interfaces {
		if err := waitRunning(iface.Port); err != nil {
			return err
		}
	}
	return m.line.settle(world)
}

// setLinks sets the ports of the switch up or down as they should be.
func (m *machine) setLinks() error {
	if !m.on {
		return nil
	}
	var faults []error
	for _, iface := range m.Interfaces {
		up := m.plugged(iface)
		faults = append(faults, setLink(iface.Port, up))
		if iface.Link != nil {
			faults = append(faults, setLink(carrierPort(iface), up))
		}
	}
	return errors.Join(faults...)
}

// powerOff cuts every link and kills every process, in this order and at once: the sockets of dying processes say
// goodbye, and a machine without power does not.
func (m *machine) powerOff() {
	m.door.Store(0)
	for _, iface := range m.Interfaces {
		_ = setLink(iface.Port, false) // a link that is missing is as good as down
		_ = setLink(carrierPort(iface), false)
	}
	_ = m.first.Process.Kill() // only fails when it is dead already
	m.awaitDeath()
	for _, wire := range m.wires {
		wire.close()
	}
	m.wires = nil
	for _, iface := range m.Interfaces {
		unplug(iface)
	}
	m.line.close()
	m.on, m.frozen = false, false
}

// awaitDeath returns when the kernel has killed every process of the member. It does not wait for ever: a process
// whose parent is outside the lab and stopped, as ctrl-Z does to `lab exec`, stays undead until its parent goes on.
func (m *machine) awaitDeath() {
	dead := make(chan struct{})
	go func(first *exec.Cmd) {
		_ = first.Wait()
		close(dead)
	}(m.first)
	select {
	case <-dead:
	case <-time.After(deathPatience):
	}
}

// stop lets the services end by themselves and then turns the power off.
func (m *machine) stop() error {
	if m.frozen {
		return fmt.Errorf("%s is frozen: thaw it first, or kill it", m.Name)
	}
	var err error
	for _, service := range append(m.hostedNames(), serviceAgent, serviceResolver) {
		if m.line.running(service) {
			err = errors.Join(err, m.line.end(service, syscall.SIGTERM))
		}
	}
	m.powerOff()
	return err
}

// startAgent runs the node's agent.
func (m *machine) startAgent() error {
	argv := []string{m.host.Dir.path(binDir, "holdfast"), "agent", "--dir", m.host.Dir.node(m.Name), "--broker-config", m.brokerFile()}
	if len(m.host.Agent) > 0 {
		argv = m.host.Agent
	}
	return m.line.run(serviceAgent, argv, memberEnvironment(os.Environ(), m.host.Dir, m.Name), m.host.Dir.node(m.Name))
}

// brokerFile is where the settings of the node's broker are, if it has any: never this machine's own.
func (m *machine) brokerFile() string { return filepath.Join(m.host.Dir.node(m.Name), "broker.yaml") }

// replaceAgent runs another agent, which takes the place of the one that runs.
func (m *machine) replaceAgent() error {
	argv := []string{m.host.Dir.path(binDir, "holdfast"), "agent", "--replace", "--dir", m.host.Dir.node(m.Name), "--broker-config", m.brokerFile()}
	return m.line.replace(serviceAgent, argv, memberEnvironment(os.Environ(), m.host.Dir, m.Name), m.host.Dir.node(m.Name))
}

// startGuard runs the guard of the node's agent.
func (m *machine) startGuard() error {
	argv := []string{m.host.Dir.path(binDir, "holdfast"), "guard"}
	return m.line.run(serviceGuard, argv, memberEnvironment(os.Environ(), m.host.Dir, m.Name), m.host.Dir.node(m.Name))
}

func (m *machine) startResolver() error {
	argv, err := resolverCommand(m.host.plan.Resolver, m.host.Dir.node(m.Name))
	if err != nil {
		return err
	}
	return m.line.run(serviceResolver, argv, memberEnvironment(os.Environ(), m.host.Dir, m.Name), m.host.Dir.node(m.Name))
}

// writeFiles writes what the member's /etc is to hold.
func (m *machine) writeFiles() error {
	directory := m.host.Dir.node(m.Name)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	resolv := ""
	if m.host.plan.Resolver.Kind != ResolverNone {
		resolv = fmt.Sprintf("nameserver %s\noptions timeout:1 attempts:5\n", m.host.plan.Resolver.Address)
	}
	if m.Kind == KindMachine {
		if err := writeMachine(directory); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(directory+"/resolv.conf", []byte(resolv), 0o644),
		os.WriteFile(directory+"/hosts", []byte(m.host.plan.HostsFile()), 0o644),
	)
}

// memberEnvironment is the environment of a program that runs in a member.
func memberEnvironment(base []string, dir Directory, member string) []string {
	var out []string
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, variable := range base {
		name, value, _ := strings.Cut(variable, "=")
		switch name {
		case "PATH":
			path = value
		case "HOLDFAST_SOCKET", "HOLDFAST_LAB_NODE":
		default:
			out = append(out, variable)
		}
	}
	return append(out,
		"PATH="+dir.path(binDir)+":"+path+":/usr/local/sbin:/usr/sbin:/sbin", // an ordinary user's PATH has no sbin
		"HOLDFAST_SOCKET=/run/holdfast/holdfast.sock",
		"HOLDFAST_LAB_NODE="+member,
	)
}
