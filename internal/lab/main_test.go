package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// TestMain lets the test binary play the holdfast binary: a lab runs /proc/self/exe.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(playHoldfast(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// readyName is the name of the process of a played agent that is ready for a signal.
const readyName = "ready"

func playHoldfast(arguments []string) int {
	root := &cobra.Command{Use: "holdfast", SilenceUsage: true, SilenceErrors: true}
	agent := &cobra.Command{Use: "agent", RunE: func(*cobra.Command, []string) error {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		err := os.WriteFile("/proc/self/comm", []byte(readyName), 0) // from here on it ends in order
		<-signals
		return err
	}}
	agent.Flags().String("dir", "", "")
	agent.Flags().String("broker-config", "", "")
	status := &cobra.Command{Use: "status", Run: func(c *cobra.Command, _ []string) {
		fmt.Printf("{\"serving\": true, \"socket\": %q}\n", os.Getenv("HOLDFAST_SOCKET"))
	}}
	status.Flags().String("output", "", "")
	guard := &cobra.Command{Use: "guard", RunE: agent.RunE}
	root.AddCommand(Command(), agent, guard, status)
	root.SetArgs(arguments)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return 1
	}
	return 0
}

// testLab is a running lab.
type testLab struct {
	*testing.T
	dir  Directory
	plan *Plan
}

// startLab runs a lab that ends with the test. It skips the test where the kernel forbids labs.
func startLab(t *testing.T, file File, options launchOptions) testLab {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	plan, err := BuildPlan(file)
	if err != nil {
		t.Fatal(err)
	}
	lab := testLab{t, Directory(filepath.Join(t.TempDir(), "lab")), plan}
	needTools(t, plan)
	options.leash = true // a test that is killed leaves nothing
	err = launch(lab.dir, plan, options)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("this machine does not allow labs: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if lab.dir.alive() {
			if err := down(lab.dir, false); err != nil {
				t.Errorf("taking the lab down: %v", err)
			}
		}
	})
	return lab
}

func needTools(t *testing.T, plan *Plan) {
	t.Helper()
	if err := checkTools(plan); err != nil {
		t.Skip(err)
	}
	for _, program := range []string{"ping"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: install the Debian package iputils-ping", program)
		}
	}
}

// smallLab has no resolver, so that it needs no program beyond the kernel's tools.
func smallLab(nodes, clients int) File {
	return File{Nodes: nodes, Clients: clients, Resolver: ResolverNone}
}

func (l testLab) run(member string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := l.dir.Output(ctx, member, argv...)
	return strings.TrimSpace(string(out)), err
}

// must does a request that has to succeed.
func (l testLab) must(ask request) *Status {
	l.Helper()
	answer, _, err := l.dir.call(ask)
	if err != nil {
		l.Fatalf("%s %s: %v", ask.Op, ask.Member, err)
	}
	return answer.Status
}

// fails does a request that has to fail with a text.
func (l testLab) fails(ask request, want string) {
	l.Helper()
	if _, _, err := l.dir.call(ask); err == nil || !strings.Contains(err.Error(), want) {
		l.Errorf("%s %s: got error %v, want one that says %q", ask.Op, ask.Member, err, want)
	}
}

// member is the state of one member.
func (l testLab) member(name string) MemberStatus {
	l.Helper()
	all := l.must(request{Op: "status"}).Members
	i := slices.IndexFunc(all, func(m MemberStatus) bool { return m.Name == name })
	if i < 0 {
		l.Fatalf("%s is missing from the status", name)
	}
	return all[i]
}

// reaches reports whether a ping from one member reaches another within the seconds given.
func (l testLab) reaches(from, to string, seconds int) bool {
	_, err := l.run(from, "ping", "-n", "-c", "1", "-W", strconv.Itoa(seconds), to)
	return err == nil
}

// wantReach checks several pairs, each written "client1>node1".
func (l testLab) wantReach(want bool, pairs ...string) {
	l.Helper()
	for _, pair := range pairs {
		from, to, _ := strings.Cut(pair, ">")
		got := l.reaches(from, to, 1)
		// A sender that asked for the neighbour in vain gives up what it sends meanwhile; a later ping asks anew.
		for range 5 {
			if want && !got {
				got = l.reaches(from, to, 2)
			}
		}
		if got != want {
			l.Errorf("%s reaches %s: %v, want %v", from, to, got, want)
		}
	}
}

// namespaces lists the network namespaces of the members that are on.
func (l testLab) namespaces() []string {
	l.Helper()
	var all []string
	for _, member := range l.plan.Members {
		name, err := l.run(member.Name, "readlink", "/proc/self/ns/net")
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, name)
	}
	return all
}

// wantGone checks that no process of the machine is in any of the namespaces, none has the lab's directory on its
// command line, and the machine's own network has none of the lab's links.
func (l testLab) wantGone(namespaces []string) {
	l.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		l.Fatal(err)
	}
	for _, entry := range entries {
		process := "/proc/" + entry.Name()
		if network, err := os.Readlink(process + "/ns/net"); err == nil && slices.Contains(namespaces, network) {
			l.Errorf("process %s is still in %s", entry.Name(), network)
		}
		if line, err := os.ReadFile(process + "/cmdline"); err == nil && strings.Contains(string(line), string(l.dir)) {
			l.Errorf("process %s still runs: %q", entry.Name(), line)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), string(l.dir)) {
		l.Errorf("the machine has a mount of the lab (error %v):\n%s", err, mounts)
	}
	for _, member := range l.plan.Members {
		for _, iface := range member.Interfaces {
			if linkExists(iface.Port) {
				l.Errorf("the machine's network has the link %s", iface.Port)
			}
		}
	}
	if linkExists(bridgeName) {
		l.Errorf("the machine's network has the link %s", bridgeName)
	}
}

// TestOrdinaryUser runs the tests of real labs again as a user without any privilege.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user; as this user the tests of labs ran already")
	}
	if testing.Short() {
		t.Skip("-short: the tests of labs run once only")
	}
	directory, err := os.MkdirTemp("", "holdfast-lab-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	binary := filepath.Join(directory, "lab.test")
	if err := errors.Join(os.Chmod(directory, 0o777), copyTestBinary(binary)); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, "-test.run=^TestLab", "-test.v", "-test.timeout=120s")
	command.Dir = directory
	command.Env = append(os.Environ(), "HOME="+directory, "TMPDIR="+directory)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

func copyTestBinary(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close(), os.Chmod(to, 0o755))
}
