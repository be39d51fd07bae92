package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The descriptors that a host is born with.
const (
	hostReadyFD = 3 // gets one line: "ready", or what went wrong
	hostLockFD  = 4 // the lock of the lab's directory, held for life
	hostLeashFD = 5 // optional: when its other end closes, the lab ends
)

// HostOptions are what the host process is told on its command line.
type HostOptions struct {
	Dir     Directory
	Agent   []string // what runs as the agent; empty: the holdfast agent
	NoGuard bool     // run no guards besides the agents
	Leashed bool
	UserNS  bool // everything is in a user namespace
}

// host is the process that a lab consists of.
type host struct {
	HostOptions
	plan    *Plan
	members map[string]*machine // complete before the first request
	mu      sync.Mutex          // serialises changes
	filter  filter
	off     bool // the switch
	ended   chan struct{}
	end     sync.Once
}

// runHost is the life of the host process. It returns when the lab is taken down.
func runHost(options HostOptions) error {
	ready := os.NewFile(hostReadyFD, "ready")
	for _, fd := range []int{hostReadyFD, hostLockFD, hostLeashFD} {
		syscall.CloseOnExec(fd)
	}
	h := &host{HostOptions: options, members: make(map[string]*machine), ended: make(chan struct{})}
	listener, err := h.start()
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, "ready")
	ready.Close()
	go h.serve(listener)
	if options.Leashed {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(hostLeashFD, "leash"))
			h.finish()
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ignoreSignals(syscall.SIGHUP, syscall.SIGPIPE)
	select {
	case <-signals:
		h.finish()
	case <-h.ended:
	}
	<-h.ended
	return nil
}

// start makes the world that the members live in, and then the members.
func (h *host) start() (*net.UnixListener, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("the lab host must be the first process of its own namespaces: use `holdfast lab up`")
	}
	var err error
	if h.plan, err = h.Dir.loadPlan(); err != nil {
		return nil, err
	}
	if err := privateMounts(); err != nil {
		return nil, err
	}
	forgetNamespaces()
	if err := makeSwitch(); err != nil {
		return nil, fmt.Errorf("making the switch: %w", err)
	}
	for _, member := range h.plan.Members {
		m := &machine{host: h, Member: member}
		h.members[member.Name] = m
		if err := m.powerOn(); err != nil {
			return nil, fmt.Errorf("starting %s: %w", member.Name, err)
		}
	}
	return h.Dir.listen()
}

// finish ends the lab: it kills every member and wakes runHost.
func (h *host) finish() {
	h.end.Do(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, m := range h.members {
			if m.on {
				m.powerOff()
			}
		}
		_ = os.RemoveAll(h.Dir.path(binDir)) // before the lock is free; the rest is for who asked, who may want the logs
		close(h.ended)
	})
}

func (h *host) serve(listener *net.UnixListener) {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		go answerOne(connection, h.handle)
	}
}

// handle does one request.
func (h *host) handle(ask request) (response, int) {
	if ask.Op == "down" {
		h.finish() // the caller sees the lock go, or the connection break
		return response{}, 0
	}
	if ask.Op == "enter" {
		return h.enter(ask.Member)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.change(ask); err != nil {
		return response{Error: err.Error()}, 0
	}
	return response{Status: h.status()}, 0
}

// change does a request that changes something.
func (h *host) change(ask request) error {
	switch ask.Op {
	case "status":
		return nil
	case "partition":
		return h.partition(ask.Groups)
	case "switch off", "switch on":
		return h.power(ask.Op == "switch on", ask.Carrier)
	case "heal":
		if ask.Member == "" {
			return h.healAll()
		}
	}
	m, err := h.member(ask.Member)
	if err != nil {
		return err
	}
	switch ask.Op {
	case "cut":
		return h.cut(m, ask)
	case "heal":
		return h.heal(m)
	case "run":
		return m.run(hosted{ask.Service, ask.Argv})
	}
	if ask.Service != "" {
		return m.hostedCommand(ask.Op, ask.Service)
	}
	if ask.Agent && ask.Guard {
		return m.bothCommand(ask.Op)
	}
	if ask.Agent {
		return m.serviceCommand(ask.Op, serviceAgent)
	}
	if ask.Guard {
		return m.serviceCommand(ask.Op, serviceGuard)
	}
	return m.command(ask.Op)
}

func (h *host) member(name string) (*machine, error) {
	m, ok := h.members[name]
	if !ok {
		var names []string
		for _, member := range h.plan.Members {
			names = append(names, member.Name)
		}
		return nil, fmt.Errorf("%q is not a member of this lab; its members are %v", name, names)
	}
	return m, nil
}

// enter names the process whose namespaces are those of the member. It takes no lock, so that one can look into a
// node while it takes its time to stop.
func (h *host) enter(name string) (response, int) {
	m, err := h.member(name)
	if err != nil {
		return response{Error: err.Error()}, 0
	}
	pid := int(m.door.Load())
	if pid == 0 {
		return response{Error: fmt.Sprintf("%s is off: `holdfast lab start %s` turns it on", name, name)}, 0
	}
	return response{UserNS: h.UserNS}, pid
}

func (h *host) ports(m *machine) []string {
	var ports []string
	for _, iface := range m.Interfaces {
		ports = append(ports, iface.Port)
	}
	return ports
}

// cut drops the frames of a member at the switch, or with carrier takes its links down; with the name of an interface only that one's,
// with a direction only those from the member or to it.
func (h *host) cut(m *machine, ask request) error {
	ports, name, carrier := h.ports(m), ask.Interface, ask.Carrier
	if name != "" {
		i := slices.IndexFunc(m.Interfaces, func(iface Interface) bool { return iface.Name == name })
		if i < 0 {
			return fmt.Errorf("%s has no interface %q", m.Name, name)
		}
		ports = []string{m.Interfaces[i].Port}
	}
	if carrier && name != "" {
		m.unplugged = append(m.unplugged, name)
		return m.setLinks()
	}
	if carrier {
		m.carrierDown = true
		return m.setLinks()
	}
	next := h.filter
	add := func(to []string) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(ports), to...))))
	}
	switch ask.Direction {
	case DirectionOut:
		next.Mute = add(h.filter.Mute)
	case DirectionIn:
		next.Deaf = add(h.filter.Deaf)
	default:
		next.Cut = add(h.filter.Cut)
	}
	return h.setFilter(next)
}

// heal undoes what cut did to one member. A partition stays.
func (h *host) heal(m *machine) error {
	next := h.filter
	for _, ports := range []*[]string{&next.Cut, &next.Mute, &next.Deaf} {
		*ports = slices.DeleteFunc(slices.Clone(*ports), func(port string) bool { return slices.Contains(h.ports(m), port) })
	}
	m.carrierDown, m.unplugged = false, nil
	return errors.Join(h.setFilter(next), m.setLinks())
}

// healAll undoes every cut and the partition, and turns the switch on.
func (h *host) healAll() error {
	err := errors.Join(h.setFilter(filter{}), h.power(true, false))
	for _, m := range h.members {
		m.carrierDown, m.unplugged = false, nil
		err = errors.Join(err, m.setLinks())
	}
	return err
}

// partition keeps the members of each group apart from those of every other. It replaces an earlier partition.
func (h *host) partition(groups [][]string) error {
	if len(groups) < 2 {
		return errors.New("a partition has at least two groups, such as node1,node2 / node3")
	}
	next := filter{Cut: h.filter.Cut, Mute: h.filter.Mute, Deaf: h.filter.Deaf}
	seen := make(map[string]bool)
	for _, names := range groups {
		var ports []string
		for _, name := range names {
			m, err := h.member(name)
			if err != nil {
				return err
			}
			if seen[name] {
				return fmt.Errorf("%s is named twice in the partition", name)
			}
			seen[name] = true
			ports = append(ports, h.ports(m)...)
		}
		next.Partition = append(next.Partition, ports)
	}
	return h.setFilter(next)
}

func (h *host) setFilter(next filter) error {
	if err := next.apply(); err != nil {
		return fmt.Errorf("telling the switch what to drop (this needs nftables): %w", err)
	}
	h.filter = next
	return nil
}

// power turns the switch off or on. With carrier the members see their links go down, as with a real power cut;
// without it frames vanish silently.
func (h *host) power(on, carrier bool) error {
	h.off = !on
	err := setLink(bridgeName, on)
	for _, m := range h.members {
		m.switchDown = !on && carrier
		err = errors.Join(err, m.setLinks())
	}
	return err
}

// privateMounts cuts this process off from the machine's mounts and gives it a /proc of its own pid namespace.
func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc for the lab (a container that hides parts of /proc forbids this): %w", err)
	}
	return nil
}

// forgetNamespaces lets go of the namespaces that other programs keep alive by mounts, as `ip netns` does: the lab has
// a copy of each such mount, and would keep them alive longer. In a user namespace the kernel does not allow it.
func forgetNamespaces() {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "nsfs ") {
			_ = unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}
