package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// until waits for a condition that the kernel brings about in its own time.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestLabUpAndDown(t *testing.T) {
	file := DefaultFile()
	file.Nodes = 2
	lab := startLab(t, file, launchOptions{})
	var progress bytes.Buffer
	nobody := *lab.plan
	nobody.Resolver.Delegations = nil // no agent answers for the zone here
	if err := WaitServing(t.Context(), lab.dir, &nobody, lab.plan.Names(KindNode), &progress); err != nil {
		t.Fatal(err)
	}
	if got, want := progress.String(), "node1 serves\nnode2 serves\n"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
	lab.wantReach(true, "client1>node1", "client1>node2", "node1>client1", "client1>resolver")
	until(t, "BIND answers with the delegated name server's address", func() bool {
		out, err := lab.run("client1", "holdfast", "lab", "resolve", "ssip.lab")
		return err == nil && strings.HasPrefix(out, "10.10.0.")
	})
	namespaces := lab.namespaces()
	if err := down(lab.dir, false); err != nil {
		t.Fatal(err)
	}
	lab.wantGone(namespaces)
	if _, err := os.Stat(string(lab.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lab's directory is still there: %v", err)
	}
	if removed, err := collectGarbage(); err != nil || len(removed) > 0 {
		t.Errorf("gc after down removed %v, error %v; want nothing to do", removed, err)
	}
}

func TestLabExec(t *testing.T) {
	lab := startLab(t, smallLab(1, 1), launchOptions{})
	status, err := lab.run("node1", "holdfast", "status", "--output", "json")
	if err != nil || !strings.Contains(status, `"/run/holdfast/holdfast.sock"`) {
		t.Errorf("the running binary as holdfast: %q, %v", status, err)
	}
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "no-such-program": 127} {
		_, err := lab.run("client1", "sh", "-c", script)
		got := 0
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			got = failed.ExitCode()
		}
		if got != want {
			t.Errorf("exec of %q: exit code %d, want %d (%v)", script, got, want, err)
		}
	}
	// The command as an operator types it: its exit code, its input, its output, without a terminal.
	command := exec.Command("/proc/self/exe", "lab", "exec", "--dir", string(lab.dir), "node1", "--", "sh", "-c", "cat; hostname; pwd; exit 3")
	command.Stdin = strings.NewReader("input\n")
	command.Dir = "/usr"
	out, err := command.Output()
	if got, want := string(out), "input\nnode1\n/usr\n"; got != want || command.ProcessState.ExitCode() != 3 {
		t.Errorf("lab exec printed %q and %v, want %q and exit code 3", got, err, want)
	}
	for _, check := range []string{"test -z \"$(ls -A /run/user 2>/dev/null)\"", "grep -q node1 /etc/hosts"} {
		if _, err := lab.run("node1", "sh", "-c", check); err != nil {
			t.Errorf("%s: %v", check, err)
		}
	}
	if _, err := lab.run("node9", "true"); err == nil || !strings.Contains(err.Error(), "node1 client1") {
		t.Errorf("exec in a member that is not there: %v, want the names of those that are", err)
	}
}

func TestLabKillAndStart(t *testing.T) {
	lab := startLab(t, smallLab(2, 1), launchOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	victim, err := lab.dir.Command(ctx, "node1", "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the program runs in node1", func() bool {
		out, _ := lab.run("node1", "sh", "-c", "cat /proc/[0-9]*/comm")
		return strings.Contains(out, "sleep")
	})
	mac, _ := lab.run("node1", "cat", "/sys/class/net/eth0/address")
	lab.must(request{Op: "kill", Member: "node1"})
	if err := victim.Wait(); err == nil {
		t.Error("a program in a killed node ended well")
	}
	if got := lab.member("node1"); got.State != "off" || got.Link != "down" {
		t.Errorf("after kill: %+v", got)
	}
	lab.wantReach(false, "client1>node1")
	lab.wantReach(true, "client1>node2")
	lab.fails(request{Op: "kill", Member: "node1"}, "node1 is off")
	if _, err := lab.run("node1", "true"); err == nil || !strings.Contains(err.Error(), "lab start node1") {
		t.Errorf("exec in a dead node: %v, want advice", err)
	}
	lab.must(request{Op: "start", Member: "node1"})
	lab.wantReach(true, "client1>node1")
	if again, _ := lab.run("node1", "cat", "/sys/class/net/eth0/address"); again != mac || mac == "" {
		t.Errorf("the node's MAC address was %q and is %q", mac, again)
	}
	lab.fails(request{Op: "start", Member: "node1"}, "already on")
	lab.must(request{Op: "stop", Member: "node2"})
	lab.wantReach(false, "client1>node2")
}

func TestLabAgentAlone(t *testing.T) {
	lab := startLab(t, smallLab(1, 1), launchOptions{})
	steps := []struct{ op, want string }{
		{"kill", "agent killed by signal SIGKILL"},
		{"start", "agent running"},
		{"freeze", "agent running"},
		{"thaw", "agent running"},
		{"stop", "agent ended with exit code 0"},
		{"start", "agent running"},
	}
	agentIs := func(what string) string {
		out, _ := lab.run("node1", "sh", "-c", "grep -l '[a]gent.--dir' -a /proc/[0-9]*/cmdline | cut -d/ -f3 | xargs -I{} "+what)
		return out
	}
	for _, step := range steps {
		if step.op == "stop" {
			until(t, "the agent is ready for the signal", func() bool { return agentIs("cat /proc/{}/comm") == readyName })
		}
		lab.must(request{Op: step.op, Member: "node1", Agent: true})
		if got := lab.member("node1"); got.Service != step.want || got.State != "on" {
			t.Errorf("after %s --agent: %+v, want %q", step.op, got, step.want)
		}
		if step.op == "freeze" {
			until(t, "the agent stands still", func() bool { return agentIs("sed 's/.*) //; s/ .*//' /proc/{}/stat") == "T" })
		}
		lab.wantReach(true, "client1>node1")
	}
	lab.fails(request{Op: "start", Member: "node1", Agent: true}, "already running")
	lab.fails(request{Op: "kill", Member: "client1", Agent: true}, "has no agent")
}

func TestLabAgentAndGuard(t *testing.T) {
	lab := startLab(t, smallLab(1, 1), launchOptions{})
	both := func(op string) request { return request{Op: op, Member: "node1", Agent: true, Guard: true} }
	for _, step := range []struct{ op, agent, guard string }{
		{"kill", "agent killed by signal SIGKILL", "killed by signal SIGKILL"},
		{"start", "agent running", "running"},
		{"freeze", "agent running", "running"},
		{"thaw", "agent running", "running"},
		{"kill", "agent killed by signal SIGKILL", "killed by signal SIGKILL"},
	} {
		lab.must(both(step.op))
		if got := lab.member("node1"); got.Service != step.agent || got.Guard != step.guard || got.State != "on" {
			t.Errorf("after %s --agent --guard: %+v, want %q and %q", step.op, got, step.agent, step.guard)
		}
	}
	lab.fails(both("kill"), "the agent is not running")
	lab.must(request{Op: "start", Member: "node1", Guard: true})
	lab.fails(both("kill"), "the agent is not running")
	if got := lab.member("node1"); got.Guard != "running" {
		t.Errorf("half of what was asked has been done: %+v", got)
	}
	lab.fails(request{Op: "kill", Member: "client1", Agent: true, Guard: true}, "has no guard")
}

func TestLabCutPartitionSwitch(t *testing.T) {
	lab := startLab(t, smallLab(3, 1), launchOptions{})
	carrier := func(node, want string) {
		t.Helper()
		until(t, node+" has carrier "+want, func() bool {
			got, _ := lab.run(node, "cat", "/sys/class/net/eth0/carrier")
			return got == want
		})
	}
	lab.must(request{Op: "cut", Member: "node1"})
	lab.wantReach(false, "client1>node1", "node1>node2")
	lab.wantReach(true, "client1>node2")
	carrier("node1", "1")
	lab.must(request{Op: "heal", Member: "node1"})
	lab.wantReach(true, "client1>node1")

	lab.must(request{Op: "cut", Member: "node1", Carrier: true})
	carrier("node1", "0")
	lab.must(request{Op: "heal", Member: "node1"})
	carrier("node1", "1")

	lab.must(request{Op: "cut", Member: "node2", Carrier: true, Interface: "eth0"})
	carrier("node2", "0")
	lab.fails(request{Op: "cut", Member: "node2", Carrier: true, Interface: "eth7"}, `no interface "eth7"`)
	lab.must(request{Op: "heal", Member: "node2"})
	carrier("node2", "1")

	status := lab.must(request{Op: "partition", Groups: [][]string{{"node1", "client1"}, {"node2"}}})
	if len(status.Partition) != 2 || strings.Join(status.Partition[0], ",") != "node1,client1" {
		t.Errorf("status shows the partition %v", status.Partition)
	}
	lab.wantReach(true, "client1>node1", "node3>node1", "node3>node2")
	lab.wantReach(false, "client1>node2", "node2>node1")
	lab.fails(request{Op: "partition", Groups: [][]string{{"node1"}, {"node1"}}}, "twice")
	lab.must(request{Op: "heal"})
	lab.wantReach(true, "client1>node2")

	lab.must(request{Op: "switch off"})
	carrier("node1", "1")
	lab.wantReach(false, "client1>node2")
	lab.must(request{Op: "switch on"})
	lab.wantReach(true, "client1>node2")
}

func TestLabFreezeAndThaw(t *testing.T) {
	lab := startLab(t, smallLab(1, 1), launchOptions{})
	beat := lab.dir.path("beat")
	command, err := lab.dir.Command(t.Context(), "node1", "sh", "-c", "while :; do (date +%N > "+beat+"); done")
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	read := func() string { data, _ := os.ReadFile(beat); return string(data) }
	until(t, "the program beats", func() bool { return read() != "" })
	lab.must(request{Op: "freeze", Member: "node1"})
	still := read()
	lab.wantReach(true, "client1>node1") // its kernel goes on
	if got := read(); got != still {
		t.Errorf("a frozen node still beats: %q, then %q", still, got)
	}
	if got := lab.member("node1").State; got != "frozen" {
		t.Errorf("the status says %q", got)
	}
	lab.fails(request{Op: "stop", Member: "node1"}, "frozen")
	lab.must(request{Op: "thaw", Member: "node1"})
	until(t, "the program beats again", func() bool { return read() != still })
	lab.must(request{Op: "freeze", Member: "node1"})
	lab.must(request{Op: "kill", Member: "node1"}) // a frozen node can lose its power
	if err := command.Wait(); err == nil {
		t.Error("a program of a killed node ended well")
	}
	os.Remove(beat)
}

func TestLabCrashLeavesNothing(t *testing.T) {
	lab := startLab(t, smallLab(2, 1), launchOptions{})
	namespaces := lab.namespaces()
	_, host, err := lab.dir.call(request{Op: "status"})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(host, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := lab.dir.waitDead(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	until(t, "the processes of the crashed lab are gone", func() bool { return syscall.Kill(host, 0) != nil })
	lab.wantGone(namespaces)
	if _, _, err := lab.dir.call(request{Op: "status"}); err == nil || !strings.Contains(err.Error(), "no lab runs") {
		t.Errorf("status of a crashed lab: %v", err)
	}
	removed, err := collectGarbage()
	if err != nil || len(removed) != 1 || removed[0] != string(lab.dir) {
		t.Errorf("gc removed %v, error %v; want %s", removed, err, lab.dir)
	}
	if _, err := os.Stat(string(lab.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("gc left the lab's directory: %v", err)
	}
}

func TestLabDirectoryIsTaken(t *testing.T) {
	lab := startLab(t, smallLab(1, 0), launchOptions{})
	if err := launch(lab.dir, lab.plan, launchOptions{}); err == nil || !strings.Contains(err.Error(), "already runs") {
		t.Errorf("a second lab in the same directory: %v", err)
	}
	foreign := filepath.Join(string(lab.dir), "notes.txt")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := down(lab.dir, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("down removed a file that is not the lab's: %v", err)
	}
	if err := down(lab.dir, false); err == nil || !strings.Contains(err.Error(), "no lab runs") {
		t.Errorf("down twice: %v", err)
	}
}

func TestLabInUserNamespaceOfRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: every lab is in a user namespace")
	}
	lab := startLab(t, smallLab(1, 1), launchOptions{userNS: true})
	lab.wantReach(true, "client1>node1")
	if out, err := lab.run("node1", "cat", "/proc/self/uid_map"); err != nil || !strings.Contains(out, "65536") {
		t.Errorf("uid map %q, %v", out, err)
	}
}

func TestLabFaultyLink(t *testing.T) {
	file := smallLab(1, 1)
	file.Links = map[string]Link{"node1": {Seed: 1, Out: Faults{Loss: 0.25}, In: Faults{Duplication: 0.25, Delay: 2 * time.Millisecond}}}
	lab := startLab(t, file, launchOptions{})
	if _, err := lab.run("client1", "ping", "-n", "-q", "-c", "400", "-i", "0.002", "-W", "1", "node1"); err != nil {
		t.Fatal(err)
	}
	counts, ok := lab.member("node1").Wires["eth0"]
	if !ok {
		t.Fatal("the status has no counts for the link")
	}
	if counts.Out.Lost < 40 || counts.In.Duplicated < 40 || counts.In.Lost > 0 || counts.Out.Duplicated > 0 || counts.In.Failed > 0 {
		t.Errorf("400 pings over a link that loses a quarter one way and doubles a quarter the other: %+v", counts)
	}
}

func TestLabRouterForwards(t *testing.T) {
	file := smallLab(1, 1)
	file.Routers = 1
	lab := startLab(t, file, launchOptions{})
	if out, err := lab.run("router1", "cat", "/proc/sys/net/ipv4/ip_forward"); err != nil || out != "1" {
		t.Errorf("ip_forward %q, %v", out, err)
	}
	if out, err := lab.run("client1", "ip", "route", "show", "default"); err != nil || !strings.Contains(out, "via 10.10.0.1") {
		t.Errorf("the client's default route %q, %v", out, err)
	}
}

func TestLabLeash(t *testing.T) {
	lab := startLab(t, smallLab(1, 0), launchOptions{})
	for _, leash := range leashes {
		leash.Close()
	}
	leashes = nil
	if err := lab.dir.waitDead(20 * time.Second); err != nil {
		t.Error(err)
	}
	if _, err := collectGarbage(); err != nil {
		t.Error(err)
	}
}
