package address

import (
	"errors"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// What leaves from an address of a subnet with an MTU keeps to it, and the node's own way out follows the carrier beside the
// operator's, which wins where its metric is lower.
func TestMTUAndDefaultRouteOnTheKernel(t *testing.T) {
	s := newSite(t)
	s.background()
	for _, line := range []string{"address add 10.0.0.1/24 dev peer0", "address add fd00::1/64 dev peer0 nodad"} {
		s.ip(s.rest, line)
	}
	s.ip(s.node, "address add 10.0.0.11/24 dev ext0") // without any address the kernel drops the operator's routes too
	s.ip(s.node, "route add default dev ext0 metric 7001")
	desired := bothSevens
	desired.Routes = []SubnetRoute{
		{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0", MTU: 1400, Priority: 1},
		{Prefix: prefix("fd00::/64"), Gateway: addr("fd00::1"), Interface: "ext0", MTU: 1400, Priority: 1},
	}
	s.until("ext0 has carrier", func() bool {
		s.Set(t.Context(), desired)
		return len(s.defaultRoutes()) == 2
	})
	for server, largest := range map[string]int{"10.0.0.7": 1400 - 40, "fd00::7": 1400 - 60} {
		if got := s.segmentFrom(server); got > largest || got < largest-12 { // 12 for the timestamp option
			t.Errorf("segments from %s have up to %d bytes, want %d", server, got, largest)
		}
	}
	if way := s.wayOut("198.51.100.1"); way != "10.0.0.1" {
		t.Errorf("beside an operator's route of a higher metric the node's own packets leave by %q, want 10.0.0.1", way)
	}
	s.ip(s.node, "route add default via 10.0.0.9 dev ext0 onlink metric 100")
	if way := s.wayOut("198.51.100.1"); way != "10.0.0.9" {
		t.Errorf("beside an operator's route of a lower metric the node's own packets leave by %q, want 10.0.0.9", way)
	}
	s.ip(s.rest, "link set peer0 down")
	s.until("there is no way out without carrier", func() bool { return len(s.defaultRoutes()) == 0 })
	s.ip(s.rest, "link set peer0 up")
	s.until("it is back with the carrier", func() bool { return len(s.defaultRoutes()) == 2 })
	s.ip(s.node, "link set ext0 mtu 1300")
	s.until("the MTU is reported", func() bool { return s.problem("interface.mtu") })
	s.Set(t.Context(), Desired{})
	if left := s.defaultRoutes(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
	if way := s.wayOut("198.51.100.1"); way != "10.0.0.9" {
		t.Errorf("after all is gone the node's own packets leave by %q, want the operator's 10.0.0.9", way)
	}
}

// The kernel drops the IPv4 routes of an interface that loses its last IPv4 address. They are looked at again at once, also where
// nothing else changed.
func TestRoutesReturnAfterTheLastAddress(t *testing.T) {
	s := newSite(t) // without background work, whose periodic reading would mend it too
	without := Desired{Routes: []SubnetRoute{{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0", Priority: 1}}}
	with := without
	with.Holdings = []Holding{moving("10.0.0.7", "ext0")}
	s.until("the routes are there", func() bool { s.Set(t.Context(), with); return len(s.defaultRoutes()) == 1 })
	for what, empty := range map[string]func(){
		"the address was let go": func() { s.Set(t.Context(), without) },
		"a silence":              func() { s.Silence("test") },
	} {
		s.Set(t.Context(), with)
		for len(s.reread) > 0 {
			<-s.reread
		}
		empty()
		select {
		case <-s.reread:
			s.pass(t.Context(), false)
		default:
			t.Errorf("after %s the kernel is not read again", what)
		}
		if routes, err := s.node.Routes(); err != nil || len(routes) != 3 {
			t.Errorf("after %s there are %v (%v), want the subnet's two and the default", what, routes, err)
		}
	}
	s.Set(t.Context(), with)
	s.Set(t.Context(), Desired{}) // what the kernel took away with the address is not there to be removed
	if s.problem("address.route-failed") {
		t.Errorf("%+v", s.board.List())
	}
}

// defaultRoutes are Holdfast's own in the main table.
func (s *site) defaultRoutes() []link.Route {
	s.t.Helper()
	routes, err := s.node.Routes()
	if err != nil {
		s.t.Fatal(err)
	}
	var list []link.Route
	for _, r := range routes {
		if r.Table == link.MainTable {
			list = append(list, r)
		}
	}
	return list
}

// wayOut is the gateway that the node's own packets to an address take.
func (s *site) wayOut(to string) string {
	s.t.Helper()
	var out []byte
	s.in(s.node, func() (err error) {
		out, err = exec.Command("ip", "route", "get", to).CombinedOutput()
		return err
	})
	words := strings.Fields(string(out))
	if at := slices.Index(words, "via"); at >= 0 {
		return words[at+1]
	}
	return "none"
}

// segmentFrom is the largest segment of a connection that a server on an address of the node accepted.
func (s *site) segmentFrom(server string) int {
	s.t.Helper()
	var listener net.Listener
	s.in(s.node, func() (err error) { listener, err = net.Listen("tcp", net.JoinHostPort(server, "0")); return err })
	defer listener.Close()
	var client net.Conn
	s.until("a client reaches "+server, func() bool {
		return s.rest.In(func() (err error) {
			client, err = net.DialTimeout("tcp", listener.Addr().String(), time.Second)
			return err
		}) == nil
	})
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	size := 0
	controlErr := raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err := errors.Join(controlErr, err); err != nil {
		s.t.Fatalf("reading the segment size: %v", err)
	}
	return size
}
