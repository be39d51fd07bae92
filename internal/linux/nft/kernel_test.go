package nft

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// space runs functions on a thread of a network namespace of its own, until the test ends.
type space struct {
	t    *testing.T
	work chan func()
	path string
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t, work: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread dies, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNET)
		s.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		made <- err
		for f := range s.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		t.Skipf("no permission to make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.work) })
	return s
}

func (s *space) in(f func() error) {
	s.t.Helper()
	result := make(chan error)
	s.work <- func() { result <- f() }
	if err := <-result; err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) run(line string) (out string) {
	s.t.Helper()
	s.in(func() error {
		b, err := exec.Command(strings.Fields(line)[0], strings.Fields(line)[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, b)
		}
		out = string(b)
		return nil
	})
	return out
}

// open opens a Filter in the namespace.
func (s *space) open() (f *Filter) {
	s.t.Helper()
	s.in(func() (err error) { f, err = Open(); return err })
	s.t.Cleanup(f.Close)
	return f
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// pair is a node and another machine on one cable. The node has 10.0.0.1 and fd00::1 for good, and 10.0.0.7 and fd00::7.
func pair(t *testing.T) (node, rest *space) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not installed")
	}
	node, rest = newSpace(t), newSpace(t)
	node.run("ip link add eth0 type veth peer name eth0 netns " + rest.path)
	node.run("ip link set eth0 up")
	rest.run("ip link set eth0 up")
	for _, a := range []string{"10.0.0.1/24", "10.0.0.7/32", "fd00::1/64 nodad", "fd00::7/128 nodad"} {
		node.run("ip addr add dev eth0 " + a)
	}
	rest.run("ip addr add dev eth0 10.0.0.2/24")
	rest.run("ip addr add dev eth0 fd00::2/64 nodad")
	return node, rest
}

// listen opens a UDP socket of a family on every address of the namespace.
func (s *space) listen(network string) (socket *net.UDPConn) {
	s.t.Helper()
	s.in(func() (err error) { socket, err = net.ListenUDP(network, &net.UDPAddr{Port: 4000}); return err })
	s.t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// send sends what it says, to the address.
func (s *space) send(to string) {
	s.t.Helper()
	s.in(func() error {
		c, err := net.Dial("udp", net.JoinHostPort(to, "4000"))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(to))
		return err
	})
}

// hear returns the next datagram.
func hear(t *testing.T, socket *net.UDPConn) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := socket.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestSilence: while it is silenced, an address neither receives nor sends nor is found on the link, and an address of the same node
// that is not in the sets does as ever.
func TestSilence(t *testing.T) {
	for _, c := range []struct{ network, own, moving string }{{"udp4", "10.0.0.1", "10.0.0.7"}, {"udp6", "fd00::1", "fd00::7"}} {
		t.Run(c.network, func(t *testing.T) {
			node, rest := pair(t)
			f := node.open()
			if err := f.Set([]netip.Addr{addr(c.moving), addr("10.9.9.9"), addr("fd09::9")}); err != nil {
				t.Fatal(err)
			}
			socket := node.listen(c.network)
			rest.send(c.moving)
			if got := hear(t, socket); got != c.moving {
				t.Fatalf("before the silence the node heard %q", got)
			}
			if err := f.Silence(); err != nil {
				t.Fatal(err)
			}
			rest.send(c.moving) // the neighbour is known: only the way of the packet is barred
			rest.send(c.own)
			if got := hear(t, socket); got != c.own {
				t.Errorf("under the silence the node heard what was sent to %s", got)
			}
			rest.run("ip neigh flush dev eth0")
			rest.send(c.moving) // it asks for the neighbour, and then for the other, whose answer comes after that of the first
			rest.send(c.own)
			if got := hear(t, socket); got != c.own {
				t.Errorf("under the silence the node heard what was sent to %s", got)
			}
			if out := rest.run("ip neigh show to " + c.moving); strings.Contains(out, "lladdr") {
				t.Errorf("under the silence the node said where %s is: %s", c.moving, out)
			}
			if err := sendFrom(node, c.moving, rest, c.network); err == nil {
				t.Errorf("under the silence the node could send from %s", c.moving)
			}
			if err := f.Lift(); err != nil {
				t.Fatal(err)
			}
			rest.run("ip neigh flush dev eth0")
			rest.send(c.moving)
			if got := hear(t, socket); got != c.moving {
				t.Errorf("after the silence the node heard %q", got)
			}
		})
	}
}

func sendFrom(node *space, from string, rest *space, network string) error {
	to := &net.UDPAddr{IP: net.ParseIP("10.0.0.2"), Port: 4001}
	if network == "udp6" {
		to.IP = net.ParseIP("fd00::2")
	}
	var sent error
	node.in(func() error {
		c, err := net.DialUDP(network, &net.UDPAddr{IP: net.ParseIP(from)}, to)
		if err != nil {
			return err
		}
		defer c.Close()
		_, sent = c.Write([]byte("x"))
		return nil
	})
	return sent
}

// TestSet: addresses come and go, many of them, silenced or not; what was silenced and stays is so throughout.
func TestSet(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft(8) is not installed")
	}
	node := newSpace(t)
	f := node.open()
	var many []netip.Addr
	a, b := addr("10.1.0.0"), addr("fd00:1::")
	for range 3000 {
		a, b = a.Next(), b.Next()
		many = append(many, a, b)
	}
	for _, set := range [][]netip.Addr{many, many[:10], nil, many[5:2500]} {
		if err := f.Set(set); err != nil {
			t.Fatal(err)
		}
		if err := f.Silence(); err != nil {
			t.Fatal(err)
		}
		list := node.run("nft list ruleset")
		for _, what := range []string{"type ipv4_addr", "type ipv6_addr", "hook output", "ip daddr @addresses4 drop", "ip6 saddr @addresses6 drop"} {
			if !strings.Contains(list, what) {
				t.Errorf("with %d addresses the rules lack %q:\n%.3000s", len(set), what, list)
			}
		}
		want := 0 // IPv4 ones are in two sets
		for _, a := range set {
			if want++; a.Is4() {
				want++
			}
		}
		if n := strings.Count(list, "10.1.") + strings.Count(list, "fd00:1:"); n != want {
			t.Errorf("for %d addresses the sets have %d elements instead of %d", len(set), n, want)
		}
	}
	if err := f.Set([]netip.Addr{{}, addr("::ffff:10.1.0.1")}); err != nil {
		t.Fatal(err)
	}
	if !f.present[addr("10.1.0.1")] || len(f.present) != 1 {
		t.Errorf("it has %v", f.present)
	}
}

// TestTablesBelongToTheFilter: nobody else takes the silence away, not even by a flush of everything; a second filter is refused;
// and nothing is left when the first is closed, as when its process dies.
func TestTablesBelongToTheFilter(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft(8) is not installed")
	}
	node := newSpace(t)
	f := node.open()
	if err := f.Silence(); err != nil {
		t.Fatal(err)
	}
	node.in(func() error {
		_ = exec.Command("nft", "flush", "ruleset").Run()
		if second, err := Open(); err == nil {
			second.Close()
			t.Error("a second filter opened")
		} else if !strings.Contains(err.Error(), TableName) {
			t.Errorf("a second filter failed with %v", err)
		}
		return nil
	})
	if list := node.run("nft list ruleset"); !strings.Contains(list, "hook input") || !strings.Contains(list, "table arp") {
		t.Errorf("after a flush there is only:\n%s", list)
	}
	f.Close()
	if list := node.run("nft list ruleset"); strings.Contains(list, TableName) {
		t.Errorf("closed, it left behind:\n%s", list)
	}
	node.open() // and another may follow
}

// TestSilenceCost prints what a silence takes; it asserts nothing about time.
func TestSilenceCost(t *testing.T) {
	node := newSpace(t)
	for _, count := range []int{10, 1000, 10000} {
		var f *Filter
		node.in(func() (err error) { f, err = Open(); return err })
		var list []netip.Addr
		for a := addr("10.1.0.0"); len(list) < count; a = a.Next() {
			list = append(list, a)
		}
		if err := f.Set(list); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			start := time.Now()
			if err := f.Silence(); err != nil {
				t.Fatal(err)
			}
			silenced := time.Since(start)
			start = time.Now()
			if err := f.Lift(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d addresses: silence %v, lift %v", count, silenced, time.Since(start))
		}
		f.Close()
	}
}

// FuzzAnswers: whatever the kernel says, it is read without harm.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { answers(b) })
}
