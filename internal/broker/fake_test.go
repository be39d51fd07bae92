package broker

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/watch"
	"github.com/holdfast/holdfast/internal/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what comes soon; nothing waits for it to pass.
const patience = time.Minute

// What a fake central manager does when it is asked.
const (
	answers   = iota
	blackHole // takes the question and says nothing
	resets
	lists // answers, with an empty list
)

// fakeFleet is a fleet on loopback: a central manager over TLS, and gateways that are ports that somebody listens on.
type fakeFleet struct {
	t      *testing.T
	server *httptest.Server
	mode   atomic.Int32
	done   chan struct{}

	mu       sync.Mutex
	gateways []*fakeGateway
	beat     int
}

type fakeGateway struct {
	key, roles string
	port       uint16
	listener   net.Listener // nil: it is dead
	disk       float64
}

// newFleet makes a fleet whose central manager is cm, a search-primary that takes no sessions, with gateways gw1 to gwN.
func newFleet(t *testing.T, n int) *fakeFleet {
	t.Helper()
	f := &fakeFleet{t: t, done: make(chan struct{})}
	f.gateways = append(f.gateways, &fakeGateway{key: "cm", roles: `"central-management","search-primary"`, port: 1})
	for i := range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := &fakeGateway{key: fmt.Sprintf("gw%d", i+1), roles: `"managed-host","search-minion"`, listener: listener, disk: 40, port: uint16(listener.Addr().(*net.TCPAddr).Port)}
		f.gateways = append(f.gateways, g)
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
	}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(f.serve))
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.server.StartTLS()
	t.Cleanup(func() {
		close(f.done)
		f.server.Close()
		for _, g := range f.gateways {
			if g.listener != nil {
				g.listener.Close()
			}
		}
	})
	return f
}

func (f *fakeFleet) serve(w http.ResponseWriter, r *http.Request) {
	switch f.mode.Load() {
	case blackHole:
		select {
		case <-f.done:
		case <-r.Context().Done():
		}
		return
	case resets:
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			if inner, ok := conn.(interface{ NetConn() net.Conn }); ok {
				conn = inner.NetConn()
			}
			conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
		return
	case lists:
		fmt.Fprint(w, `{"items":[]}`)
		return
	}
	fmt.Fprint(w, f.says(r.URL.Path))
}

// says is what the central manager answers: it has heard every gateway just now, dead or not.
func (f *fakeFleet) says(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if path == "/api/health_status" {
		return `{"health_status":{"disk":10,"load1":0,"load5":0,"load15":0,"sessions_total":0}}`
	}
	f.beat++
	items := ""
	for i, g := range f.gateways {
		if i > 0 {
			items += ","
		}
		if path == "/api/cluster/nodes" {
			items += fmt.Sprintf(`{"key":%q,"address":"127.0.0.1","roles":[%s],"protocols":{"ssh":%d}}`, g.key, g.roles, g.port)
		} else {
			seen := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(f.beat) * time.Second).Format(time.RFC3339)
			items += fmt.Sprintf(`{"key":%q,"last_seen":%q,"health_status":{"disk":%g,"load1":1,"load5":1,"load15":1}}`, g.key, seen, g.disk)
		}
	}
	return `{"items":[` + items + `],"meta":{"self":"/api/cluster/status/cm"}}`
}

// kill ends a gateway: nobody listens there any more. The central manager does not say so.
func (f *fakeFleet) kill(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gateways {
		if g.key == key {
			g.listener.Close()
			g.listener = nil
		}
	}
}

func (f *fakeFleet) address() string { return f.server.Listener.Addr().String() }

func (f *fakeFleet) fingerprint() poll.Fingerprint { return sha256.Sum256(f.server.Certificate().Raw) }

// link is a link of it, with times that suit a test.
func (f *fakeFleet) link() Link {
	return Link{Fingerprint: f.fingerprint(), Link: watch.Link{
		Fleet: "east", Address: f.address(), Poll: 20 * time.Millisecond, Timeout: time.Second, Probe: 20 * time.Millisecond, Keep: 50 * time.Millisecond,
	}}
}

// events are what a broker told.
type events struct {
	mu   sync.Mutex
	told []string
}

func (e *events) add(kind, subject, message string, _ map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, kind+" "+subject+": "+message)
}

func (e *events) count(kind string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, line := range e.told {
		if len(line) > len(kind) && line[:len(kind)+1] == kind+" " {
			n++
		}
	}
	return n
}

// testBroker is a broker and what it tells the world.
type testBroker struct {
	*Broker
	t       *testing.T
	options Options
	events  events
	open    bool
}

// newBroker opens a broker with a directory of its own.
func newBroker(t *testing.T, name string, peers Peers) *testBroker {
	t.Helper()
	b := &testBroker{t: t}
	b.options = Options{
		Dir: filepath.Join(t.TempDir(), "broker"), Name: name, Logger: slog.New(slog.DiscardHandler), Event: b.events.add, Peers: peers,
		Exchange: 20 * time.Millisecond, Pace: time.Millisecond,
	}
	b.start()
	t.Cleanup(b.close)
	return b
}

func (b *testBroker) start() {
	b.t.Helper()
	b.options.Board, b.options.Registerer = &problem.Board{}, prometheus.NewRegistry()
	opened, err := Open(b.options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Broker, b.open = opened, true
}

// close is what a machine does that stops: nothing of the broker runs on.
func (b *testBroker) close() {
	if !b.open {
		return
	}
	b.open = false
	if err := b.Close(); err != nil {
		b.t.Error(err)
	}
}

// mustLink links a fleet.
func (b *testBroker) mustLink(link Link) Linked {
	b.t.Helper()
	linked, err := b.Link(b.t.Context(), link, false, false)
	if err != nil || !linked.Done {
		b.t.Fatalf("linking: %+v, %v", linked, err)
	}
	return linked
}

// launch asks for a gateway, and returns its key, or the code of the refusal.
func (b *testBroker) launch(r Request) (string, Result) {
	b.t.Helper()
	result, err := b.Launch(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if result.Refusal != nil {
		return string(result.Refusal.Code), result
	}
	return result.Answer.Ref().String(), result
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !so() {
		if pause(ctx, 2*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("it does not come to be that %s", what)
		}
	}
}

func (b *testBroker) source(want fleet.Source) func() bool {
	return func() bool { f := b.Fleets(); return len(f) == 1 && f[0].Source == want }
}

// lines reads an audit.
func (b *testBroker) lines() (entries []Entry) {
	b.t.Helper()
	file, err := os.Open(filepath.Join(b.options.Dir, auditDir, auditName))
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var e Entry
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			b.t.Fatalf("a line of the audit: %v", err)
		}
		entries = append(entries, e)
	}
	return entries
}

// network is how brokers of a test reach each other.
type network struct {
	mu      sync.Mutex
	brokers map[string]*Broker // those that are up
}

type road struct {
	*network
	from string
}

func (r road) Names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.brokers {
		if name != r.from {
			names = append(names, name)
		}
	}
	return names
}

func (r road) Rules(_ context.Context, name string, ask Ask) (Part, error) {
	r.mu.Lock()
	b := r.brokers[name]
	r.mu.Unlock()
	if b == nil {
		return Part{}, fmt.Errorf("nobody is there")
	}
	return b.AnswerRules(ask), nil
}

func (n *network) set(name string, b *testBroker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b == nil {
		delete(n.brokers, name)
	} else {
		n.brokers[name] = b.Broker
	}
}
