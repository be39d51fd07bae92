package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/lastgood"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/problem"
)

// brokerOnly is an agent of which only the broker runs, with its local API, on a real socket.
type brokerOnly struct {
	agent  *Agent
	socket string
	client *api.LocalClient
	stop   func()
}

// newBrokerOnly starts one. Gateways are what it knows from before, by a central manager that is a black hole; none: no fleet is linked.
func newBrokerOnly(t testing.TB, gateways ...string) *brokerOnly {
	t.Helper()
	dir := t.TempDir()
	if len(gateways) > 0 {
		prepareBroker(t, dir, blackHole(t), gateways)
	}
	return newBrokerOnlyIn(t, dir, "")
}

// newBrokerOnlyIn starts one with what is in a directory, and with settings if they are named.
func newBrokerOnlyIn(t testing.TB, dir, settings string) *brokerOnly {
	t.Helper()
	o := &brokerOnly{socket: filepath.Join(dir, "s")}
	ctx, cancel := context.WithCancel(t.Context())
	a := &Agent{
		options: Options{Dir: dir, Socket: o.socket, BrokerFile: settings, Version: "test"}, ctx: ctx, log: slog.New(slog.DiscardHandler), now: boottime.Now, started: time.Now(), board: &problem.Board{},
		registry: prometheus.NewRegistry(), events: newEventLog(), self: cluster.Node{Name: "node1", LNN: 1}, peers: &peers{},
	}
	a.broker = &brokerRoom{Agent: a}
	o.agent = a
	local, err := a.listenLocal()
	if err != nil {
		t.Fatal(err)
	}
	a.startServers([]*api.Server{local})
	o.client = api.NewLocalClient(o.socket)
	var once sync.Once
	o.stop = func() {
		once.Do(func() {
			o.client.Close()
			cancel()
			a.wg.Wait()
		})
	}
	t.Cleanup(o.stop)
	for o.agent.broker.opened.Load() == nil && o.agent.broker.why.Load() == nil {
		runtime.Gosched()
	}
	return o
}

// blackHole is an address where somebody takes connections and says nothing.
func blackHole(t testing.TB) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// prepareBroker leaves in an agent's directory what a broker leaves there: a link, and the last good view.
func prepareBroker(t testing.TB, dir, central string, keys []string) {
	t.Helper()
	shelf, err := lastgood.Open(filepath.Join(dir, brokerDir, "views"))
	if err != nil {
		t.Fatal(err)
	}
	links := fmt.Sprintf(`{"format":1,"fleets":[{"name":"east","address":%q,"fingerprint":"sha256:%s","central":"cm","strict":true,"services":{"ssh":22}}]}`, central, strings.Repeat("ab", 32))
	if err := os.WriteFile(filepath.Join(dir, brokerDir, "links.json"), []byte(links), 0o600); err != nil {
		t.Fatal(err)
	}
	gateways := []fleet.Gateway{{Key: "cm", Roles: fleet.NewRoles(fleet.CentralManagement, fleet.SearchLocal), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Services: []fleet.Service{{Protocol: fleet.SSH, Port: 22}}, Status: fleet.Available}}
	for i, key := range keys {
		gateways = append(gateways, fleet.Gateway{
			Key: key, Roles: fleet.NewRoles(fleet.ManagedHost, fleet.SearchLocal), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(2 + i)})},
			Services: []fleet.Service{{Protocol: fleet.SSH, Port: 22}}, Status: fleet.Available, Health: fleet.Health{Known: true, DiskUsed: 40, Load5: 1},
		})
	}
	view, err := fleet.NewView("cm", gateways)
	if err != nil {
		t.Fatal(err)
	}
	if err := shelf.Save(&lastgood.Record{Fleet: "east", View: view, Stamp: lastgood.Stamp{Clocks: lastgood.Look()}}); err != nil {
		t.Fatal(err)
	}
}

// Plain JSON over HTTP is enough to launch a session, with the central manager black-holed from the start: the answer comes from what
// was known before.
func TestPlainJSONLaunchesWhileTheCentralManagerIsABlackHole(t *testing.T) {
	o := newBrokerOnly(t, "gw1", "gw2")
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
	}}}
	defer web.CloseIdleConnections()
	answer, err := web.Post("http://holdfast/holdfast.v1.Broker/Launch", "application/json", strings.NewReader(`{"target":"db1","protocol":"ssh","who":"anna"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", answer.Status, body, err)
	}
	var got struct {
		Launch  string
		Source  string
		Gateway struct {
			Gateway   string
			Addresses []string
			Port      int
		}
		LeftOut []struct{ Gateway, Why string }
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if got.Gateway.Gateway != "east/gw1" || got.Gateway.Port != 22 || got.Source != "last-good" || got.Launch == "" || len(got.LeftOut) != 1 || !strings.Contains(got.LeftOut[0].Why, "central manager") {
		t.Errorf("the answer is %s", body)
	}
	events, _ := o.agent.events.after(0)
	found := false
	for _, e := range events {
		found = found || e.Kind == "broker.launch-chosen" && e.Fields["who"] == "anna" && e.Fields["gateway"] == "east/gw1" && strings.HasPrefix(e.Fields["caller"], "uid ")
	}
	if !found {
		t.Errorf("the launch is not among the events: %+v", events)
	}
	if refused, err := web.Post("http://holdfast/holdfast.v1.Broker/Launch", "application/json", strings.NewReader(`{"target":"db1","address":"no"}`)); err != nil || refused.StatusCode != http.StatusBadRequest {
		t.Errorf("an address that is none: %v, %v", refused, err)
	} else {
		refused.Body.Close()
	}
}

// Every call does what it says, and what cannot be is refused with the code that the contract has for it.
func TestTheBrokersAPI(t *testing.T) {
	o := newBrokerOnly(t, "gw1", "gw2", "gw3")
	ctx, c := t.Context(), o.client
	launch := func(address string) string {
		t.Helper()
		r, err := c.Launch(ctx, &holdfastv1.LaunchRequest{Target: "db1", Address: address})
		if err != nil {
			t.Fatal(err)
		}
		if r.Refusal != nil {
			return r.Refusal.Code
		}
		return r.Gateway.Gateway
	}
	member := func(keys ...string) (out []*holdfastv1.RuleMember) {
		for _, key := range keys {
			out = append(out, &holdfastv1.RuleMember{Gateway: "east/" + key})
		}
		return out
	}
	change, err := c.PutRule(ctx, &holdfastv1.PutRuleRequest{Network: &holdfastv1.NetworkRule{Name: "lab", Subnets: []string{"10.1.0.0/16"}, Gateways: member("gw2", "gone")}, Reason: "test"})
	if err != nil || change.Rule != "network lab" || len(change.Warnings) != 1 || !strings.Contains(change.Warnings[0], "east/gone") {
		t.Errorf("a network: %+v, %v", change, err)
	}
	if got := launch("10.1.2.3"); got != "east/gw2" {
		t.Errorf("to the network: %s", got)
	}
	if _, err := c.PutRule(ctx, &holdfastv1.PutRuleRequest{Assignment: &holdfastv1.AssignmentRule{Target: "DB1", Network: "lab"}}); err != nil {
		t.Error(err)
	}
	if got := launch(""); got != "east/gw2" {
		t.Errorf("to an assigned target: %s", got)
	}
	if _, err := c.Override(ctx, &holdfastv1.OverrideRequest{Network: "lab", Gateways: member("gw3"), ForMs: 3_600_000, Note: "outage"}); err != nil {
		t.Error(err)
	}
	if got := launch(""); got != "east/gw3" {
		t.Errorf("to an overridden network: %s", got)
	}
	if _, err := c.PutRule(ctx, &holdfastv1.PutRuleRequest{Policy: &holdfastv1.PolicyRule{Name: "admins", Fleet: "west"}}); err != nil {
		t.Error(err)
	}
	r, err := c.Launch(ctx, &holdfastv1.LaunchRequest{Target: "db1", Policy: "admins"})
	if err != nil || r.Refusal.GetCode() != "POLICY_FLEET_MISMATCH" || r.Refusal.Remedy == "" {
		t.Errorf("a policy of a fleet that is not linked: %+v, %v", r, err)
	}
	listed, err := c.Rules(ctx, &holdfastv1.RulesRequest{})
	if err != nil || len(listed.Rules) != 4 || len(listed.Faults) != 2 || listed.Rules[0].Operator == "" || listed.Rules[0].Broker != "node1" || listed.Digest == "" {
		t.Errorf("the rules: %+v, %v", listed, err)
	}
	if _, err := c.Override(ctx, &holdfastv1.OverrideRequest{Network: "lab", Remove: true}); err != nil {
		t.Error(err)
	}
	if got := launch(""); got != "east/gw2" {
		t.Errorf("after the override was removed: %s", got)
	}
	next, err := c.Outcome(ctx, &holdfastv1.OutcomeRequest{Request: &holdfastv1.LaunchRequest{Target: "db9"}, Gateway: "east/gw1", Evidence: "no route"})
	if err != nil || next.Next.GetRefusal().GetCode() != "LAUNCH_FAILED_ON_STALE_VIEW" || !strings.Contains(next.Next.Refusal.Text, "no route") {
		t.Errorf("under strict a launch that did not get through: %+v, %v", next, err)
	}
	// Evidence is cut where it is too long, and that between two letters: an answer with half of one could not be sent.
	for pad := range 3 {
		evidence := strings.Repeat("x", pad) + strings.Repeat("–", 600)
		next, err := c.Outcome(ctx, &holdfastv1.OutcomeRequest{Request: &holdfastv1.LaunchRequest{Target: "db9"}, Gateway: "east/gw1", Evidence: evidence})
		if err != nil || !strings.Contains(next.Next.GetRefusal().GetText(), "–)") {
			t.Errorf("with long evidence: %+v, %v", next, err)
		}
	}
	explained, err := c.ExplainLaunch(ctx, &holdfastv1.ExplainLaunchRequest{Request: &holdfastv1.LaunchRequest{Target: "db9"}})
	if err != nil || !strings.Contains(explained.Text, "rule: network default") || len(explained.Answer.Alternates) != 2 || explained.Answer.Launch != "" {
		t.Errorf("explained: %+v, %v", explained, err)
	}
	fleets, err := c.Fleets(ctx, &holdfastv1.FleetsRequest{})
	if err != nil || len(fleets.Fleets) != 1 || fleets.Fleets[0].Source != "last-good" || fleets.Fleets[0].Up != 3 || fleets.Fleets[0].Gateways != 4 {
		t.Errorf("the fleets: %+v, %v", fleets, err)
	}
	gateways, err := c.Gateways(ctx, &holdfastv1.GatewaysRequest{Fleet: "east"})
	if err != nil || len(gateways.Gateways) != 4 || gateways.Gateways[0].Takes || gateways.Gateways[0].Why == "" || !gateways.Gateways[1].Takes {
		t.Errorf("the gateways: %+v, %v", gateways, err)
	}
	if _, err := c.Unlink(ctx, &holdfastv1.UnlinkRequest{Name: "east"}); err != nil {
		t.Error(err)
	}
	if got := launch(""); got != "NO_CLUSTER_INFO" {
		t.Errorf("without a fleet: %s", got)
	}
}

func TestTheBrokersAPIRefuses(t *testing.T) {
	o := newBrokerOnly(t)
	ctx, c := t.Context(), o.client
	ask := func(call func() error) string {
		err := call()
		switch {
		case err == nil:
			return "done"
		case api.IsInvalid(err):
			return "invalid: " + api.Text(err)
		case api.IsNotFound(err):
			return "not found: " + api.Text(err)
		}
		return "refused: " + api.Text(err)
	}
	for want, call := range map[string]func() error{
		"invalid: the central manager of fleet east is named as HOST:PORT": func() error {
			_, err := c.Link(ctx, &holdfastv1.LinkRequest{Link: &holdfastv1.FleetLink{Name: "east", Address: "here"}})
			return err
		},
		"invalid: \"x\" is not the SHA-256 fingerprint": func() error {
			_, err := c.Link(ctx, &holdfastv1.LinkRequest{Link: &holdfastv1.FleetLink{Name: "east", Address: "192.0.2.1:443", Fingerprint: "x"}})
			return err
		},
		"invalid: no fleet is named": func() error { _, err := c.Link(ctx, &holdfastv1.LinkRequest{}); return err },
		"not found: there is no linked fleet \"west\"": func() error {
			_, err := c.Unlink(ctx, &holdfastv1.UnlinkRequest{Name: "west"})
			return err
		},
		"not found: there is no linked fleet \"north\"": func() error {
			_, err := c.Gateways(ctx, &holdfastv1.GatewaysRequest{Fleet: "north"})
			return err
		},
		"not found: no such rule: there is no network lab": func() error {
			_, err := c.RemoveRule(ctx, &holdfastv1.RemoveRuleRequest{Kind: "network", Name: "lab"})
			return err
		},
		"invalid: a rule is a network": func() error {
			_, err := c.RemoveRule(ctx, &holdfastv1.RemoveRuleRequest{Kind: "x", Name: "lab"})
			return err
		},
		"invalid: a change is about one network": func() error { _, err := c.PutRule(ctx, &holdfastv1.PutRuleRequest{}); return err },
		"refused: assignment db1: there is no network lab": func() error {
			_, err := c.PutRule(ctx, &holdfastv1.PutRuleRequest{Assignment: &holdfastv1.AssignmentRule{Target: "db1", Network: "lab"}})
			return err
		},
		"invalid: a gateway is named as FLEET/KEY": func() error {
			_, err := c.Override(ctx, &holdfastv1.OverrideRequest{Network: "default", Gateways: []*holdfastv1.RuleMember{{Gateway: "gw1"}}})
			return err
		},
		"invalid: neither a target nor its address": func() error { _, err := c.Launch(ctx, &holdfastv1.LaunchRequest{}); return err },
		"invalid: an outcome is that of a launch":   func() error { _, err := c.Outcome(ctx, &holdfastv1.OutcomeRequest{}); return err },
		"not found: there is no linked fleet that has the gateway": func() error {
			_, err := c.Outcome(ctx, &holdfastv1.OutcomeRequest{Request: &holdfastv1.LaunchRequest{Target: "db1"}, Gateway: "east/gw1"})
			return err
		},
	} {
		if got := ask(call); !strings.HasPrefix(got, want) {
			t.Errorf("want %s; got %s", want, got)
		}
	}
}

// A directory that cannot be believed keeps only the broker from running; it begins by itself when it has been put right.
func TestABrokerThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, brokerDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, brokerDir, "rules.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Agent{options: Options{Dir: dir}, log: slog.New(slog.DiscardHandler), now: boottime.Now, board: &problem.Board{}, registry: prometheus.NewRegistry(), events: newEventLog(), self: cluster.Node{Name: "node1"}, peers: &peers{}}
	r := &brokerRoom{Agent: a}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.run(ctx); close(ended) }()
	for len(a.board.List()) == 0 {
		runtime.Gosched()
	}
	if _, err := (brokerService{brokerRoom: r}).Launch(ctx, &holdfastv1.LaunchRequest{Target: "db1"}); err == nil || !strings.Contains(api.Text(err), "rules.json") || !strings.Contains(api.Text(err), "does not run") {
		t.Errorf("a launch: %v", err)
	}
	if got := a.board.List()[0].Kind; got != problemBroker {
		t.Errorf("the problem is %v", got)
	}
	cancel()
	<-ended
}

// Of two agents with one directory, as while one replaces the other, one has the broker; the other waits for it.
func TestTwoBrokersDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	begin := func() (*brokerRoom, func()) {
		a := &Agent{options: Options{Dir: dir}, log: slog.New(slog.DiscardHandler), now: boottime.Now, board: &problem.Board{}, registry: prometheus.NewRegistry(), events: newEventLog(), self: cluster.Node{Name: "node1"}, peers: &peers{}}
		r := &brokerRoom{Agent: a}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.run(ctx); close(ended) }()
		return r, func() { cancel(); <-ended }
	}
	first, endFirst := begin()
	for first.opened.Load() == nil {
		runtime.Gosched()
	}
	second, endSecond := begin()
	if _, err := second.use(); err == nil || !strings.Contains(api.Text(err), "starting or stopping") {
		t.Errorf("the second one: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if lock, err := second.claim(over); err == nil {
		lock.Close()
		t.Error("the directory is locked twice")
	}
	endFirst()
	for second.opened.Load() == nil {
		runtime.Gosched()
	}
	if _, err := first.use(); err == nil {
		t.Error("the first one still answers")
	}
	endSecond()
}

// BenchmarkLaunch measures launches with three gateways: the handler alone, through the API on the local socket with this project's client,
// and through it with a caller that costs next to nothing. launches/cpu-s is how many one processor does in a second of its time, both ends,
// the audit and the collection of garbage counted in: with -cpu 1 it does not depend on what else the machine does.
func BenchmarkLaunch(b *testing.B) {
	o := newBrokerOnly(b, "gw1", "gw2", "gw3")
	request := &holdfastv1.LaunchRequest{Target: "db1", Address: "10.1.2.3", Protocol: "ssh", Who: "anna"}
	b.Run("handler", func(b *testing.B) {
		s := brokerService{brokerRoom: o.agent.broker}
		b.ReportAllocs()
		defer metered(b)()
		for b.Loop() {
			if r, err := s.Launch(b.Context(), request); err != nil || r.Gateway == nil {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("client", func(b *testing.B) {
		b.ReportAllocs()
		defer metered(b)()
		for b.Loop() {
			if r, err := o.client.Launch(b.Context(), request); err != nil || r.Gateway == nil {
				b.Fatal(r, err)
			}
		}
	})
	binary, err := proto.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("json", func(b *testing.B) {
		benchmarkRaw(b, o.socket, "application/json", []byte(`{"target":"db1","address":"10.1.2.3","protocol":"ssh","who":"anna"}`))
	})
	b.Run("proto", func(b *testing.B) { benchmarkRaw(b, o.socket, "application/proto", binary) })
}

// BenchmarkFirstLaunch starts a broker whose central manager is a black hole, with what it knew before, and launches as soon as anybody answers at the
// socket: longest-ms is the longest that took, from the start of the server to the answer.
func BenchmarkFirstLaunch(b *testing.B) {
	request := &holdfastv1.LaunchRequest{Target: "db1", Address: "10.1.2.3", Protocol: "ssh", Who: "anna"}
	var longest time.Duration
	for b.Loop() {
		began := time.Now()
		o := newBrokerOnly(b, "gw1", "gw2", "gw3")
		if r, err := o.client.Launch(b.Context(), request); err != nil || r.Gateway == nil {
			b.Fatal(r, err)
		}
		longest = max(longest, time.Since(began))
		b.StopTimer()
		o.stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
}

// BenchmarkSpread launches a thousand sessions between two samples of three equal gateways: most-share is what the one of them got that got most, in percent.
func BenchmarkSpread(b *testing.B) {
	request := &holdfastv1.LaunchRequest{Target: "db1", Address: "10.1.2.3", Protocol: "ssh", Who: "anna"}
	const launches = 1000
	most := 0
	for b.Loop() {
		b.StopTimer()
		o := newBrokerOnly(b, "gw1", "gw2", "gw3")
		b.StartTimer()
		counts := map[string]int{}
		for range launches {
			r, err := o.client.Launch(b.Context(), request)
			if err != nil || r.Gateway == nil {
				b.Fatal(r, err)
			}
			counts[r.Gateway.Gateway]++
			most = max(most, counts[r.Gateway.Gateway])
		}
		b.StopTimer()
		o.stop()
		b.StartTimer()
	}
	b.ReportMetric(100*float64(most)/launches, "most-share")
}

// metered reports what a benchmark costs of a processor's time.
func metered(b *testing.B) func() {
	spent := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := spent()
	return func() { b.ReportMetric(float64(b.N)/(spent()-before).Seconds(), "launches/cpu-s") }
}

// benchmarkRaw writes a prepared request and reads to the end of the answer. What is left is the server's part.
func benchmarkRaw(b *testing.B, socket, kind string, body []byte) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	text := append(fmt.Appendf(nil, "POST /holdfast.v1.Broker/Launch HTTP/1.1\r\nHost: holdfast\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body)), body...)
	buffer := make([]byte, 16<<10)
	b.ReportAllocs()
	defer metered(b)()
	for b.Loop() {
		if _, err := conn.Write(text); err != nil {
			b.Fatal(err)
		}
		for n, whole := 0, 0; whole == 0 || n < whole; {
			m, err := conn.Read(buffer[n:])
			if err != nil {
				b.Fatal(err)
			}
			n += m
			if end := bytes.Index(buffer[:n], []byte("\r\n\r\n")); end >= 0 && whole == 0 {
				_, length, _ := bytes.Cut(buffer[:end], []byte("Content-Length: "))
				length, _, _ = bytes.Cut(length, []byte("\r"))
				size, err := strconv.Atoi(string(length))
				if err != nil || !bytes.HasPrefix(buffer, []byte("HTTP/1.1 200")) {
					b.Fatalf("%s", buffer[:n])
				}
				whole = end + 4 + size
			}
		}
	}
}
