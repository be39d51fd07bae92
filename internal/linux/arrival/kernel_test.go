package arrival_test

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/arrival"
)

// space is a network namespace with one end of a veth pair; the far end is in another. Their threads die with the test.
type space struct {
	t     *testing.T
	tasks chan func()
	pid   int
}

func newSpace(t *testing.T) *space {
	t.Helper()
	s := &space{t: t, tasks: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		err := unix.Unshare(unix.CLONE_NEWNET)
		s.pid = unix.Gettid()
		made <- err
		for task := range s.tasks {
			task()
		}
	}()
	if err := <-made; err != nil {
		t.Skipf("no permission to make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.tasks) })
	return s
}

// run calls f on the thread of the namespace.
func (s *space) run(f func() error) error {
	result := make(chan error)
	s.tasks <- func() { result <- f() }
	return <-result
}

func (s *space) must(f func() error) {
	s.t.Helper()
	if err := s.run(f); err != nil {
		s.t.Fatal(err)
	}
}

// up gives a device addresses and a neighbour's.
func (s *space) up(name string, own ...string) {
	s.t.Helper()
	s.must(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/accept_dad", []byte("0"), 0o644); err != nil {
			return err
		}
		device, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, text := range own {
			address, err := netlink.ParseAddr(text)
			if err != nil {
				return err
			}
			address.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(device, address); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(device)
	})
}

// pair is a node with ext0 and a client with cli0 on one link.
func pair(t *testing.T) (node, client *space) {
	node, client = newSpace(t), newSpace(t)
	node.must(func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "ext0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "cli0"}); err != nil {
			return err
		}
		far, err := netlink.LinkByName("cli0")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsPid(far, client.pid)
	})
	node.up("ext0", "10.0.0.1/24", "10.0.0.101/32", "10.0.0.102/32", "fd00::1/64", "fd00::101/128")
	client.up("cli0", "10.0.0.9/24", "fd00::9/64")
	return node, client
}

// say sends a datagram from a space to an address.
func (s *space) say(to string) {
	s.t.Helper()
	s.must(func() error {
		address := netip.MustParseAddr(to)
		family, name := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 9, Addr: [4]byte(address.AsSlice())})
		if address.Is6() {
			family, name = unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: address.As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte("hello"), 0, name)
	})
}

// listen listens on the node for some addresses. The packets to other addresses and of the node itself, which come first, are not
// heard: what is heard is told in order.
func (s *space) listen(ctx context.Context, addresses ...string) (heard chan arrival.First, ended chan error) {
	s.t.Helper()
	heard, ended = make(chan arrival.First, 16), make(chan error, 1)
	var wanted []netip.Addr
	for _, a := range addresses {
		wanted = append(wanted, netip.MustParseAddr(a))
	}
	listener := arrival.Listener{In: s.run}
	go func() { ended <- listener.FirstPackets(ctx, "ext0", wanted, func(f arrival.First) { heard <- f }) }()
	return heard, ended
}

// until says something again and again until the first packet is heard, and returns it.
func (s *space) until(heard chan arrival.First, to ...string) arrival.First {
	s.t.Helper()
	for {
		for _, address := range to {
			s.say(address)
		}
		select {
		case f := <-heard:
			return f
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestFirstPackets(t *testing.T) {
	node, client := pair(t)
	before := time.Now()
	heard, ended := node.listen(t.Context(), "10.0.0.101", "10.0.0.102", "fd00::101")
	seen := map[netip.Addr]bool{}
	for _, want := range []struct{ to, from string }{{"10.0.0.101", "10.0.0.9"}, {"fd00::101", "fd00::9"}, {"10.0.0.102", "10.0.0.9"}} {
		node.say("10.0.0.101") // its own packets, and those to its other addresses, are none of a client
		first := client.until(heard, "10.0.0.1", want.to)
		if first.Address.String() != want.to || first.From.String() != want.from || first.At.Before(before) || first.At.After(time.Now()) || seen[first.Address] {
			t.Errorf("heard %v from %v at %v, want %v from %v", first.Address, first.From, first.At, want.to, want.from)
		}
		seen[first.Address] = true
	}
	if err := <-ended; err != nil { // all were heard
		t.Error(err)
	}
	if len(heard) > 0 {
		t.Errorf("heard more: %v", <-heard)
	}
}

// What is beyond the bound is left out, and the rest is heard.
func TestTooManyAddresses(t *testing.T) {
	node, client := pair(t)
	addresses := []string{"10.0.0.102"}
	for a := netip.MustParseAddr("10.9.0.1"); len(addresses) < arrival.MaxAddresses; a = a.Next() {
		addresses = append(addresses, a.String())
	}
	ctx, stop := context.WithCancel(t.Context())
	heard, ended := node.listen(ctx, append(addresses, "10.0.0.101")...)
	if first := client.until(heard, "10.0.0.101", "10.0.0.102"); first.Address.String() != "10.0.0.102" {
		t.Errorf("heard a packet to %v first", first.Address)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNoPackets(t *testing.T) {
	node, _ := pair(t)
	ctx, stop := context.WithCancel(t.Context())
	heard, ended := node.listen(ctx, "10.0.0.101", "fd00::101")
	node.say("10.0.0.101")
	stop()
	if err := <-ended; err != nil || len(heard) > 0 {
		t.Errorf("ended with %v, %d heard", err, len(heard))
	}
}

func TestNoInterface(t *testing.T) {
	err := new(arrival.Listener).FirstPackets(t.Context(), "ext9", []netip.Addr{netip.MustParseAddr("10.0.0.1")}, func(arrival.First) {})
	if err == nil || !strings.Contains(err.Error(), "ext9") {
		t.Error(err)
	}
}
