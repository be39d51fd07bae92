package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The watcher proves that no moving address is on two nodes. It subscribes to the address notifications of every node's
// kernel, by sockets in their network namespaces that one thread reads. Two sockets have no common order, so a holder that
// is seen before its predecessor's release is not yet a breach: the watcher then reads all sockets once more, and only what
// was on two nodes at one instant during that second reading is reported. It never reports what did not happen; it can miss
// only what is over before it wakes up.
//
// It is a process of its own (this test binary, told so by watcherVariable), because it must enter namespaces and, for an
// ordinary user, the lab's user namespace.

const watcherVariable = "HOLDFAST_TEST_WATCHER"

// seen is one change of one kernel's addresses.
type seen struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	Gone    bool   `json:"gone"`
	At      int64  `json:"at"` // when the watcher read it, in nanoseconds of the wall clock; for the log alone
}

// watcherReport is everything since the start.
type watcherReport struct {
	Breaches []string `json:"breaches"`
	Seen     []seen   `json:"seen"`
	Error    string   `json:"error,omitempty"`
}

// watcher is the test's end.
type watcher struct {
	lab     *lab
	allowed string // a breach that the test makes itself
	keep    map[string]*program
	*dialogue
}

// watch starts a watcher over all nodes of a lab. At the end of the test it fails the test if there was a breach.
func (l *lab) watch(t *testing.T) *watcher {
	t.Helper()
	w := &watcher{lab: l, keep: map[string]*program{}}
	anchor := w.enter(t, l.nodes[0])
	argv := []string{os.Args[0]}
	if os.Getuid() != 0 {
		argv = append([]string{"nsenter", "--user=" + fmt.Sprintf("/proc/%d/ns/user", anchor), "--preserve-credentials", "--"}, argv...)
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(os.Environ(), watcherVariable+"=1")
	command.Stderr = os.Stderr
	w.dialogue = converse(t, command)
	t.Cleanup(func() { w.check(t) })
	for _, node := range l.nodes {
		w.join(t, node)
	}
	return w
}

// enter keeps a process in a member and returns its number once it is in the member's network namespace.
func (w *watcher) enter(t *testing.T, member string) int {
	t.Helper()
	if p := w.keep[member]; p != nil && p.running() {
		return p.command.Process.Pid
	}
	p := w.lab.start(t, member, "sh", "-c", "echo in; cat")
	w.keep[member] = p
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	pid := p.command.Process.Pid
	eventually(t, "a process is in "+member, func() error {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil || theirs == own || !p.running() {
			return fmt.Errorf("it is in %q: %w", theirs, errors.Join(err))
		}
		return nil
	})
	return pid
}

// join begins to watch a node; also one that was started again.
func (w *watcher) join(t *testing.T, node string) {
	t.Helper()
	w.ask(t, fmt.Sprintf("join %s %d", node, w.enter(t, node)))
}

// leave stops watching a node: one that is about to lose its power, or to be frozen with its guard, whose kernel then keeps what it
// had for a bounded time. Where the agent alone is killed or frozen, the guard takes the addresses off in time.
func (w *watcher) leave(t *testing.T, node string) {
	t.Helper()
	w.ask(t, "leave "+node)
}

func (w *watcher) ask(t *testing.T, line string) watcherReport {
	t.Helper()
	var report watcherReport
	answer, err := w.dialogue.ask(line)
	if err == nil {
		err = json.Unmarshal([]byte(answer), &report)
	}
	if err == nil && report.Error != "" {
		err = errors.New(report.Error)
	}
	if err != nil {
		t.Fatalf("the watcher, asked to %s: %v", line, err)
	}
	return report
}

// check fails the test if any address was on two nodes.
func (w *watcher) check(t *testing.T) watcherReport {
	t.Helper()
	report := w.ask(t, "report")
	for _, breach := range report.Breaches {
		if breach != w.allowed {
			t.Errorf("two holders: %s", breach)
		}
	}
	return report
}

// order is where in the log an address came to or went off a node, the last time; -1 if never.
func (r watcherReport) order(node, address string, gone bool) int {
	for i := len(r.Seen) - 1; i >= 0; i-- {
		if s := r.Seen[i]; s.Node == node && s.Address == address && s.Gone == gone {
			return i
		}
	}
	return -1
}

// The rest is the watcher's own process.

type watched struct {
	name string
	fd   int
	held map[netip.Addr]bool
}

type watching struct {
	nodes  []*watched
	report watcherReport
	known  map[string]bool
}

// watcherLife is the life of the watcher's process.
func watcherLife() int {
	runtime.LockOSThread()
	w := &watching{known: map[string]bool{}}
	input := bufio.NewReader(os.Stdin)
	for {
		fds := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
		for _, node := range w.nodes {
			fds = append(fds, unix.PollFd{Fd: int32(node.fd), Events: unix.POLLIN})
		}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return 1
		}
		w.look()
		if fds[0].Revents == 0 {
			continue
		}
		line, err := input.ReadString('\n')
		if err != nil {
			return 0
		}
		if err := json.NewEncoder(os.Stdout).Encode(w.obey(strings.Fields(line))); err != nil {
			return 1
		}
	}
}

func (w *watching) obey(words []string) watcherReport {
	w.look()
	var err error
	switch {
	case len(words) == 3 && words[0] == "join":
		err = w.join(words[1], words[2])
	case len(words) == 2 && words[0] == "leave":
		w.drop(words[1])
	case len(words) == 1 && words[0] == "report":
		return w.report
	default:
		err = fmt.Errorf("%q is no command", words)
	}
	if err != nil {
		return watcherReport{Error: err.Error()}
	}
	return watcherReport{Error: w.report.Error}
}

func (w *watching) drop(name string) {
	w.nodes = slices.DeleteFunc(w.nodes, func(node *watched) bool {
		if node.name == name {
			unix.Close(node.fd)
		}
		return node.name == name
	})
}

// join opens a socket in the namespace of a process, subscribes, and asks for what is there already.
func (w *watching) join(name, pid string) error {
	w.drop(name)
	there, err := os.Open("/proc/" + pid + "/ns/net")
	if err != nil {
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering %s: %w", name, err)
	}
	fd, err := subscribe()
	// The way home is open to root alone; it does not matter where this process is while it only reads.
	if err != nil {
		return fmt.Errorf("subscribing in %s: %w", name, err)
	}
	w.nodes = append(w.nodes, &watched{name: name, fd: fd, held: map[netip.Addr]bool{}})
	w.look()
	return nil
}

func subscribe() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // an ordinary user's is smaller, and enough
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR})
	if err == nil {
		ask := make([]byte, unix.NLMSG_HDRLEN+unix.SizeofIfAddrmsg)
		ask[0], ask[4], ask[6], ask[7] = byte(len(ask)), unix.RTM_GETADDR, unix.NLM_F_REQUEST, unix.NLM_F_DUMP>>8
		err = unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// look reads what the kernels said and judges it.
func (w *watching) look() {
	w.take()
	if len(w.twice()) == 0 {
		return
	}
	w.take()
	for _, breach := range w.twice() {
		if !w.known[breach] {
			w.known[breach] = true
			w.report.Breaches = append(w.report.Breaches, breach)
		}
	}
}

// twice lists the addresses that are on two nodes.
func (w *watching) twice() []string {
	var found []string
	for i, one := range w.nodes {
		for _, other := range w.nodes[i+1:] {
			for address := range one.held {
				if other.held[address] {
					found = append(found, fmt.Sprintf("%s on %s and %s", address, one.name, other.name))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func (w *watching) take() {
	buffer := make([]byte, 1<<17)
	for _, node := range w.nodes {
		for {
			n, _, err := unix.Recvfrom(node.fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				w.report.Error = fmt.Sprintf("notifications of %s were lost: %v", node.name, err)
				break
			}
			messages, err := syscall.ParseNetlinkMessage(buffer[:n])
			if err != nil {
				w.report.Error = fmt.Sprintf("a notification of %s makes no sense: %v", node.name, err)
			}
			for _, message := range messages {
				w.apply(node, message)
			}
		}
	}
}

// apply takes in one notification, if it is about a host prefix that is not the machine's own.
func (w *watching) apply(node *watched, message syscall.NetlinkMessage) {
	kind := message.Header.Type
	if kind != unix.RTM_NEWADDR && kind != unix.RTM_DELADDR || len(message.Data) < unix.SizeofIfAddrmsg {
		return
	}
	attributes, err := syscall.ParseNetlinkRouteAttr(&message)
	if err != nil {
		return
	}
	var address netip.Addr
	for _, attribute := range attributes {
		if attribute.Attr.Type == unix.IFA_LOCAL || attribute.Attr.Type == unix.IFA_ADDRESS && !address.IsValid() {
			address, _ = netip.AddrFromSlice(attribute.Value)
		}
	}
	if !address.IsValid() || int(message.Data[1]) != address.BitLen() || address.IsLoopback() || address.IsLinkLocalUnicast() {
		return
	}
	gone := kind == unix.RTM_DELADDR
	if node.held[address] == !gone {
		return // a renewal
	}
	if gone {
		delete(node.held, address)
	} else {
		node.held[address] = true
	}
	const most = 100_000
	if len(w.report.Seen) < most {
		w.report.Seen = append(w.report.Seen, seen{node.name, address.String(), gone, time.Now().UnixNano()})
	}
}
