package poll

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what comes soon; nothing waits for it to pass.
const patience = time.Minute

const (
	nodes = `{"items":[
		{"key":"cm","address":"192.0.2.1","roles":["central-management","search-local"]},
		{"key":"gw1","address":"192.0.2.2","roles":["managed-host","search-local"]}]}`
	statuses = `{"items":[
		{"key":"cm","health_status":null,"sync_status":"n/a"},
		{"key":"gw1","last_seen":"2026-03-01T12:00:00Z","health_status":{"disk":40,"load1":1,"load5":2,"load15":3,"total_sessions":4}}],
		"meta":{"self":"/api/cluster/status/cm"}}`
	health = `{"health_status":{"disk":10,"load1":0.1,"load5":0.2,"load15":0.3,"sessions_total":1}}`
)

// fake is a central manager on loopback whose answers can be spoilt, by path.
type fake struct {
	server *httptest.Server
	spoil  map[string]http.HandlerFunc
	done   chan struct{} // closed when handlers that hang are to end
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{spoil: map[string]http.HandlerFunc{}, done: make(chan struct{})}
	answers := map[string]string{"/api/cluster/nodes": nodes, "/api/cluster/status": statuses, "/api/health_status": health}
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if spoil, ok := f.spoil[r.URL.Path]; ok {
			spoil(w, r)
			return
		}
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	f.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.server.StartTLS()
	t.Cleanup(func() {
		close(f.done)
		f.server.Close()
	})
	return f
}

func (f *fake) answer(path, body string) *fake {
	f.spoil[path] = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	return f
}

func (f *fake) address() string { return f.server.Listener.Addr().String() }

func (f *fake) fingerprint() Fingerprint { return sha256.Sum256(f.server.Certificate().Raw) }

func (f *fake) client(timeout time.Duration) *Client {
	return New(Options{Address: f.address(), Fingerprint: f.fingerprint(), Timeout: timeout})
}

func TestFetch(t *testing.T) {
	f := newFake(t)
	view, failure := f.client(patience).Fetch(t.Context(), fleet.Expected{Central: "cm", Services: []fleet.Service{{Protocol: fleet.SSH, Port: 22}}})
	if failure != nil {
		t.Fatalf("%s: %s", failure.Kind, failure)
	}
	if view.Central != "cm" || len(view.Gateways) != 2 || view.Gateways[0].Health.Load5 != 0.2 || view.Gateways[1].Health.Load5 != 2 {
		t.Errorf("read %+v", view)
	}
}

func TestHeadersAreSent(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, path := range []string{"/api/cluster/nodes", "/api/cluster/status"} {
		f.spoil[path] = func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen[r.Header.Get("Authorization")+" "+r.Header.Get("Accept")+" "+r.Method] = true
			fmt.Fprint(w, map[string]string{"/api/cluster/nodes": nodes, "/api/cluster/status": statuses}[r.URL.Path])
		}
	}
	c := New(Options{Address: f.address(), Fingerprint: f.fingerprint(), Timeout: patience, Header: http.Header{"Authorization": {"Bearer x"}}})
	if _, failure := c.Fetch(t.Context(), fleet.Expected{}); failure != nil {
		t.Fatal(failure)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 1 || !seen["Bearer x application/json GET"] {
		t.Errorf("seen %v", seen)
	}
}

// The knobs of the fake that answer in some way: each with what is made of it.
func TestFetchFrom(t *testing.T) {
	claim := strings.Replace(nodes, `"managed-host","search-local"`, `"central-management"`, 1)
	tests := []struct {
		name  string
		path  string
		spoil func(f *fake) http.HandlerFunc
		kind  fleet.FailureKind
		says  string
	}{
		{"status 500", "/api/cluster/status", status(500), fleet.Unwell, "/api/cluster/status: status 500"},
		{"status 401", "/api/cluster/nodes", status(401), fleet.Unwell, "status 401"},
		{"status 204", "/api/cluster/nodes", status(204), fleet.Unwell, "status 204"},
		{"a redirect", "/api/cluster/nodes", func(f *fake) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, f.server.URL+"/api/cluster/status", http.StatusFound)
			}
		}, fleet.Unwell, "status 302"},
		{"JSON that is cut off", "/api/cluster/nodes", body(nodes[:len(nodes)-9]), fleet.Garbled, "cannot be read as a list"},
		{"a body that is cut off", "/api/cluster/status", func(*fake) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "5000")
				fmt.Fprint(w, statuses)
			}
		}, fleet.Garbled, "unexpected EOF"},
		{"no end", "/api/cluster/nodes", func(*fake) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			}
		}, fleet.Garbled, "longer than 4194304 bytes"},
		{"an endless header", "/api/cluster/nodes", func(*fake) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHeader)) }
		}, fleet.Unreachable, "exceeded"},
		{"an empty list", "/api/cluster/nodes", body(`{"items":[]}`), fleet.Empty, "lists no gateway"},
		{"another one that answers", "/api/cluster/status", body(strings.Replace(statuses, "status/cm", "status/gw1", 1)), fleet.Contradictory, `the answer comes from "gw1"`},
		{"another central manager", "/api/cluster/nodes", body(strings.Replace(nodes, "central-management", "managed-host", 1)), fleet.Contradictory, "no gateway"},
		{"not the linked one", "/api/cluster/nodes", body(strings.Replace(claim, `"central-management","search-local"`, `"managed-host"`, 1)), fleet.Contradictory, "the linked central manager cm is not one in its own list; gw1 is"},
		{"a reset", "/api/cluster/nodes", func(*fake) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					panic(err)
				}
				if inner, ok := conn.(interface{ NetConn() net.Conn }); ok {
					conn = inner.NetConn()
				}
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
		}, fleet.Refused, "reset"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			f.spoil[test.path] = test.spoil(f)
			view, failure := f.client(patience).Fetch(t.Context(), fleet.Expected{Central: "cm"})
			if view != nil || failure == nil || failure.Kind != test.kind || !strings.Contains(failure.Error(), test.says) {
				t.Errorf("got %v, %v; want %s: %s", view, failure, test.kind, test.says)
			}
		})
	}
}

func status(code int) func(*fake) http.HandlerFunc {
	return func(*fake) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
}

func body(text string) func(*fake) http.HandlerFunc {
	return func(*fake) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
	}
}

// The knobs that spoil an answer and leave a view all the same.
func TestFetchInSpiteOf(t *testing.T) {
	unknown := strings.Replace(nodes, `"managed-host","search-local"`, `"managed-host","search-local","witness"],"colour":["blue"`, 1)
	twice := strings.Replace(nodes, "]}", `]},{"key":"gw1","address":"192.0.2.2","roles":["managed-host","search-local"]}`, 1)
	twice = strings.Replace(twice, `},{"key":"gw1"`, `},{"key":"gw1"`, 1)
	claims := strings.Replace(nodes, `"managed-host","search-local"`, `"central-management"`, 1)
	for name, f := range map[string]*fake{
		"an unknown role and field": newFake(t).answer("/api/cluster/nodes", unknown),
		"duplicate keys":            newFake(t).answer("/api/cluster/nodes", twice),
		"two claimants":             newFake(t).answer("/api/cluster/nodes", claims),
		"a clock in the past":       newFake(t).answer("/api/cluster/status", strings.Replace(statuses, "2026", "1970", 1)),
		"a clock in the future":     newFake(t).answer("/api/cluster/status", strings.Replace(statuses, "2026", "9999", 1)),
		"a clock that is none":      newFake(t).answer("/api/cluster/status", strings.Replace(statuses, "2026-03-01T12:00:00Z", "yesterday", 1)),
		"no health of its own":      newFake(t).answer("/api/health_status", "no"),
	} {
		view, failure := f.client(patience).Fetch(t.Context(), fleet.Expected{Central: "cm"})
		if failure != nil || view.Central != "cm" || len(view.Gateways) != 2 || view.Gateways[1].Refuses() != "" || view.Gateways[1].Status != fleet.Available {
			t.Errorf("%s: %v, %+v", name, failure, view)
		}
	}
	f := newFake(t)
	f.spoil["/api/health_status"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	if view, failure := f.client(patience).Fetch(t.Context(), fleet.Expected{}); failure != nil || view.Gateways[0].Status != fleet.Available {
		t.Errorf("without health of its own: %v", failure)
	}
}

// Whoever has another certificate is not believed, whatever it says.
func TestAnotherCertificate(t *testing.T) {
	f := newFake(t)
	c := New(Options{Address: f.address(), Fingerprint: sha256.Sum256([]byte("another")), Timeout: patience})
	view, failure := c.Fetch(t.Context(), fleet.Expected{})
	if view != nil || failure == nil || failure.Kind != fleet.Untrusted || !strings.Contains(failure.Error(), f.fingerprint().String()+" came, ") {
		t.Errorf("got %v, %v", view, failure)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	_, failure := New(Options{Address: address, Timeout: patience}).Fetch(t.Context(), fleet.Expected{})
	if failure == nil || failure.Kind != fleet.Refused {
		t.Errorf("got %v", failure)
	}
	_, failure = New(Options{Address: "no port", Timeout: patience}).Fetch(t.Context(), fleet.Expected{})
	if failure == nil || failure.Kind != fleet.Unreachable || strings.Contains(failure.Error(), "url.") {
		t.Errorf("of an address that is none: %v", failure)
	}
}

// What hangs is ended by the timeout, wherever it hangs: in the connection, in the handshake, before the answer, in the middle of it.
func TestWhatHangs(t *testing.T) {
	hang := func(first string) func(f *fake) {
		return func(f *fake) {
			f.spoil["/api/cluster/nodes"] = func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, first)
				if first != "" {
					if err := http.NewResponseController(w).Flush(); err != nil {
						panic(err)
					}
				}
				<-f.done
			}
		}
	}
	for name, spoil := range map[string]func(*fake){"before the answer": hang(""), "in the middle of it": hang(nodes[:50])} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			spoil(f)
			_, failure := f.client(100*time.Millisecond).Fetch(t.Context(), fleet.Expected{})
			if failure == nil || failure.Kind != fleet.TimedOut || !strings.Contains(failure.Error(), "no whole answer within 100 ms") {
				t.Errorf("got %v", failure)
			}
		})
	}
	t.Run("in the handshake", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // connections are made by the kernel, and nobody takes them
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, failure := New(Options{Address: listener.Addr().String(), Timeout: 50 * time.Millisecond}).Fetch(t.Context(), fleet.Expected{})
		if failure == nil || failure.Kind != fleet.TimedOut {
			t.Errorf("got %v", failure)
		}
	})
	t.Run("in the connection", func(t *testing.T) {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done() // as a black hole
			return nil, ctx.Err()
		}
		_, failure := New(Options{Address: "192.0.2.1:443", Timeout: 50 * time.Millisecond, Dial: dial}).Fetch(t.Context(), fleet.Expected{})
		if failure == nil || failure.Kind != fleet.TimedOut {
			t.Errorf("got %v", failure)
		}
	})
}

func TestFingerprints(t *testing.T) {
	f := newFake(t)
	got, err := Learn(t.Context(), f.address(), patience)
	if err != nil || got != f.fingerprint() {
		t.Fatalf("learnt %s, %v", got, err)
	}
	text := got.String()
	withColons := "SHA256:" + strings.ToUpper(strings.Join(pairs(text[7:]), ":"))
	for _, good := range []string{text, text[7:], withColons, "  " + text + "\n"} {
		if again, err := ParseFingerprint(good); err != nil || again != got {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "sha256:", text + "00", text[:len(text)-1], text[:len(text)-2] + "zz", "sha1:" + text[7:]} {
		if again, err := ParseFingerprint(bad); err == nil || again != (Fingerprint{}) || !strings.Contains(err.Error(), "64 hexadecimal digits") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Learn(t.Context(), "127.0.0.1:1", patience); err == nil || !strings.Contains(err.Error(), "asking 127.0.0.1:1 for its certificate") {
		t.Errorf("of nobody: %v", err)
	}
}

func pairs(s string) (list []string) {
	for ; s != ""; s = s[2:] {
		list = append(list, s[:2])
	}
	return list
}

func TestKnock(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := netip.MustParseAddrPort(listener.Addr().String())
	g := &fleet.Gateway{Addresses: []netip.Addr{at.Addr()}, Services: []fleet.Service{{Protocol: fleet.SSH, Port: at.Port()}}}
	if evidence, reached := Knock(t.Context(), g, patience); !reached || evidence != "tcp "+at.String()+": connected" {
		t.Errorf("of one that listens: %v, %s", reached, evidence)
	}
	g.Addresses, g.Name = nil, "localhost"
	if evidence, reached := Knock(t.Context(), g, patience); !reached {
		t.Errorf("by its name: %s", evidence)
	}
	g.Addresses = []netip.Addr{netip.MustParseAddr("127.0.0.2"), at.Addr()} // the first one refuses, the second one answers
	if evidence, reached := Knock(t.Context(), g, patience); !reached || !strings.Contains(evidence, "127.0.0.1") {
		t.Errorf("at its second address: %v, %s", reached, evidence)
	}
	listener.Close()
	g.Addresses, g.Name = []netip.Addr{at.Addr()}, ""
	if evidence, reached := Knock(t.Context(), g, patience); reached || !strings.Contains(evidence, "connection refused") {
		t.Errorf("of one that does not: %v, %s", reached, evidence)
	}
	if evidence, reached := Knock(t.Context(), &fleet.Gateway{}, patience); reached || evidence != "neither an address nor a name is known" {
		t.Errorf("of nothing: %v, %s", reached, evidence)
	}
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("over"))
	if _, reached := Knock(ended, g, patience); reached {
		t.Error("after the end")
	}
}
