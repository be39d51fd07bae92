package sshgate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// service is a TCP service on the loopback interface; serve has each connection to itself.
func service(t testing.TB, serve func(*net.TCPConn)) *target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return &target{account: "nobody", port: uint16(listener.Addr().(*net.TCPAddr).Port), hostKey: newKey(t, ""), userCA: newKey(t, "")}
}

// counting answers once its client has said all, as a database does that is told the end of a COPY by the end of what is sent.
func counting(conn *net.TCPConn) {
	n, err := io.Copy(io.Discard, conn)
	if err == nil {
		_, err = fmt.Fprintf(conn, "%d bytes came", n)
	}
	if err == nil {
		_ = conn.CloseWrite()
	}
}

// tunnel is a token for a tunnel to the service.
func (b *bench) tunnel() token.Grant {
	g := b.grant(token.Tunnel)
	g.Account = ""
	return g
}

func (b *bench) service() string { return fmt.Sprintf("127.0.0.1:%d", b.target.port) }

// TestTunnel: OpenSSH's client reaches a service of any protocol with a token for it, half closes its connection and still gets the answer. How much, how long
// and how it ended is in the audit log; nothing is recorded.
func TestTunnel(t *testing.T) {
	b := start(t, service(t, counting), nil)
	const much = 3 << 20 // more than a window
	got := b.run(strings.Repeat("x", much), "ssh", append(b.options("-p"), "-W", b.service(), b.sign(b.tunnel())+"@127.0.0.1")...)
	if want := fmt.Sprintf("%d bytes came", much); got.code != 0 || got.out != want {
		t.Errorf("got %+v, want %q", got, want)
	}
	record := b.records(audit.Started, audit.Ended)[1]
	if !record.Unrecorded || len(record.Recordings) != 0 || record.Account != "" || record.BytesIn != much || fmt.Sprint(record.May) != "[tunnel]" {
		t.Errorf("audited as %+v", record)
	}
	if len(record.Connections) != 1 || record.MoreConnections != 0 {
		t.Fatalf("audited as %+v", record)
	}
	link := record.Connections[0]
	if link.What != "tunnel "+b.service() || link.BytesIn != much || link.BytesOut != int64(len(got.out)) || link.Outcome != "closed in both directions" || link.Seconds <= 0 {
		t.Errorf("audited as %+v", link)
	}
}

// TestTunnelTargetHalfCloses: so does the service.
func TestTunnelTargetHalfCloses(t *testing.T) {
	heard := make(chan string, 1)
	b := start(t, service(t, func(conn *net.TCPConn) {
		fmt.Fprint(conn, "bye")
		_ = conn.CloseWrite()
		said, _ := io.ReadAll(conn)
		heard <- string(said)
	}), nil)
	conn, err := b.mustDial(b.sign(b.tunnel())).Dial("tcp", b.service())
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); err != nil || string(said) != "bye" {
		t.Errorf("%q %v", said, err)
	}
	if _, err := fmt.Fprint(conn, "and thanks"); err != nil {
		t.Error(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if said := <-heard; said != "and thanks" {
		t.Errorf("the service heard %q", said)
	}
}

// TestTunnelAndNothingElse: with a token for a tunnel nothing is to be had but connections to its target; the reason is told and audited.
func TestTunnelAndNothingElse(t *testing.T) {
	elsewhere := service(t, func(*net.TCPConn) { t.Error("a connection went elsewhere") })
	b := start(t, service(t, counting), nil)
	client := b.mustDial(b.sign(b.tunnel()))
	for name, open := range map[string]func() error{
		"this token leads to 127.0.0.1:": func() error { _, err := client.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", elsewhere.port)); return err },
		"and nowhere else":               func() error { _, err := client.Dial("tcp", fmt.Sprintf("localhost:%d", b.target.port)); return err },
		"which is no SSH session":        func() error { _, err := client.NewSession(); return err },
		"connect with ssh -N -L":         func() error { _, err := client.Dial("unix", "/run/x"); return err },
	} {
		var refused *ssh.OpenChannelError
		if err := open(); !errors.As(err, &refused) || refused.Reason != ssh.Prohibited || !strings.Contains(refused.Message, name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
	if _, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("the gateway listens for the client")
	}
	client.Close()
	record := b.records(audit.Started, audit.Ended)[1]
	if len(record.Requests) != 5 || len(record.Channels) != 0 || record.Unrecorded || len(record.Connections) != 0 {
		t.Errorf("audited as %+v", record)
	}
}

// TestTunnelEndings: how a connection ended is told apart, also where the other side's kernel says it.
func TestTunnelEndings(t *testing.T) {
	nobody := service(t, counting)
	nobody.port = freePort(t)
	for want, c := range map[string]struct {
		behind *target
		use    func(net.Conn)
	}{
		"the target cannot be reached: connect: connection refused": {nobody, nil},
		"lost at the target: read: connection reset by peer": {service(t, func(conn *net.TCPConn) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.SetLinger(0)
		}), func(conn net.Conn) {
			fmt.Fprint(conn, "x")
			_, _ = io.ReadAll(conn)
			_ = conn.Close()
		}},
		"closed by the client": {service(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, zeros{}) }), func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}},
	} {
		b := start(t, c.behind, nil)
		client := b.mustDial(b.sign(b.tunnel()))
		conn, err := client.Dial("tcp", b.service())
		if c.use == nil && (err == nil || !strings.Contains(err.Error(), "cannot be reached from the gateway gw1")) || c.use != nil && err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if c.use != nil {
			c.use(conn)
			if want == "closed by the client" {
				b.closedLinks()
			}
		}
		client.Close()
		record := b.records(audit.Started, audit.Ended)[1]
		if len(record.Connections) != 1 || record.Connections[0].Outcome != want {
			t.Errorf("audited as %+v, want %q", record.Connections, want)
		}
	}
}

// TestTunnelsEndWithTheirSession: what fails then is no fault of the target or the client.
func TestTunnelsEndWithTheirSession(t *testing.T) {
	c, _ := lone(t)
	c.cancel()
	if got := c.linkEnding(&net.OpError{Op: "read", Err: net.ErrClosed}); got != "the session ended" {
		t.Errorf("got %q", got)
	}
}

// closedLinks waits until the session has no connections any more.
func (b *bench) closedLinks() {
	b.t.Helper()
	b.gate.lock.Lock()
	var c *connection
	for c = range b.gate.sessions {
	}
	b.gate.lock.Unlock()
	for deadline := time.Now().Add(20 * time.Second); c.channels.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatal("the connection stays open")
		}
	}
}

// TestTunnelsAreBounded: the bounds of sessions hold for them: connections at a time, time without data, and what is noted of them.
func TestTunnelsAreBounded(t *testing.T) {
	b := start(t, service(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }), func(o *Options) { o.Limits.Channels, o.Limits.Idle = 2, time.Second })
	client := b.mustDial(b.sign(b.tunnel()))
	for range 2 {
		if _, err := client.Dial("tcp", b.service()); err != nil {
			t.Fatal(err)
		}
	}
	var refused *ssh.OpenChannelError
	if _, err := client.Dial("tcp", b.service()); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage {
		t.Errorf("got %v", err)
	}
	if outcome := b.records(audit.Started, audit.Ended)[1].Outcome; !strings.HasPrefix(outcome, "nothing was sent or received for 1s") {
		t.Errorf("audited as %q", outcome)
	}
	c, _ := lone(t)
	for range maxNoted + 5 {
		c.noteLink(&link{what: "tunnel db1:5432"}, "closed in both directions")
	}
	if r := c.record(audit.Ended); len(r.Connections) != maxNoted || r.MoreConnections != 5 {
		t.Errorf("%d are in the record, and %d more", len(r.Connections), r.MoreConnections)
	}
}

// TestTunnelWhereTheGatewayAllowsNone: allow in the configuration bounds what tokens may.
func TestTunnelWhereTheGatewayAllowsNone(t *testing.T) {
	b := start(t, service(t, counting), func(o *Options) { o.May = token.AllChannels })
	if got := b.run("", "ssh", append(b.options("-p"), "-W", b.service(), b.sign(b.tunnel())+"@127.0.0.1")...); got.code != 255 || !strings.Contains(got.errs, "allows nothing that the gateway gw1 allows") {
		t.Errorf("got %+v", got)
	}
}
