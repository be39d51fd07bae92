package address

import (
	"context"
	"errors"
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

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
	"github.com/holdfast/holdfast/internal/problem"
)

// site is two network namespaces: the node's with ext0, and the rest of the link with peer0, joined by a cable.
type site struct {
	t          *testing.T
	node, rest *link.Kernel
	board      *problem.Board
	*Reconciler
}

// patience is how long the real kernel may take for what takes it milliseconds. Nothing is judged by it.
const patience = 10 * time.Second

func newKernel(t *testing.T) *link.Kernel {
	t.Helper()
	type opened struct {
		k    *link.Kernel
		err  error
		skip string
	}
	result := make(chan opened)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread dies, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- opened{skip: fmt.Sprintf("no permission to make a network namespace: %v", err)}
			return
		}
		k, err := link.Open()
		result <- opened{k: k, err: err}
	}()
	o := <-result
	if o.skip != "" {
		t.Skip(o.skip)
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
	t.Cleanup(o.k.Close)
	return o.k
}

func newSite(t *testing.T) *site {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip(8) is not installed")
	}
	s := &site{t: t, node: newKernel(t), rest: newKernel(t), board: &problem.Board{}}
	s.in(s.rest, func() error { // its link-local address is usable at once
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644)
	})
	var place *os.File
	s.in(s.rest, func() (err error) { place, err = os.Open("/proc/thread-self/ns/net"); return err })
	defer place.Close()
	s.ip(s.node, "link add ext0 type veth peer name peer0")
	s.ip(s.node, fmt.Sprintf("link set peer0 netns /proc/%d/fd/%d", os.Getpid(), place.Fd()))
	s.ip(s.node, "link set ext0 up")
	s.ip(s.rest, "link set peer0 up")
	announcer, err := neigh.Open(s.node.In)
	if err != nil {
		t.Fatal(err)
	}
	s.Reconciler = New(Options{Kernel: s.node, Announcer: announcer, Board: s.board})
	t.Cleanup(announcer.Close)
	return s
}

func (s *site) in(k *link.Kernel, f func() error) {
	s.t.Helper()
	if err := k.In(f); err != nil {
		s.t.Fatal(err)
	}
}

// ip runs ip(8) in a namespace; a child begins in the namespace of the thread that starts it.
func (s *site) ip(k *link.Kernel, arguments string) {
	s.t.Helper()
	s.in(k, func() error {
		out, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", arguments, err, out)
		}
		return nil
	})
}

// background runs the background work until the test, or the function returned, ends it.
func (s *site) background() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			ended = true
			if err := <-done; err != nil {
				s.t.Errorf("Run ended with %v", err)
			}
		}
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *site) mac(k *link.Kernel, name string) net.HardwareAddr {
	s.t.Helper()
	list, err := k.Interfaces()
	for _, i := range list {
		if i.Name == name {
			return i.MAC
		}
	}
	s.t.Fatalf("no interface %s (%v)", name, err)
	return nil
}

// until waits until ok gives true.
func (s *site) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (s *site) there() string {
	list, _ := s.node.Addresses()
	var names []string
	for _, a := range list {
		names = append(names, a.Prefix.String())
	}
	return strings.Join(names, " ")
}

func (s *site) problem(code string) bool {
	for _, a := range s.board.List() {
		if a.Kind.Code == code {
			return true
		}
	}
	return false
}

// capture begins to read what arrives at peer0 and describes ARP packets and advertisements, one string each.
func (s *site) capture() <-chan string {
	s.t.Helper()
	var fd int
	s.in(s.rest, func() (err error) {
		peer, err := net.InterfaceByName("peer0")
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(50 * time.Millisecond))
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: peer.Index}))
	})
	seen, stop, done := make(chan string, 10000), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 2048)
		for {
			n, _, err := unix.Recvfrom(fd, b, 0)
			select {
			case <-stop:
				return
			default:
			}
			if err == nil {
				if text := describe(b[:n]); text != "" {
					seen <- text
				}
			}
		}
	}()
	s.t.Cleanup(func() { close(stop); <-done; _ = unix.Close(fd) })
	return seen
}

// describe writes a frame out; it reads by the layouts of RFC 826 and RFC 4861, without the code under test.
func describe(f []byte) string {
	switch {
	case len(f) >= 42 && f[12] == 8 && f[13] == 6:
		kind := map[byte]string{1: "request", 2: "reply"}[f[21]]
		return fmt.Sprintf("%s to %v: %v is at %v, asks for %v", kind, net.HardwareAddr(f[:6]),
			net.IP(f[28:32]), net.HardwareAddr(f[22:28]), net.IP(f[38:42]))
	case len(f) >= 86 && f[12] == 0x86 && f[13] == 0xdd && f[20] == 58 && f[54] == 136 && f[78] == 2:
		return fmt.Sprintf("advertisement to %v %v hops %d flags %x: %v is at %v", net.HardwareAddr(f[:6]),
			netip.AddrFrom16([16]byte(f[38:54])), f[21], f[58], netip.AddrFrom16([16]byte(f[62:78])), net.HardwareAddr(f[80:86]))
	}
	return ""
}

// wantSeen waits until each of the descriptions was seen count times.
func (s *site) wantSeen(seen <-chan string, count int, want ...string) {
	s.t.Helper()
	missing := map[string]int{}
	for _, w := range want {
		missing[w] = count
	}
	deadline := time.After(patience)
	for len(missing) > 0 {
		select {
		case got := <-seen:
			if missing[got]--; missing[got] <= 0 {
				delete(missing, got)
			}
		case <-deadline:
			s.t.Fatalf("not seen: %v", missing)
		}
	}
}

// announcements are the descriptions of all forms for 10.0.0.7 and fd00::7 at ext0.
func (s *site) announcements() []string {
	mac := s.mac(s.node, "ext0")
	return []string{
		fmt.Sprintf("request to ff:ff:ff:ff:ff:ff: 10.0.0.7 is at %v, asks for 10.0.0.7", mac),
		fmt.Sprintf("reply to ff:ff:ff:ff:ff:ff: 10.0.0.7 is at %v, asks for 10.0.0.7", mac),
		fmt.Sprintf("advertisement to 33:33:00:00:00:01 ff02::1 hops 255 flags 20: fd00::7 is at %v", mac),
	}
}

var bothSevens = holdings(moving("10.0.0.7", "ext0"), moving("fd00::7", "ext0"))

// Public report 3 on a real link: all forms, all five times, with the MAC of the device.
func TestReport3OnTheWire(t *testing.T) {
	s := newSite(t)
	s.background()
	seen := s.capture()
	if got := s.Set(t.Context(), bothSevens); got.Failed != nil {
		t.Fatal(got.Failed)
	}
	s.wantSeen(seen, 5, s.announcements()...)
}

// Public report 1 on a real link: a stranger claims the addresses; the holder contradicts, and counts.
func TestReport1OnTheWire(t *testing.T) {
	s := newSite(t)
	s.background()
	s.Set(t.Context(), bothSevens)
	stranger, err := neigh.Open(s.rest.In)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	s.until("the repeats are over", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.schedule.running) == 0
	})
	seen := s.capture()
	if err := stranger.Announce("peer0", []netip.Addr{addr("10.0.0.7"), addr("fd00::7")}); err != nil {
		t.Fatal(err)
	}
	s.wantSeen(seen, 1, s.announcements()...)
	if !s.problem("address.conflict") {
		t.Errorf("no conflict on the board: %+v", s.board.List())
	}
}

// Public report 2 on a real link: the cable is pulled and put back.
func TestReport2OnTheWire(t *testing.T) {
	s := newSite(t)
	s.background()
	s.Set(t.Context(), bothSevens)
	s.ip(s.rest, "link set peer0 down")
	s.until("the carrier is seen to be gone", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.devices["ext0"].Carrier
	})
	seen := s.capture()
	s.ip(s.rest, "link set peer0 up")
	s.wantSeen(seen, 2, s.announcements()...)
}

// Public report 4(a) on a real kernel: the agent is killed; its addresses are gone after their lifetime, and the next
// agent drops what is left before anything else. The node's own address and static ones stay.
func TestReport4OnTheKernel(t *testing.T) {
	s := newSite(t)
	s.ip(s.node, "address add 10.0.0.100/24 dev ext0")
	stop := s.background()
	s.Set(t.Context(), holdings(moving("10.0.0.7", "ext0"), moving("fd00::7", "ext0"), still("10.0.0.5", "ext0")))
	stop() // from here on nobody renews
	next := New(Options{Kernel: s.node, Announcer: s.announcer})
	moves := func(a netip.Addr) bool { return a != addr("10.0.0.5") && a != addr("10.0.0.100") }
	if err := next.CleanUp(t.Context(), moves); err != nil {
		t.Error(err)
	}
	if got := s.there(); got != "10.0.0.100/24 10.0.0.5/32" {
		t.Errorf("after the clean-up there are %s", got)
	}
	next.Set(t.Context(), bothSevens)
	s.until("the lifetime has ended", func() bool { return !strings.Contains(s.there(), "7") })
}

// Addresses outlive many lifetimes while the background work runs, and a silence drops them at once.
func TestRenewalAndSilenceOnTheKernel(t *testing.T) {
	s := newSite(t)
	s.background()
	s.Set(t.Context(), bothSevens)
	start := time.Now()
	s.until("one and a half lifetimes have passed", func() bool {
		if got := s.there(); !strings.Contains(got, "10.0.0.7/32") || !strings.Contains(got, "fd00::7/128") {
			t.Fatalf("after %v there are only %q", time.Since(start), got)
		}
		return time.Since(start) > ValidLifetime*3/2
	})
	s.Silence("test")
	if got := s.there(); got != "" {
		t.Errorf("after the silence there are %s", got)
	}
}

// Public report 11 on a real kernel: a host outside the cluster has the address. It is not taken, the board says so, and
// the caller gets it as failed, so that it can decide.
func TestReport11AddressInUse(t *testing.T) {
	s := newSite(t)
	s.ip(s.rest, "address add 10.0.0.7/24 dev peer0")
	s.ip(s.rest, "address add fd00::7/64 dev peer0 nodad")
	var desired Desired
	for _, a := range []string{"10.0.0.7", "10.0.0.8", "fd00::7", "fd00::8"} {
		h := moving(a, "ext0")
		h.Probe = true
		desired.Holdings = append(desired.Holdings, h)
	}
	got := s.Set(t.Context(), desired)
	if addresses(got.Held) != "10.0.0.8 fd00::8" || !errors.Is(got.Failed[addr("10.0.0.7")], ErrInUse) || !errors.Is(got.Failed[addr("fd00::7")], ErrInUse) {
		t.Errorf("got %+v, want both sevens refused", got)
	}
	if mac := s.mac(s.rest, "peer0").String(); !strings.Contains(fmt.Sprint(got.Failed[addr("10.0.0.7")]), mac) {
		t.Errorf("%v does not name the stranger %s", got.Failed[addr("10.0.0.7")], mac)
	}
	if !s.problem("address.in-use") {
		t.Errorf("not on the board: %+v", s.board.List())
	}
}

// A client behind the gateway reaches an address although the node has no other address in the subnet and no route of
// its own: the reply leaves by the subnet's table.
func TestRepliesLeaveByTheSubnet(t *testing.T) {
	s := newSite(t)
	s.background()
	for _, line := range []string{"link set lo up", "address add 10.0.0.1/24 dev peer0", "address add 192.168.5.5/32 dev lo",
		"address add fd00::1/64 dev peer0 nodad", "address add fd05::5/128 dev lo nodad"} {
		s.ip(s.rest, line)
	}
	desired := bothSevens
	desired.Routes = []SubnetRoute{
		{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0"},
		{Prefix: prefix("fd00::/64"), Interface: "ext0", Static: []cluster.Route{{Destination: prefix("fd05::/16"), Gateway: addr("fd00::1")}}},
	}
	if got := s.Set(t.Context(), desired); got.Failed != nil {
		t.Fatal(got.Failed)
	}
	if s.problem("address.route-failed") {
		t.Fatalf("%+v", s.board.List())
	}
	for client, server := range map[string]string{"192.168.5.5": "10.0.0.7", "fd05::5": "fd00::7"} {
		var listener net.Listener
		s.in(s.node, func() (err error) { listener, err = net.Listen("tcp", net.JoinHostPort(server, "0")); return err })
		s.until("a client at "+client+" reaches "+server, func() bool { // once the link is ready
			return s.rest.In(func() error {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: time.Second}
				conn, err := dialer.Dial("tcp", listener.Addr().String())
				if err == nil {
					err = conn.Close()
				}
				return err
			}) == nil
		})
		listener.Close()
	}
	if got := s.Set(t.Context(), Desired{}); got.Failed != nil {
		t.Error(got.Failed)
	}
	rules, _ := s.node.Rules()
	routes, _ := s.node.Routes()
	if len(rules)+len(routes) > 0 {
		t.Errorf("left are %v and %v", rules, routes)
	}
}

// An interface that is taken away and made anew gets its addresses back by itself.
func TestInterfaceReturnsOnTheKernel(t *testing.T) {
	s := newSite(t)
	s.background()
	s.Set(t.Context(), bothSevens)
	s.ip(s.node, "link del ext0")
	s.until("the loss is on the board", func() bool { return s.problem("address.interface-missing") })
	s.ip(s.node, "link add ext0 type veth peer name ext0-peer")
	s.ip(s.node, "link set ext0-peer up")
	s.ip(s.node, "link set ext0 up")
	s.until("the addresses are back", func() bool { return len(s.Status().Held) == 2 && strings.Contains(s.there(), "10.0.0.7/32") })
	s.until("the board is clear", func() bool { return !s.problem("address.interface-missing") })
}

// The bar is a clean node within 200 ms; here the time is only shown.
func TestSilenceOfAThousand(t *testing.T) {
	s := newSite(t)
	var many []Holding
	for i := range 1000 {
		many = append(many, moving(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), "ext0"))
	}
	start := time.Now()
	if got := s.Set(t.Context(), holdings(many...)); len(got.Held) != 1000 {
		t.Fatalf("%d held", len(got.Held))
	}
	taken := time.Now()
	s.renew()
	renewed := time.Now()
	s.Silence("test")
	t.Logf("1000 addresses taken and announced in %v, renewed in %v, dropped in %v", taken.Sub(start), renewed.Sub(taken), time.Since(renewed))
	if got := s.there(); got != "" {
		t.Errorf("after the silence there are %s", got)
	}
}
