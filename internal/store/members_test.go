package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/store"
)

// memberEnvironment tells the test binary to be a store member instead of running tests: members that are to be killed or
// frozen need a process of their own.
const memberEnvironment = "HOLDFAST_TEST_MEMBER"

// diskEnvironment gives the member a disk of that size.
const diskEnvironment = "HOLDFAST_TEST_DISK"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnvironment); text != "" {
		os.Exit(beMember(text))
	}
	os.Exit(m.Run())
}

// beMember runs a member until its standard input ends, and says "listening" or what went wrong.
func beMember(text string) int {
	var options store.MemberOptions
	if err := json.Unmarshal([]byte(text), &options); err != nil {
		fmt.Println(err)
		return 2
	}
	if os.Getenv("HOLDFAST_TEST_LOG") != "" {
		options.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	if size := os.Getenv(diskEnvironment); size != "" {
		if err := mountDisk(options.Dir, 0, size); err != nil {
			fmt.Println("no disk:", err)
			return 3
		}
	}
	member, err := store.StartMember(options)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("listening")
	orders := bufio.NewScanner(os.Stdin)
	more := make(chan bool, 1)
	go func() { more <- orders.Scan() }()
	select {
	case <-member.Stopped():
		fmt.Println("stopped:", member.Err())
		if !<-more {
			return closeMember(member)
		}
	case again := <-more:
		if !again {
			return closeMember(member)
		}
	}
	// The only order is a new size for the disk, and to start again on it, in the same mount namespace.
	if err := mountDisk(options.Dir, syscall.MS_REMOUNT, orders.Text()); err != nil {
		fmt.Println(err)
		return 1
	}
	_ = os.Unsetenv(diskEnvironment)
	err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	fmt.Println(err)
	return 1
}

func closeMember(member *store.Member) int {
	if err := member.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// mountDisk puts a small disk of its own under a member, in the mount namespace of its process.
func mountDisk(dir string, flags uintptr, size string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if flags == 0 {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return err
		}
	}
	return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size)
}

// cluster is a set of members, each in its own process.
type cluster struct {
	testing.TB
	id      *identity.Identity
	options []store.MemberOptions
	running []*process // nil: not running
}

type process struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   chan string // what it says
}

// newIdentity makes a cluster named "test" with one node, whose certificate every member and client here uses.
func newIdentity(t testing.TB) *identity.Identity {
	t.Helper()
	dir := t.TempDir()
	if err := identity.Init(dir, "test"); err != nil {
		t.Fatal(err)
	}
	if err := identity.Issue(dir, dir, "node1", nil, nil); err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// memberOptions describes count members on free ports of the loopback.
func memberOptions(t testing.TB, id *identity.Identity, count int) []store.MemberOptions {
	t.Helper()
	peers := map[string]string{}
	var all []store.MemberOptions
	for i := range count {
		name := fmt.Sprintf("node%d", i+1)
		peers[name] = freeAddress(t)
		all = append(all, store.MemberOptions{Name: name, Dir: filepath.Join(t.TempDir(), name), Peers: peers, Cluster: "test",
			ListenClient: []string{freeAddress(t)}, Files: files(id)})
	}
	return all
}

func files(id *identity.Identity) store.Files {
	return store.Files{AuthorityCert: id.Paths.AuthorityCert, NodeCert: id.Paths.NodeCert, NodeKey: id.Paths.NodeKey,
		ServerName: identity.ServerName}
}

// freeAddress returns an address that was free a moment ago.
// The port lies below those that the kernel gives to outgoing connections, which would take it between two uses.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// startCluster starts count members and waits until they work together.
func startCluster(t testing.TB, count int) *cluster {
	t.Helper()
	id := newIdentity(t)
	c := &cluster{TB: t, id: id, options: memberOptions(t, id, count), running: make([]*process, count)}
	t.Cleanup(func() {
		for i := range c.running {
			c.kill(i)
		}
	})
	for i := range count {
		c.start(i)
	}
	c.awaitQuorum()
	return c
}

func (c *cluster) awaitQuorum() {
	c.Helper()
	s := c.open()
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, _, err := s.List(ctx, "nothing/"); err == nil {
			return
		} else if ctx.Err() != nil {
			c.Fatalf("the members do not come together: %v", err)
		}
	}
}

// start starts member i and returns what it says first.
func (c *cluster) start(i int) string {
	c.Helper()
	return c.startWith(i, nil, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
}

func (c *cluster) startWith(i int, environment []string, attributes *syscall.SysProcAttr) string {
	c.Helper()
	text, err := json.Marshal(c.options[i])
	if err != nil {
		c.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(append(os.Environ(), memberEnvironment+"="+string(text)), environment...)
	command.Stderr = os.Stderr
	command.SysProcAttr = attributes
	p := &process{command: command, lines: make(chan string, 16)}
	if p.stdin, err = command.StdinPipe(); err != nil {
		c.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := command.Start(); err != nil {
		return err.Error()
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	c.running[i] = p
	return <-p.lines
}

// kill ends member i as a power cut would.
func (c *cluster) kill(i int) {
	p := c.running[i]
	if p == nil {
		return
	}
	c.running[i] = nil
	_ = p.command.Process.Kill()
	for range p.lines { // until its output has ended
	}
	_ = p.command.Wait()
}

// freeze stops member i's process without ending it; thaw lets it go on.
func (c *cluster) freeze(i int) { c.signal(i, syscall.SIGSTOP) }
func (c *cluster) thaw(i int)   { c.signal(i, syscall.SIGCONT) }

func (c *cluster) signal(i int, signal syscall.Signal) {
	c.Helper()
	if err := c.running[i].command.Process.Signal(signal); err != nil {
		c.Fatal(err)
	}
}

// open returns a client of all members.
func (c *cluster) open(change ...func(*store.Options)) store.Store {
	c.Helper()
	var endpoints []string
	for _, o := range c.options {
		endpoints = append(endpoints, o.ListenClient[0])
	}
	return openClient(c, c.id, endpoints, change...)
}

func openClient(t testing.TB, id *identity.Identity, endpoints []string, change ...func(*store.Options)) store.Store {
	t.Helper()
	options := store.Options{Endpoints: endpoints, TLS: id.ClientTLS(), Cluster: "test", Board: new(problem.Board)}
	for _, f := range change {
		f(&options)
	}
	s, err := store.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// leader returns the index of the leading member.
func (c *cluster) leader(s store.Store) int {
	c.Helper()
	for range 100 {
		health := s.Health(context.Background())
		for i, member := range health.Members {
			if member.Leader && member.Name != "" && strings.HasPrefix(member.Name, "node") {
				return i
			}
		}
	}
	c.Fatal("there is no leader")
	return -1
}
