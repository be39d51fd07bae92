package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/verdict/oncrpc"
)

// patience is the timeout of tries that are expected to be answered. It is long because nothing waits for it.
const patience = 30 * time.Second

// outcome tries once and returns the evidence or the error as text.
func outcome(t *testing.T, check cluster.Check, address netip.Addr, dial Dialer, timeout time.Duration) (good bool, said string) {
	t.Helper()
	check.Timeout = timeout
	p, err := New(check, address, dial)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	evidence, err := p.Try(ctx)
	if err != nil {
		return false, err.Error()
	}
	return true, evidence
}

// expect compares an outcome, in which PORT stands for the port that the kernel chose.
func expect(t *testing.T, check cluster.Check, at netip.AddrPort, good bool, want string) {
	t.Helper()
	check.Port = at.Port()
	gotGood, said := outcome(t, check, at.Addr(), nil, patience)
	said = strings.ReplaceAll(said, at.String(), "HOST:PORT")
	if gotGood != good || !strings.Contains(said, want) {
		t.Errorf("good %v, %q; want %v, %q", gotGood, said, good, want)
	}
}

// listener opens a TCP listener on the loopback and serves each connection in turn.
func listener(t *testing.T, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// closedPort is a port on which nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestTCP(t *testing.T) {
	check := cluster.Check{Kind: cluster.CheckTCP}
	expect(t, check, listener(t, func(net.Conn) {}), true, "tcp connection to HOST:PORT opened")
	expect(t, check, closedPort(t), false, "tcp connection to HOST:PORT: connection refused")
}

func TestZeroAddressIsLoopback(t *testing.T) {
	at := listener(t, func(net.Conn) {})
	if good, said := outcome(t, cluster.Check{Kind: cluster.CheckTCP, Port: at.Port()}, netip.Addr{}, nil, patience); !good {
		t.Error(said)
	}
}

func TestHTTP(t *testing.T) {
	var asked atomic.Value
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.Method + " " + r.RequestURI + " " + r.UserAgent())
		switch r.URL.Path {
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/moved":
			http.Redirect(w, r, "/broken", http.StatusFound)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
		case "/hang-up":
			panic(http.ErrAbortHandler)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	at := func(s *httptest.Server) netip.AddrPort { return s.Listener.Addr().(*net.TCPAddr).AddrPort() }
	for _, tc := range []struct {
		name  string
		check cluster.Check
		at    netip.AddrPort
		good  bool
		said  string
	}{
		{"good", cluster.Check{Kind: cluster.CheckHTTP}, at(plain), true, "GET http://HOST:PORT/: status 200 in "},
		{"path and query", cluster.Check{Kind: cluster.CheckHTTP, Path: "/health?deep=1"}, at(plain), true, "GET http://HOST:PORT/health?deep=1: status 200"},
		{"bad status", cluster.Check{Kind: cluster.CheckHTTP, Path: "/broken"}, at(plain), false, "GET http://HOST:PORT/broken: status 503, accepted are 200 to 399"},
		{"a redirect is good and not followed", cluster.Check{Kind: cluster.CheckHTTP, Path: "/moved"}, at(plain), true, "status 302"},
		{"only listed codes", cluster.Check{Kind: cluster.CheckHTTP, Status: []int{204}}, at(plain), false, "status 200, accepted are [204]"},
		{"a code that is listed", cluster.Check{Kind: cluster.CheckHTTP, Path: "/broken", Status: []int{503}}, at(plain), true, "status 503"},
		{"certificate of nobody in particular", cluster.Check{Kind: cluster.CheckHTTPS}, at(secure), true, "GET https://HOST:PORT/: status 200"},
		{"no TLS there", cluster.Check{Kind: cluster.CheckHTTPS}, at(plain), false, "GET https://HOST:PORT/: "},
		{"early hints come before the answer", cluster.Check{Kind: cluster.CheckHTTP, Path: "/early"}, at(plain), true, "status 200"},
		{"hangs up", cluster.Check{Kind: cluster.CheckHTTP, Path: "/hang-up"}, at(plain), false, "EOF"},
		{"nobody listens", cluster.Check{Kind: cluster.CheckHTTP}, closedPort(t), false, "GET http://HOST:PORT/: connection refused"},
		{"not HTTP", cluster.Check{Kind: cluster.CheckHTTP}, listener(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 ready\r\n") }), false, "malformed HTTP"},
	} {
		t.Run(tc.name, func(t *testing.T) { expect(t, tc.check, tc.at, tc.good, tc.said) })
	}
	expect(t, cluster.Check{Kind: cluster.CheckHTTP, Path: "/a b"}, at(plain), true, "/a%20b")
	if got := asked.Load(); got != "GET /a%20b holdfast-check" {
		t.Errorf("the server was asked %q", got)
	}
}

// TestHTTPHeaderIsBounded meets a server that never stops sending headers.
func TestHTTPHeaderIsBounded(t *testing.T) {
	endless := listener(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for {
			if _, err := io.WriteString(c, "X-More: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
				return
			}
		}
	})
	expect(t, cluster.Check{Kind: cluster.CheckHTTP}, endless, false, "the response header is longer than 65536 bytes")
}

// responder answers DNS queries over UDP with what answer makes of them; nil sends nothing.
func responder(t *testing.T, answer func(query dnsmessage.Message, nth int) [][]byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 512)
		for nth := 0; ; nth++ {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			var query dnsmessage.Message
			if err := query.Unpack(buffer[:n]); err != nil {
				t.Errorf("the query is malformed: %v", err)
			}
			for _, reply := range answer(query, nth) {
				_, _ = conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// reply packs an answer to query with a code and some addresses.
func reply(query dnsmessage.Message, code dnsmessage.RCode, addresses ...[4]byte) []byte {
	query.Response, query.RCode = true, code
	for _, address := range addresses {
		query.Answers = append(query.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: query.Questions[0].Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: address},
		})
	}
	packed, err := query.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

func TestDNS(t *testing.T) {
	check := cluster.Check{Kind: cluster.CheckDNS, Query: "cluster.company.com"}
	with := func(code dnsmessage.RCode, addresses ...[4]byte) func(dnsmessage.Message, int) [][]byte {
		return func(query dnsmessage.Message, _ int) [][]byte { return [][]byte{reply(query, code, addresses...)} }
	}
	for _, tc := range []struct {
		name   string
		answer func(dnsmessage.Message, int) [][]byte
		good   bool
		said   string
	}{
		{"answers", with(dnsmessage.RCodeSuccess, [4]byte{10, 0, 0, 1}, [4]byte{10, 0, 0, 2}), true,
			"dns query cluster.company.com. A to HOST:PORT: no error, 2 answers"},
		{"no such records", with(dnsmessage.RCodeSuccess), true, "no error, 0 answers"},
		{"fails", with(dnsmessage.RCodeServerFailure), false, "dns query cluster.company.com. A to HOST:PORT: the server answered SERVFAIL"},
		{"no such name", with(dnsmessage.RCodeNameError), false, "the server answered NXDOMAIN"},
		{"refused, without the question", func(query dnsmessage.Message, _ int) [][]byte {
			query.Questions = nil
			return [][]byte{reply(query, dnsmessage.RCodeRefused)}
		}, false, "the server answered REFUSED"},
		{"an unusual code", with(dnsmessage.RCode(9)), false, "the server answered response code 9"},
		{"junk, other replies and an echo come first", func(query dnsmessage.Message, _ int) [][]byte {
			other := query
			other.ID++
			another := query
			another.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("elsewhere."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
			echo, _ := query.Pack()
			return [][]byte{{1, 2, 3}, reply(other, dnsmessage.RCodeRefused), reply(another, dnsmessage.RCodeSuccess), echo,
				reply(query, dnsmessage.RCodeSuccess, [4]byte{10, 0, 0, 1})}
		}, true, "no error, 1 answers"},
		{"cut short", func(query dnsmessage.Message, _ int) [][]byte {
			whole := reply(query, dnsmessage.RCodeSuccess, [4]byte{10, 0, 0, 1})
			return [][]byte{whole[:len(whole)-2]}
		}, false, "the reply is malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) { expect(t, check, responder(t, tc.answer), tc.good, tc.said) })
	}
	t.Run("nobody listens", func(t *testing.T) {
		free, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		at := free.LocalAddr().(*net.UDPAddr).AddrPort()
		_ = free.Close()
		expect(t, check, at, false, "connection refused")
	})
}

// TestDNSLostDatagram loses the first query: the probe asks again at half of its time.
func TestDNSLostDatagram(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		lossy := func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				buffer := make([]byte, 512)
				for nth := 0; ; nth++ {
					n, err := theirs.Read(buffer)
					if err != nil {
						return
					}
					var query dnsmessage.Message
					if nth > 0 && query.Unpack(buffer[:n]) == nil {
						_, _ = theirs.Write(reply(query, dnsmessage.RCodeSuccess))
					}
				}
			}()
			return ours, nil
		}
		began := time.Now()
		good, said := outcome(t, cluster.Check{Kind: cluster.CheckDNS, Query: "a."}, netip.Addr{}, lossy, time.Second)
		if took := time.Since(began); !good || took != time.Second/2 {
			t.Errorf("good %v after %s: %s; want an answer to the second query, after half a second", good, took, said)
		}
	})
}

func FuzzJudgeDNS(f *testing.F) {
	p := dnsQuery{name: dnsmessage.MustNewName("a."), kind: dnsmessage.TypeA}
	query, err := p.pack(7)
	if err != nil {
		f.Fatal(err)
	}
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil {
		f.Fatal(err)
	}
	f.Add(query)
	f.Add(reply(message, dnsmessage.RCodeSuccess, [4]byte{10, 0, 0, 1}))
	f.Add(reply(message, dnsmessage.RCodeServerFailure))
	f.Add([]byte{0, 7, 0x80, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		answers, ours, err := p.judge(datagram, 7)
		if !ours && (answers != 0 || err != nil) || answers < 0 || answers > len(datagram) {
			t.Errorf("%d answers, ours %v, %v", answers, ours, err)
		}
	})
}

// rpcServer replies to one call on each connection with what answer makes of it.
func rpcServer(t *testing.T, answer func(oncrpc.Call) oncrpc.Reply) netip.AddrPort {
	return listener(t, func(c net.Conn) {
		record, err := oncrpc.ReadRecord(c)
		if err != nil {
			t.Errorf("the server cannot read the call: %v", err)
			return
		}
		call, err := oncrpc.ParseCall(record)
		if err != nil {
			t.Errorf("the server cannot understand the call: %v", err)
			return
		}
		if err := oncrpc.WriteRecord(c, oncrpc.AppendReply(nil, answer(call))); err != nil {
			t.Errorf("the server cannot reply: %v", err)
		}
	})
}

func TestRPC(t *testing.T) {
	nfs := func(call oncrpc.Call) oncrpc.Reply {
		switch {
		case call.Program != 100003:
			return oncrpc.Reply{XID: call.XID, Status: oncrpc.ProgramUnavailable}
		case call.Version < 3 || call.Version > 4:
			return oncrpc.Reply{XID: call.XID, Status: oncrpc.ProgramMismatch, Low: 3, High: 4}
		}
		return oncrpc.Reply{XID: call.XID}
	}
	ask := func(program, version uint32) cluster.Check {
		return cluster.Check{Kind: cluster.CheckRPC, Program: program, Version: version}
	}
	for _, tc := range []struct {
		name  string
		check cluster.Check
		at    netip.AddrPort
		good  bool
		said  string
	}{
		{"answers", ask(100003, 4), rpcServer(t, nfs), true, "rpc null call to program 100003 version 4 at HOST:PORT answered"},
		{"another version", ask(100003, 2), rpcServer(t, nfs), false, "at HOST:PORT: the program does not offer that version, only 3 to 4"},
		{"another program", ask(100005, 3), rpcServer(t, nfs), false, "the program is not registered there"},
		{"reply to another call", ask(100003, 4), rpcServer(t, func(c oncrpc.Call) oncrpc.Reply { return oncrpc.Reply{XID: c.XID + 1} }), false, "the reply is to call"},
		{"denied", ask(100003, 4), rpcServer(t, func(c oncrpc.Call) oncrpc.Reply { return oncrpc.Reply{XID: c.XID, Denied: "no"} }), false, "the server denied the call"},
		{"hangs up", ask(100003, 4), listener(t, func(c net.Conn) { _, _ = oncrpc.ReadRecord(c) }), false, "reading an RPC record mark: EOF"},
		{"speaks something else", ask(100003, 4), listener(t, func(c net.Conn) {
			_, _ = oncrpc.ReadRecord(c)
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}), false, "not a valid ONC RPC message"},
		{"nobody listens", ask(100003, 4), closedPort(t), false, "at HOST:PORT: connection refused"},
	} {
		t.Run(tc.name, func(t *testing.T) { expect(t, tc.check, tc.at, tc.good, tc.said) })
	}
}

// silent is a dialer whose peers accept, read and never say anything.
func silent(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	return ours, ctx.Err()
}

// unreachable is a dialer that waits for as long as it is allowed to.
func unreachable(ctx context.Context, network, address string) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
}

// TestTimeouts has every network probe meet peers that never answer, and end exactly at its timeout.
func TestTimeouts(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for _, kind := range []cluster.CheckKind{cluster.CheckTCP, cluster.CheckHTTP, cluster.CheckHTTPS, cluster.CheckDNS, cluster.CheckRPC} {
		for name, dial := range map[string]Dialer{"silent": silent, "unreachable": unreachable} {
			if kind == cluster.CheckTCP && name == "silent" {
				continue // opening the connection is all that it asks for
			}
			t.Run(string(kind)+" "+name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					began := time.Now()
					good, said := outcome(t, cluster.Check{Kind: kind, Query: "a."}, netip.Addr{}, dial, timeout)
					if good || !strings.Contains(said, "no answer within the timeout") {
						t.Errorf("good %v, %q; want no answer", good, said)
					}
					if took := time.Since(began); took != timeout {
						t.Errorf("took %s, want %s", took, timeout)
					}
				})
			})
		}
	}
}

// TestCalledOff is a try that the Runner ends for its own reasons: it says nothing about the service.
func TestCalledOff(t *testing.T) {
	for _, kind := range []cluster.CheckKind{cluster.CheckTCP, cluster.CheckHTTP, cluster.CheckDNS, cluster.CheckRPC} {
		bubble.Test(t, func(t *testing.T) {
			p, err := New(cluster.Check{Kind: kind, Query: "a."}, netip.Addr{}, unreachable)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if _, err := p.Try(ctx); !errors.Is(err, errStopped) {
				t.Errorf("%s: %v does not say that it was stopped", kind, err)
			}
		})
	}
}

func TestNewSaysNo(t *testing.T) {
	for name, tc := range map[string]struct {
		check cluster.Check
		want  string
	}{
		"kind":             {cluster.Check{Name: "web", Kind: "icmp"}, `check web: there is no kind "icmp"`},
		"exec of nothing":  {cluster.Check{Name: "own", Kind: cluster.CheckExec}, "check own: exec needs a command"},
		"exec by PATH":     {cluster.Check{Name: "own", Kind: cluster.CheckExec, Command: []string{"true"}}, "absolute path"},
		"name without end": {cluster.Check{Name: "dns", Kind: cluster.CheckDNS, Query: strings.Repeat("a", 300)}, "check dns: the name"},
	} {
		if _, err := New(tc.check, netip.Addr{}, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
}

func TestPlain(t *testing.T) {
	wrapped := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	if got := plain(wrapped).Error(); got != "no route to host" {
		t.Errorf("%q", got)
	}
	odd := errors.New("odd")
	if plain(odd) != odd { //nolint:errorlint // it must be the very same
		t.Error("an error without a known cause was replaced")
	}
}
