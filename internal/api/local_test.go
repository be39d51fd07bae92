package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// node is a handler whose answers a test chooses.
type node struct {
	holdfastv1connect.UnimplementedNodeHandler
	status func(context.Context) (*pb.StatusResponse, error)
	events func(context.Context, *connect.ServerStream[pb.Event]) error
}

func (n node) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	return n.status(ctx)
}

func (n node) Events(ctx context.Context, _ *pb.EventsRequest, out *connect.ServerStream[pb.Event]) error {
	return n.events(ctx, out)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serving runs the server until the test ends.
func serving(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

func client(t *testing.T, path string) *LocalClient {
	t.Helper()
	c := NewLocalClient(path)
	t.Cleanup(c.Close)
	return c
}

func TestLocalServerAnswersAndKnowsItsCaller(t *testing.T) {
	path := socketPath(t)
	server, err := ListenLocal(LocalOptions{Path: path, Logger: quiet(), Node: node{status: func(ctx context.Context) (*pb.StatusResponse, error) {
		caller, ok := Caller(ctx)
		if !ok || caller.PID != os.Getpid() || caller.UID != uint32(os.Getuid()) {
			t.Errorf("caller is %+v, %v; want this process", caller, ok)
		}
		return &pb.StatusResponse{Cluster: "lab"}, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket has mode %v, %v; want 0660", info.Mode().Perm(), err)
	}
	status, err := client(t, path).Status(t.Context(), &pb.StatusRequest{})
	if err != nil || status.Cluster != "lab" {
		t.Fatalf("Status = %v, %v", status, err)
	}
}

func TestAdmission(t *testing.T) {
	admit := admission{uid: 501, group: 70}
	for _, c := range []struct {
		name   string
		caller Credentials
		want   bool
	}{
		{"root", Credentials{UID: 0, GID: 9}, true},
		{"the agent's own user", Credentials{UID: 501, GID: 9}, true},
		{"primary group", Credentials{UID: 7, GID: 70}, true},
		{"supplementary group", Credentials{UID: 7, GID: 9, Groups: []uint32{5, 70}}, true},
		{"a stranger", Credentials{UID: 7, GID: 9, Groups: []uint32{5}}, false},
		{"a stranger with group root", Credentials{UID: 7, GID: 0}, false},
	} {
		if got := admit.permits(c.caller); got != c.want {
			t.Errorf("%s: permitted %v, want %v", c.name, got, c.want)
		}
	}
	none := admission{uid: 501, group: -1}
	if none.permits(Credentials{UID: 7, GID: 0xffffffff}) {
		t.Error("without a group, group 4294967295 was let in")
	}
}

func TestStrangerIsToldThatHeIsRefused(t *testing.T) {
	registry := prometheus.NewRegistry()
	path := socketPath(t)
	listener, err := listenSocket(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	// A caller is a stranger when the server belongs to somebody else; so the test needs no second user. Root always
	// may, so root pretends too, by credentials without which nobody is let in.
	server := newLocalServer(LocalOptions{Logger: quiet(), Registerer: registry, Node: node{}, Pages: map[string]http.Handler{
		"/metrics": http.NotFoundHandler(),
	}}, unnamed{listener}, admission{uid: ownUID(), group: -1})
	serving(t, server)
	c := client(t, path)
	_, err = c.Status(t.Context(), &pb.StatusRequest{})
	if connect.CodeOf(err) != connect.CodePermissionDenied || Ended(err) != Refused || !strings.Contains(Text(err), "may not talk to this agent") {
		t.Errorf("a stranger got %v", err)
	}
	response, err := (&http.Client{Transport: c.transport}).Get("http://holdfast/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a stranger's page has status %d, want 403", response.StatusCode)
	}
	if n := counted(t, registry, "holdfast_api_connections_refused_total"); n != 2 {
		t.Errorf("%v refusals were counted, want 2", n)
	}
}

// unnamed hides from the server that its connections are Unix sockets.
type unnamed struct{ net.Listener }

func (u unnamed) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{c}, nil
}

// TestOtherUserIsRefusedByTheKernelsWord makes a real process of another user and no group call the socket.
func TestOtherUserIsRefusedByTheKernelsWord(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_CALL") != "" {
		_, err := NewLocalClient(os.Getenv("HOLDFAST_TEST_CALL")).Status(context.Background(), &pb.StatusRequest{})
		os.Stdout.WriteString("ended: " + connect.CodeOf(err).String() + "\n")
		return
	}
	if os.Getuid() != 0 {
		t.Skip("making a process of another user needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "holdfast-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	program := filepath.Join(dir, "program")
	copyFile(t, "/proc/self/exe", program)
	server, err := ListenLocal(LocalOptions{Path: path, Group: "60123", Logger: quiet(), Node: node{
		status: func(context.Context) (*pb.StatusResponse, error) { return &pb.StatusResponse{}, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil { // as a careless operator would
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cred syscall.Credential
		want string
	}{
		{"stranger", syscall.Credential{Uid: 60001, Gid: 60001}, "permission_denied"},
		{"group", syscall.Credential{Uid: 60001, Gid: 60123}, "code_0"},
		{"supplementary group", syscall.Credential{Uid: 60001, Gid: 60001, Groups: []uint32{60007, 60123}}, "code_0"},
	} {
		out := runAs(t, program, path, &c.cred)
		if c.want == "code_0" {
			c.want = connect.CodeOf(nil).String()
		}
		if !strings.Contains(out, "ended: "+c.want) {
			t.Errorf("%s: %s; want %s", c.name, out, c.want)
		}
	}
}

func TestOversizeMessageIsRefused(t *testing.T) {
	path := socketPath(t)
	server, err := ListenLocal(LocalOptions{Path: path, Logger: quiet(), Node: node{}})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	_, err = client(t, path).ApplyConfig(t.Context(), &pb.ApplyConfigRequest{Yaml: strings.Repeat("x", maxLocalMessage+1)})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a message over the bound ended with %v", err)
	}
	// A small message that unpacks to a large one is the same; the client packs when asked.
	packing := holdfastv1connect.NewNodeClient(&http.Client{Transport: client(t, path).transport}, "http://holdfast", connect.WithSendGzip())
	_, err = packing.ApplyConfig(t.Context(), &pb.ApplyConfigRequest{Yaml: strings.Repeat("x", maxLocalMessage+1)})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a packed message over the bound ended with %v", err)
	}
}

func TestPanicBecomesAnErrorAndTheServerLives(t *testing.T) {
	var log lockedBuffer
	registry := prometheus.NewRegistry()
	calls := 0
	path := socketPath(t)
	server, err := ListenLocal(LocalOptions{
		Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: registry,
		Node: node{status: func(context.Context) (*pb.StatusResponse, error) {
			if calls++; calls == 1 {
				panic("the secret of the panic")
			}
			return &pb.StatusResponse{}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	c := client(t, path)
	_, err = c.Status(t.Context(), &pb.StatusRequest{})
	if connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(Text(err), "fault of Holdfast") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a panic reached its caller as %v", err)
	}
	if text := log.String(); !strings.Contains(text, "the secret of the panic") || !strings.Contains(text, "local_test.go") {
		t.Errorf("the log does not say what failed and where: %s", text)
	}
	if _, err := c.Status(t.Context(), &pb.StatusRequest{}); err != nil {
		t.Errorf("after a panic the server answers with %v", err)
	}
	if n := counted(t, registry, "holdfast_api_panics_total"); n != 1 {
		t.Errorf("%v panics were counted, want 1", n)
	}
}

func TestStopEndsStreams(t *testing.T) {
	path := socketPath(t)
	server, err := ListenLocal(LocalOptions{Path: path, Logger: quiet(), Node: node{
		events: func(ctx context.Context, out *connect.ServerStream[pb.Event]) error {
			if err := out.Send(&pb.Event{Id: 1}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	stream, err := client(t, path).Events(t.Context(), &pb.EventsRequest{Follow: true})
	if err != nil || !stream.Receive() {
		t.Fatalf("no first event: %v, %v", err, stream.Err())
	}
	cancel()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("a stream ended with %v when the agent stopped", stream.Err())
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left after a stop: %v", err)
	}
}

func TestEnded(t *testing.T) {
	_, err := client(t, socketPath(t)).Status(t.Context(), &pb.StatusRequest{})
	if Ended(err) != Unreachable {
		t.Errorf("without an agent the outcome is %v (%v)", Ended(err), err)
	}
	path := socketPath(t)
	server, err := ListenLocal(LocalOptions{Path: path, Logger: quiet(), Node: node{status: func(context.Context) (*pb.StatusResponse, error) {
		return nil, Unavailable("the store has lost its quorum: start node2 or node3")
	}}})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	_, err = client(t, path).Status(t.Context(), &pb.StatusRequest{})
	if Ended(err) != Refused || Text(err) != "the store has lost its quorum: start node2 or node3" {
		t.Errorf("an agent without a store: outcome %v, text %q", Ended(err), Text(err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = client(t, path).Status(ctx, &pb.StatusRequest{}); Ended(err) != Stopped {
		t.Errorf("a call given up: outcome %v (%v)", Ended(err), err)
	}
	if Ended(nil) != Done {
		t.Error("no error is not done")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// counted is the sum of all counters of one name.
func counted(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.Metric {
				sum += metric.Counter.GetValue()
			}
		}
	}
	return sum
}

// TestLocalAnswersAreBounded: what claims to be an agent cannot fill the memory of a command.
func TestLocalAnswersAreBounded(t *testing.T) {
	path := socketPath(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/proto")
		block := make([]byte, 1<<20)
		for range maxLocalAnswer>>20 + 1 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	if _, err := client(t, path).Status(t.Context(), &pb.StatusRequest{}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("an answer without end: %v", err)
	}
}
