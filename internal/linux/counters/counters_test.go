package counters

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread of its own in a new network namespace. The thread is never given back: it dies with
// the goroutine, and the namespace with it.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	var skip error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if skip = unix.Unshare(unix.CLONE_NEWNET); skip == nil {
			f()
		}
	}()
	<-done
	if skip != nil {
		t.Skipf("a network namespace cannot be made here (%v); run as root to test against the kernel", skip)
	}
}

// must ends the test's goroutine on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestKernelReadsOwnNamespaceOnly(t *testing.T) {
	inNamespace(t, func() {
		got, err := Read()
		if err != nil || len(got) != 0 {
			t.Errorf("a new namespace, with nothing but a loopback: %+v, %v; want none", got, err)
		}
	})
}

func TestKernelCountsBytesAndStatesSpeed(t *testing.T) {
	inNamespace(t, func() {
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ext-1"}, PeerName: "peer"}))
		must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "mute"}}))
		for _, name := range []string{"ext-1", "peer", "mute"} {
			link, err := netlink.LinkByName(name)
			must(t, err)
			must(t, netlink.LinkSetUp(link))
		}
		before := byName(t)
		const frames, size = 10, 1000
		send(t, "ext-1", frames, size)
		after := byName(t)

		// The kernel may send frames of its own meanwhile (IPv6 announces itself), so there is no upper bound.
		if sent := after["ext-1"].Sent - before["ext-1"].Sent; sent < frames*size {
			t.Errorf("%d bytes sent by ext-1, want at least %d", sent, frames*size)
		}
		if received := after["peer"].Received - before["peer"].Received; received < frames*size {
			t.Errorf("%d bytes received by its peer, want at least %d", received, frames*size)
		}
		speeds := map[string]uint64{}
		for name, read := range after {
			speeds[name] = read.BitsPerSecond
		}
		if diff := cmp.Diff(map[string]uint64{"ext-1": 10_000_000_000, "peer": 10_000_000_000, "mute": 0}, speeds); diff != "" {
			t.Errorf("speeds (-want +got):\n%s", diff)
		}
	})
}

func TestKernelShowsThatAnInterfaceWasMadeAnew(t *testing.T) {
	inNamespace(t, func() {
		add := func() int {
			must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "ext-1"}, PeerName: "peer"}))
			return byName(t)["ext-1"].Index
		}
		first := add()
		link, err := netlink.LinkByName("ext-1")
		must(t, err)
		must(t, netlink.LinkDel(link))
		if second := add(); second == first {
			t.Errorf("index %d both times", first)
		}
	})
}

func TestSpeedOfNoInterface(t *testing.T) {
	for _, name := range []string{"", "no-such-one", "a-name-that-is-longer-than-any-interface"} {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		if got := speed(fd, name); got != 0 {
			t.Errorf("speed of %q: %d, want 0", name, got)
		}
		must(t, unix.Close(fd))
	}
}

func byName(t *testing.T) map[string]Interface {
	t.Helper()
	read, err := Read()
	must(t, err)
	names := map[string]Interface{}
	for _, one := range read {
		names[one.Name] = one
	}
	return names
}

// send puts frames of an experimental ethertype (IEEE 802, 0x88b5) on the wire.
func send(t *testing.T, name string, frames, size int) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	must(t, err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer func() { _ = unix.Close(fd) }()
	frame := make([]byte, size)
	copy(frame, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	for range frames {
		must(t, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}))
	}
}
