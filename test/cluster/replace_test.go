package cluster

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// steadied is what a steady client met.
type steadied struct {
	Connections int      `json:"connections"`
	Ended       []string `json:"ended"` // connections that did not stay
	Queries     int      `json:"queries"`
	Unanswered  int      `json:"unanswered"`
	SlowestMS   float64  `json:"slowest_ms"`
}

// How a steady client goes on.
const (
	steadyPace  = 20 * time.Millisecond // between two queries of one address, and two bytes on one connection
	steadyLimit = 2 * time.Second       // within which an answer has to come; a query is not said again
)

// steadyClient keeps connections to addresses and asks service addresses for a name, until its input ends.
type steadyClient struct {
	mu     sync.Mutex
	report steadied
	asked  map[string]time.Time
	over   chan struct{}
	all    sync.WaitGroup
}

// keepSteady is the client's life. Its arguments are how many service addresses there are, these, and the others.
func keepSteady(services, addresses []string, file string) error {
	c := &steadyClient{asked: map[string]time.Time{}, over: make(chan struct{})}
	for _, address := range addresses {
		if err := c.connect(address + ":" + servicePort); err != nil {
			return err
		}
	}
	for _, service := range services {
		if err := c.ask(service + ":53"); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	close(c.over)
	c.all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(c.report)
}

// connect opens a connection, on which a byte goes at a steady pace.
func (c *steadyClient) connect(address string) error {
	connection, err := net.Dial("tcp4", address)
	if err != nil {
		return err
	}
	c.report.Connections++
	ended := func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.report.Ended = append(c.report.Ended, fmt.Sprintf("%s: %v", address, err))
	}
	go func() {
		_, err := connection.Read(make([]byte, 1))
		ended(err)
	}()
	c.all.Go(func() {
		for c.goesOn() {
			if _, err := connection.Write([]byte{0}); err != nil {
				ended(err)
				return
			}
		}
	})
	return nil
}

func (c *steadyClient) goesOn() bool {
	select {
	case <-c.over:
		return false
	case <-time.After(steadyPace):
		return true
	}
}

// ask asks one service address at a steady pace.
func (c *steadyClient) ask(address string) error {
	socket, err := net.Dial("udp4", address)
	if err != nil {
		return err
	}
	go func() {
		answer := make([]byte, 2000)
		for {
			n, err := socket.Read(answer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n > 12 && binary.BigEndian.Uint16(answer[6:]) > 0 { // with an answer in it
				c.answered(fmt.Sprint(address, binary.BigEndian.Uint16(answer)))
			}
		}
	}()
	c.all.Go(func() {
		for number := uint16(0); c.goesOn(); number++ {
			c.mu.Lock()
			c.report.Queries++
			c.asked[fmt.Sprint(address, number)] = time.Now()
			c.mu.Unlock()
			_, _ = socket.Write(query(number)) // one that was not sent is not answered
		}
		for limit := time.Now().Add(steadyLimit); time.Now().Before(limit) && c.waits(address); {
			time.Sleep(steadyPace)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for which := range c.asked {
			if strings.HasPrefix(which, address) {
				c.report.Unanswered++
			}
		}
		_ = socket.Close()
	})
	return nil
}

func (c *steadyClient) waits(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for which := range c.asked {
		if strings.HasPrefix(which, address) {
			return true
		}
	}
	return false
}

func (c *steadyClient) answered(which string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, open := c.asked[which]; open && time.Since(at) < steadyLimit {
		c.report.SlowestMS = max(c.report.SlowestMS, float64(time.Since(at).Microseconds())/1000)
		delete(c.asked, which)
	}
}

// query asks for the addresses of cluster.lab (RFC 1035 section 4.1).
func query(number uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, number)
	b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	return append(b, "\x07cluster\x03lab\x00\x00\x01\x00\x01"...)
}

// steady starts a steady client on client1.
func (l *lab) steady(t *testing.T, pool, service map[string]string) *program {
	t.Helper()
	file := t.TempDir() + "/steady"
	p := l.start(t, "client1", "env", connectionVariable+"=steady", os.Args[0],
		strings.Join(slices.Sorted(maps.Keys(service)), ","), strings.Join(slices.Sorted(maps.Keys(pool)), ","), file)
	eventually(t, "client1 is connected", func() error { _, err := os.Stat(file); return err })
	return p
}

// steadied ends a steady client and checks that it noticed nothing.
func (l *lab) noticedNothing(t *testing.T, p *program) {
	t.Helper()
	_ = p.input.Close()
	<-p.ended
	var report steadied
	if err := json.Unmarshal(p.output.Bytes(), &report); err != nil {
		t.Fatalf("the steady client said %q: %v", p.output, err)
	}
	t.Logf("%d connections stayed, %d queries were answered, the slowest within %.1f ms", report.Connections-len(report.Ended), report.Queries-report.Unanswered, report.SlowestMS)
	if len(report.Ended) > 0 || report.Unanswered > 0 || report.Queries == 0 || report.Connections == 0 {
		t.Errorf("a client met this: %+v", report)
	}
}

// agentLog is the log of a node's agents.
func (l *lab) agentLog(t *testing.T, node string) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(l.dir, "nodes", node, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// TestReplace: the agents of all nodes are replaced in turn, as an upgrade does, with heartbeats of 50 ms by three. No address moves, no
// lease lapses, no connection is reset, and no query is lost. A new agent that fails half-way changes nothing, and one that finds no
// agent to replace starts as usual.
func TestReplace(t *testing.T) {
	l := startLab(t, 3, cast{nodes: 3, clients: 1, resolver: "none", multiplier: 3, cluster: "heartbeat-interval-ms: 50\n"}.file())
	pool, service := l.spread(t, l.nodes, 3, 3, 3)
	for _, node := range l.nodes {
		l.serveConnections(t, node)
	}
	incarnations := l.incarnations(t)
	w := l.watch(t)
	client := l.steady(t, pool, service)
	there := len(w.check(t).Seen)
	t.Run("in turn", func(t *testing.T) {
		for _, node := range l.nodes {
			before := l.process(t, node, "agent")
			began := time.Now()
			l.do(t, "replace", node)
			t.Logf("%s: %v", node, time.Since(began).Round(time.Millisecond))
			if l.process(t, node, "agent") == before {
				t.Errorf("the agent of %s is still process %d", node, before)
			}
			eventually(t, "the cluster serves as before", func() error {
				nowPool, nowService, err := l.agreed(l.nodes)
				if err == nil && (!maps.Equal(pool, nowPool) || !maps.Equal(service, nowService)) {
					err = fmt.Errorf("the addresses are with %v and %v, and were with %v and %v", nowPool, nowService, pool, service)
				}
				if err == nil {
					_, err = l.get(node, "holdfast", "status")
				}
				return err
			})
		}
	})
	t.Run("half-way", func(t *testing.T) { l.replacedHalfWay(t) })
	l.noticedNothing(t, client)
	if now := l.incarnations(t); !maps.Equal(now, incarnations) {
		t.Errorf("the incarnations are %v, and were %v", now, incarnations)
	}
	if seen := w.check(t).Seen[there:]; len(seen) > 0 {
		t.Errorf("addresses came or went: %v", seen)
	}
	if lapses := l.lapses(t); lapses > 0 {
		t.Errorf("%d lapses", lapses)
	}
	t.Run("nobody to replace", func(t *testing.T) {
		l.do(t, "kill", "--agent", "node2")
		l.startReplacing(t, "node2")
	})
}

// incarnations are the present ones, by node.
func (l *lab) incarnations(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	var status struct {
		Nodes []struct {
			Name        string `json:"name"`
			Incarnation any    `json:"incarnation"`
		} `json:"nodes"`
	}
	if err := l.read(l.nodes[0], &status, "status"); err != nil {
		t.Fatal(err)
	}
	for _, node := range status.Nodes {
		all[node.Name] = fmt.Sprint(node.Incarnation)
	}
	return all
}

// replacedHalfWay has new agents fail: one is killed while it prepares, and one speaks up to the moment of the handover and then says
// nothing. The running one goes on each time, and can be replaced afterwards.
func (l *lab) replacedHalfWay(t *testing.T) {
	node := "node1"
	before := l.process(t, node, "agent")
	for i, how := range []string{"silent", "gone", "late"} {
		out, err := l.get(node, "env", connectionVariable+"=half-way", os.Args[0], how, node)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", how, strings.TrimSpace(out))
		eventually(t, "the running agent goes on", func() error {
			if n := strings.Count(l.agentLog(t, node), "event=agent.not-replaced"); n <= i {
				return fmt.Errorf("its log says so %d times", n)
			}
			_, err := l.get(node, "holdfast", "status")
			return err
		})
	}
	if now := l.process(t, node, "agent"); now != before {
		t.Errorf("the agent is process %d, and was %d", now, before)
	}
	l.do(t, "replace", node)
}

// startReplacing starts an agent with --replace where none runs.
func (l *lab) startReplacing(t *testing.T, node string) {
	t.Helper()
	p := l.start(t, node, "sh", "-c", `exec holdfast agent --replace --dir "$0"`, filepath.Join(l.dir, "nodes", node))
	eventually(t, node+" serves", func() error {
		if !p.running() {
			return fmt.Errorf("it ended: %s", p.output)
		}
		_, err := l.get(node, "holdfast", "status")
		return err
	})
	p.signal(syscall.SIGTERM)
	<-p.ended
}

// failHalfWay plays a new agent up to the point at which the running one has offered its right, and then fails.
func failHalfWay(how, node string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: "/run/holdfast/holdfast.sock.replace", Net: "unix"})
	if err != nil {
		return err
	}
	defer conn.Close()
	say := func(text string) error {
		_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
		return err
	}
	hear := func() (string, error) {
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return "", err
		}
		data := make([]byte, binary.BigEndian.Uint32(length[:]))
		_, err := io.ReadFull(conn, data)
		return string(data), err
	}
	var heard string
	for _, text := range []string{fmt.Sprintf(`{"format":1,"cluster":"lab","node":%q}`, node), `{"word":"prepared"}`, `{"word":"ready"}`} {
		if err := say(text); err != nil {
			return err
		}
		if heard, err = hear(); err != nil {
			return err
		}
	}
	if !strings.Contains(heard, `"peer"`) {
		return fmt.Errorf("it heard %q in place of the right", heard)
	}
	switch how {
	case "gone":
		return conn.Close()
	case "silent":
		_, err := io.Copy(io.Discard, conn)
		return err
	}
	time.Sleep(2 * time.Second) // longer than any offer stands
	if _, err := conn.Write([]byte{'T'}); err == nil {
		return errors.New("it could take over although the other one had gone on")
	}
	fmt.Println("it could not take over any more")
	return nil
}
