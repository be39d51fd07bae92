package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// connectionVariable makes this test binary one end of a connection: "serve", "idle", or of those of TestReplace.
const connectionVariable = "HOLDFAST_TEST_CONNECTION"

// servicePort is where the nodes serve.
const servicePort = "2049"

// connectionLife is that end's life.
func connectionLife(role string, arguments []string) int {
	var err error
	switch role {
	case "serve":
		err = holdConnections()
	case "steady":
		err = keepSteady(strings.Split(arguments[0], ","), strings.Split(arguments[1], ","), arguments[2])
	case "half-way":
		err = failHalfWay(arguments[0], arguments[1])
	default:
		err = waitIdle(arguments[0], arguments[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// holdConnections accepts connections and keeps them, saying nothing.
func holdConnections() error {
	listener, err := net.Listen("tcp4", "0.0.0.0:"+servicePort)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, connection) }()
	}
}

// idled is what became of an idle client.
type idled struct {
	Reset       bool      `json:"reset"`
	Error       string    `json:"error"`
	At          time.Time `json:"at"`
	ReconnectMS float64   `json:"reconnect_ms"`
}

// waitIdle connects, says so in a file, and waits without sending anything; when the connection ends it connects again.
func waitIdle(address, file string) error {
	connection, err := net.Dial("tcp4", address)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(connection.LocalAddr().String()), 0o644); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 1))
	report := idled{Reset: errors.Is(err, syscall.ECONNRESET), At: time.Now()}
	if err != nil && !errors.Is(err, io.EOF) {
		report.Error = err.Error()
	}
	for time.Since(report.At) < patience {
		if again, err := net.DialTimeout("tcp4", address, time.Second); err == nil {
			_ = again.Close()
			report.ReconnectMS = float64(time.Since(report.At).Microseconds()) / 1000
			break
		}
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// serveConnections runs a server on a node that keeps connections.
func (l *lab) serveConnections(t *testing.T, node string) {
	t.Helper()
	l.start(t, node, "env", connectionVariable+"=serve", os.Args[0])
	eventually(t, "something listens on "+node, func() error {
		out, err := l.get(node, "ss", "-tln")
		if err == nil && !strings.Contains(out, ":"+servicePort) {
			err = errors.New("ss shows nothing")
		}
		return err
	})
}

// idleClient connects client1 to an address and waits until the address's successor knows of it.
func (l *lab) idleClient(t *testing.T, address, successor string) *program {
	t.Helper()
	file := t.TempDir() + "/connected"
	p := l.start(t, "client1", "env", connectionVariable+"=idle", os.Args[0], address+":"+servicePort, file)
	eventually(t, "client1 is connected to "+address, func() error { _, err := os.Stat(file); return err })
	eventually(t, successor+" knows of the client", func() error {
		out, err := l.get(successor, "curl", "-sS", "--unix-socket", "/run/holdfast/holdfast.sock", "http://localhost/metrics")
		if err == nil && !strings.Contains(out, "\nholdfast_address_successor_connections 1\n") {
			err = errors.New("its metrics do not show it")
		}
		return err
	})
	return p
}

// reported waits for an idle client's end.
func (l *lab) reported(t *testing.T, p *program) (report idled) {
	t.Helper()
	eventually(t, "the idle client notices", func() error {
		if p.running() {
			return errors.New("it still waits")
		}
		return nil
	})
	if err := json.Unmarshal(p.output.Bytes(), &report); err != nil {
		t.Fatalf("the idle client said %q: %v", p.output, err)
	}
	if !report.Reset {
		t.Errorf("its connection ended with %q, want a reset", report.Error)
	}
	return report
}

// TestReport7IdleClients: a client that sends nothing learns that the node it was connected to is gone, and where a move was planned
// learns of it at once (https://github.com/bigstack-oss/cubecos/issues/1101, https://github.com/nfs-ganesha/nfs-ganesha/issues/756). In
// both cases it connects again, to the new owner.
func TestReport7IdleClients(t *testing.T) {
	need(t, "ss:iproute2", "curl:curl")
	l := startLab(t, 3, cast{nodes: 3, clients: 1, resolver: "none"}.file())
	w := l.watch(t)
	for _, node := range l.nodes {
		l.serveConnections(t, node)
	}
	l.spread(t, l.nodes, 3, 3, 3)
	t.Run("of a node that is drained", func(t *testing.T) {
		address, successor := l.ownedBy(t, "node3")
		p := l.idleClient(t, address, successor)
		began := time.Now()
		l.must(t, "node1", "holdfast", "node", "drain", "node3")
		report := l.reported(t, p)
		t.Logf("reset %v after the drain was asked for, and connected again after a further %.1f ms", report.At.Sub(began).Round(time.Millisecond), report.ReconnectMS)
		l.spread(t, []string{"node1", "node2"}, 5, 4)
		if out := l.must(t, "node3", "ss", "-Htn", "state", "established", "sport", "=", ":"+servicePort); strings.TrimSpace(out) != "" {
			t.Errorf("node3 still has %s", out)
		}
		l.happened(t, "node3", address, "address.connections-reset", "address.released")
		l.must(t, "node1", "holdfast", "node", "undrain", "node3")
		l.spread(t, l.nodes, 3, 3, 3)
	})
	t.Run("of a node that lost its power", func(t *testing.T) {
		address, successor := l.ownedBy(t, "node2")
		p := l.idleClient(t, address, successor)
		w.leave(t, "node2")
		began := time.Now()
		l.do(t, "kill", "node2")
		report := l.reported(t, p)
		t.Logf("reset %v after the power went, and connected again after a further %.1f ms", report.At.Sub(began).Round(time.Millisecond), report.ReconnectMS)
		pool, _ := l.spread(t, []string{"node1", "node3"}, 5, 4)
		if pool[address] != successor {
			t.Errorf("%s went to %s, and %s was its next", address, pool[address], successor)
		}
		l.happened(t, successor, address, "address.taken", "address.tickled")
	})
}

// ownedBy returns an address of a node, and its next.
func (l *lab) ownedBy(t *testing.T, node string) (address, next string) {
	t.Helper()
	list, err := l.holdings(node)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if h.Node == node && h.Kind == "dynamic" && h.NextNode != "" {
			return h.Address, h.NextNode
		}
	}
	t.Fatalf("%s owns nothing", node)
	return "", ""
}

// happened waits until a node's events about an address end with these kinds, in this order, whatever else is between.
func (l *lab) happened(t *testing.T, node, address string, kinds ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s tells of %v", node, kinds), func() error {
		out, err := l.get(node, "holdfast", "events", "--output", "json")
		if err != nil {
			return err
		}
		var have []string
		decoder := json.NewDecoder(strings.NewReader(out))
		for {
			var e struct{ Kind, Subject string }
			if err := decoder.Decode(&e); err != nil {
				break
			}
			if e.Subject == address && slices.Contains(kinds, e.Kind) {
				have = append(have, e.Kind)
			}
		}
		if len(have) < len(kinds) || !slices.Equal(have[len(have)-len(kinds):], kinds) {
			return fmt.Errorf("it tells of %v in\n%s", have, out)
		}
		return nil
	})
}
