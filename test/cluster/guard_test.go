package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestGuard: what becomes of a node's addresses when its agent, its guard or both are killed or frozen. While the guard works, they are
// off the node before another one has them, whatever happens to the agent; the watcher sees to that throughout. Without a guard that
// works the kernel lets go when their lifetime ends. Times are printed, not judged. One lab serves all, in order.
func TestGuard(t *testing.T) {
	whole := t
	// A span of one second: with a longer one the lifetimes in the kernel end before the deadline, and the guard finds nothing left.
	l := startLab(t, 4, cast{nodes: 4, clients: 1, resolver: "none", multiplier: 10}.file())
	w := l.watch(t)
	kill := func(t *testing.T, node string) time.Time { return l.signal(t, node, syscall.SIGKILL) }
	t.Run("agent killed", func(t *testing.T) {
		l.letsGo(t, w, "node2", kill)
		l.do(t, "start", "--agent", "node2")
		l.spread(t, l.nodes, 3, 3, 3, 3)
	})
	t.Run("agent killed with its cgroup", func(t *testing.T) {
		killGroup := l.cgroupOf(t, "node3", "agent") // skips where there is none
		l.letsGo(t, w, "node3", func(*testing.T, string) time.Time { return killGroup() })
		l.do(t, "start", "--agent", "node3")
		l.spread(t, l.nodes, 3, 3, 3, 3)
	})
	t.Run("agent frozen", func(t *testing.T) {
		l.letsGo(t, w, "node4", func(t *testing.T, node string) time.Time { return l.signal(t, node, syscall.SIGSTOP) })
		l.do(t, "thaw", "--agent", "node4")
		l.spread(t, l.nodes, 3, 3, 3, 3)
	})
	t.Run("guard killed", func(t *testing.T) { l.guardKilled(t) })
	t.Run("guard frozen and agent killed", func(t *testing.T) {
		l.freezeGuard(t, "node2")
		w.leave(t, "node2")
		kill(t, "node2")
		l.spread(t, without(l.nodes, "node2"), 4, 4, 4)
		l.holdsNothing(t, "node2") // by the lifetimes
		l.do(t, "thaw", "--guard", "node2")
		w.join(whole, "node2")
		l.do(t, "start", "--agent", "node2")
		l.spread(t, l.nodes, 3, 3, 3, 3)
		l.answersFrom(t, "node2")
	})
	t.Run("both killed with their cgroups", func(t *testing.T) {
		killAgent, killGuard := l.cgroupOf(t, "node4", "agent"), l.cgroupOf(t, "node4", "guard")
		w.leave(t, "node4")
		killGuard()
		killAgent()
		l.mortal(t, "node4")
		l.spread(t, without(l.nodes, "node4"), 4, 4, 4)
		l.holdsNothing(t, "node4") // nobody is there to take them off: the kernel does
		w.join(whole, "node4")
		l.do(t, "start", "--agent", "--guard", "node4")
		l.spread(t, l.nodes, 3, 3, 3, 3)
		l.answersFrom(t, "node4")
	})
	t.Run("both frozen", func(t *testing.T) {
		w.leave(t, "node3")
		l.do(t, "freeze", "--guard", "node3")
		l.do(t, "freeze", "--agent", "node3")
		l.spread(t, without(l.nodes, "node3"), 4, 4, 4)
		l.holdsNothing(t, "node3") // by the lifetimes
		w.join(whole, "node3")
		l.do(t, "thaw", "--agent", "node3")
		l.do(t, "thaw", "--guard", "node3")
		l.spread(t, l.nodes, 3, 3, 3, 3)
		l.answersFrom(t, "node3")
	})
	t.Run("agent stopped in order", func(t *testing.T) {
		before := l.guardLog(t, "node1")
		l.do(t, "stop", "--agent", "node1")
		l.spread(t, without(l.nodes, "node1"), 4, 4, 4)
		if log := strings.TrimPrefix(l.guardLog(t, "node1"), before); strings.Contains(log, "silenced") || !strings.Contains(log, "goodbye=true") {
			t.Errorf("the guard acted on an orderly end:\n%s", log)
		}
		l.do(t, "start", "--agent", "node1")
		l.spread(t, l.nodes, 3, 3, 3, 3)
	})
}

// letsGo does something to a node's agent, which says when it began, and waits until the others have what it had. The guard has taken each address off before.
func (l *lab) letsGo(t *testing.T, w *watcher, node string, fault func(t *testing.T, node string) time.Time) {
	t.Helper()
	before, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	began := fault(t, node)
	after, _ := l.spread(t, without(l.nodes, node), 4, 4, 4)
	report := w.check(t)
	for address, holder := range before {
		if holder != node {
			continue
		}
		off, taken := report.order(node, address, true), report.order(after[address], address, false)
		if off < 0 || taken < 0 || taken < off {
			t.Errorf("%s went off %s as change %d and came to %s as change %d", address, node, off, after[address], taken)
			continue
		}
		since := func(i int) time.Duration {
			return time.Unix(0, report.Seen[i].At).Sub(began).Round(100 * time.Microsecond)
		}
		t.Logf("%s: off %s after %v, on %s after %v", address, node, since(off), after[address], since(taken))
	}
	log := l.guardLog(t, node)
	if last := strings.LastIndex(log, `msg="silenced this node"`); last < 0 || strings.Contains(log[last:], "addresses=0") {
		t.Errorf("it was not the guard who did it:\n%s", log)
	} else {
		t.Logf("the guard: %s", log[last:])
	}
}

// guardKilled: nothing moves, the agent says that it has none, and goes on under the next one.
func (l *lab) guardKilled(t *testing.T) {
	before, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	lapses := l.lapses(t)
	l.do(t, "kill", "--guard", "node1")
	eventually(t, "node1 says that it has no guard", func() error { return l.problem("node1", "guard.absent", "node1") })
	l.do(t, "start", "--guard", "node1")
	eventually(t, "node1 has a guard", func() error {
		if l.problem("node1", "guard.absent", "") == nil {
			return errors.New("it says that it has none")
		}
		return nil
	})
	after, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	if l.lapses(t) != lapses {
		t.Log("a node lapsed meanwhile, on a machine that is too busy for a span of a second: what moved proves nothing")
		return
	}
	for address, node := range before {
		if after[address] != node {
			t.Errorf("%s moved from %s to %s", address, node, after[address])
		}
	}
}

// lapses counts how often a node has lapsed.
func (l *lab) lapses(t *testing.T) int {
	t.Helper()
	count := 0
	for _, node := range l.nodes {
		log, err := os.ReadFile(filepath.Join(l.dir, "nodes", node, "agent.log"))
		if err != nil {
			t.Fatal(err)
		}
		count += strings.Count(string(log), "event=node.lapsed")
	}
	return count
}

// freezeGuard freezes a guard and waits until its agent has noticed.
func (l *lab) freezeGuard(t *testing.T, node string) {
	t.Helper()
	l.do(t, "freeze", "--guard", node)
	eventually(t, node+" says that its guard does not answer", func() error { return l.problem(node, "guard.absent", "does not answer") })
}

// answersFrom checks that nothing of a silence is left: a client reaches what the node holds.
func (l *lab) answersFrom(t *testing.T, node string) {
	t.Helper()
	pool, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
	for address, holder := range pool {
		if holder == node {
			l.must(t, "client1", "ping", "-c", "1", "-W", "5", address)
		}
	}
}

func (l *lab) guardLog(t *testing.T, node string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(l.dir, "nodes", node, "guard.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// process is the number of a node's agent or guard, as this process sees it.
func (l *lab) process(t *testing.T, node, role string) int {
	t.Helper()
	for _, process := range processesOf(l.dir) {
		var pid int
		var line string
		if _, err := fmt.Sscanf(process, "%d %q", &pid, &line); err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(line)
		if len(words) < 2 || words[1] != role {
			continue
		}
		work, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // each runs in its node's directory
		if err == nil && filepath.Base(work) == node {
			return pid
		}
	}
	t.Fatalf("%s has no %s", node, role)
	return 0
}

// signal signals a node's agent without going through the lab, and returns when.
func (l *lab) signal(t *testing.T, node string, s syscall.Signal) time.Time {
	t.Helper()
	pid := l.process(t, node, "agent")
	at := time.Now()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
	return at
}

// mortal checks that each moving address that a node's kernel still has ends by itself.
func (l *lab) mortal(t *testing.T, node string) {
	t.Helper()
	for line := range strings.Lines(l.must(t, node, "ip", "-o", "-4", "addr", "show")) {
		if strings.Contains(line, "/32 ") && (!strings.Contains(line, " valid_lft ") || strings.Contains(line, " valid_lft forever")) {
			t.Errorf("the kernel of %s would keep an address for ever: %s", node, line)
		}
	}
}

// cgroupOf puts a node's agent or guard into a cgroup of its own, and returns what kills everything in it at once and says when.
func (l *lab) cgroupOf(t *testing.T, node, role string) (kill func() time.Time) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	root := ""
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 2 && words[2] == "cgroup2" {
			root = words[1]
		}
	}
	if root == "" {
		t.Skip("no cgroup2 is mounted here")
	}
	group, err := os.MkdirTemp(root, "holdfast-test-")
	if err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		eventually(t, "the cgroup is empty and gone", func() error { return os.Remove(group) })
	})
	if _, err := os.Stat(filepath.Join(group, "cgroup.kill")); err != nil {
		t.Skipf("this kernel kills no cgroups (Linux 5.14 does): %v", err)
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(l.process(t, node, role))), 0o644); err != nil {
		t.Skipf("no process can be put into a cgroup here: %v", err)
	}
	return func() time.Time {
		at := time.Now()
		if err := os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0o644); err != nil {
			t.Errorf("killing the cgroup: %v", err)
		}
		return at
	}
}
