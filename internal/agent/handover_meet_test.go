package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// peerVariable makes this test binary an agent that runs, of another version: "other-form" answers that it hands over in another form,
// "too-old" has no socket for it. Its value names its socket behind a colon.
const peerVariable = "HOLDFAST_TEST_RUNNING_AGENT"

// TestMain lets the test binary play that agent.
func TestMain(m *testing.M) {
	if kind, socket, ok := strings.Cut(os.Getenv(peerVariable), ":"); ok {
		if err := playRunningAgent(kind, socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playRunningAgent says that it listens, and ends as an agent does when it is asked to, saying so.
func playRunningAgent(kind, socket string) error {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	local, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer local.Close()
	if kind == "other-form" {
		successors, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket + handoverSuffix, Net: "unix"})
		if err != nil {
			return err
		}
		defer successors.Close()
		go func() {
			conn, err := successors.AcceptUnix()
			if err != nil {
				return
			}
			var hello handoverHello
			_, _ = receiveHandover(conn, &hello)
			_ = sendHandover(conn, handoverWelcome{Refused: "this agent, of version 0.1, hands over in another form", Drain: true})
		}()
	}
	fmt.Println("listening")
	<-stopped
	fmt.Println("drained")
	return nil
}

// runningAgent starts one, and returns what it says.
func runningAgent(t *testing.T, kind, socket string) (says *bufio.Reader) {
	t.Helper()
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), peerVariable+"="+kind+":"+socket)
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Process.Kill(); _ = program.Wait() })
	says = bufio.NewReader(output)
	if line, err := says.ReadString('\n'); line != "listening\n" {
		t.Fatalf("the running agent said %q: %v", line, err)
	}
	return says
}

// nextAgent is one that is started with --replace.
func nextAgent(t *testing.T, dir, socket string) *Agent {
	return &Agent{
		options: Options{Dir: dir, Socket: socket, Replace: true, Version: "2"}, log: testLogger(t, 1), now: time.Now,
		identity: &identity.Identity{Cluster: "test", Node: "node1"}, self: cluster.Node{Name: "node1", LNN: 1},
	}
}

// An agent that cannot hand over, because its form of it is another one or because it knows none, is stopped as an operator would, and
// the new one then starts as if none had run.
func TestOneOfAnotherFormIsDrained(t *testing.T) {
	for _, kind := range []string{"other-form", "too-old"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "s")
			says := runningAgent(t, kind, socket)
			from, err := nextAgent(t, dir, socket).meetPredecessor(t.Context())
			if err != nil || from != nil {
				t.Fatalf("met %v: %v", from, err)
			}
			if rest, err := io.ReadAll(says); err != nil || string(rest) != "drained\n" {
				t.Errorf("the running agent ended, and said %q: %v", rest, err)
			}
			if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its socket is still there: %v", err)
			}
		})
	}
}

// The other side of it: whoever names another form is told so, and to drain this agent; whoever names this form is not.
func TestAnAgentKnowsItsForm(t *testing.T) {
	for format, drain := range map[int]bool{handoverFormat: false, handoverFormat + 1: true, 0: true} {
		running, next := handoverPair(t)
		a := nextAgent(t, t.TempDir(), "")
		a.edges.wire, a.tenancy = (*datagram.Link)(nil), newTenancy(1, 1, tenure.Timing{}, time.Now)
		if err := sendHandover(next, handoverHello{Format: format, Version: "3", Cluster: "test", Node: "node1"}); err != nil {
			t.Fatal(err)
		}
		if err := a.welcome(running, os.Getpid()); err == nil {
			t.Errorf("format %d: it was let in", format)
		}
		var answer handoverWelcome
		if _, err := receiveHandover(next, &answer); err != nil || answer.Drain != drain || answer.Refused == "" {
			t.Errorf("format %d: %+v, %v", format, answer, err)
		}
	}
}

// A running agent that does not answer is named, with what to do.
func TestAFrozenAgentIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket+handoverSuffix) // the kernel takes connections, and nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket + handoverSuffix, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &predecessor{conn: conn, process: -1}
	defer p.close()
	_, err = p.greet(nextAgent(t, dir, socket), 10*time.Millisecond)
	if err == nil {
		t.Fatal("it answered")
	}
	pid := strconv.Itoa(os.Getpid())
	if text := p.unmet(err).Error(); !strings.Contains(text, "the running agent, process "+pid+", does not answer") || !strings.Contains(text, "kill -CONT "+pid) || strings.Contains(text, "i/o timeout") {
		t.Error(text)
	}
	if text := p.unmet(errors.New("broken")).Error(); !strings.Contains(text, "asking the running agent for its place: broken") {
		t.Error(text)
	}
}

// One agent runs with a directory. Another that is started with it is told where that one is, unless it comes to replace just that one.
func TestADirectoryIsOneAgents(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	running := nextAgent(t, dir, socket)
	if err := running.enterDirectory(); err != nil {
		t.Fatal(err)
	}
	if err := nextAgent(t, dir, socket).enterDirectory(); err != nil {
		t.Errorf("replacing it: %v", err)
	}
	elsewhere := nextAgent(t, dir, filepath.Join(dir, "none"))
	plain := nextAgent(t, dir, socket)
	plain.options.Replace = false
	for name, next := range map[string]*Agent{"by another socket": elsewhere, "without replacing": plain} {
		if err := next.enterDirectory(); err == nil || !strings.Contains(err.Error(), "an agent runs with the directory "+dir) || !strings.Contains(err.Error(), "--socket "+socket) {
			t.Errorf("%s: %v", name, err)
		}
	}
	running.leaveDirectory()
	if err := elsewhere.enterDirectory(); err != nil { // what an agent before left in the file does not count
		t.Error(err)
	}
	elsewhere.leaveDirectory()
}
