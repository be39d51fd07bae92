package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread of its own in a new network namespace with the loopback up. The thread is never given
// back: it dies with the goroutine, and the namespace with it.
func inNamespace(t testing.TB, f func()) {
	t.Helper()
	var skip error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip = err
			return
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Errorf("setting up the loopback: %v", err)
			return
		}
		f()
	}()
	<-done
	if skip != nil {
		t.Skipf("a network namespace cannot be made here (%v); run as root to test against the kernel", skip)
	}
}

// listen and connect use sockets of the calling thread, because the net package may open its own elsewhere.
// They return the descriptor; everything closes when the test ends.
func listen(t testing.TB, family int, address netip.AddrPort, backlog int) int {
	t.Helper()
	fd := socket(t, family)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, sockaddr(family, address)); err != nil {
		t.Fatalf("binding %s: %v", address, err)
	}
	if err := unix.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

func connect(t testing.TB, family int, address netip.AddrPort) int {
	t.Helper()
	fd := socket(t, family)
	for {
		err := unix.Connect(fd, sockaddr(family, address))
		switch {
		case err == nil:
			return fd
		case errors.Is(err, unix.ENETUNREACH) && t.Context().Err() == nil:
			// The kernel inserts the route to a new IPv6 address from a work queue.
			time.Sleep(time.Millisecond)
		default:
			t.Fatalf("connecting to %s: %v", address, err)
		}
	}
}

func socket(t testing.TB, family int) int {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func sockaddr(family int, address netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())}
	}
	return &unix.SockaddrInet6{Addr: address.Addr().As16(), Port: int(address.Port())}
}

func TestKernelCountsByLocalAddressAndPort(t *testing.T) {
	inNamespace(t, func() {
		for _, address := range []string{"10.1.0.1/32", "10.1.0.2/32", "fd00::1/128"} {
			addAddress(t, address)
		}
		nfs := netip.MustParseAddrPort("10.1.0.1:2049")
		other := netip.MustParseAddrPort("10.1.0.2:2049")
		web := netip.MustParseAddrPort("10.1.0.1:80")
		six := netip.MustParseAddrPort("[fd00::1]:2049")
		mapped := netip.MustParseAddrPort("[::ffff:10.1.0.2]:443")
		for address, family := range map[netip.AddrPort]int{
			nfs: unix.AF_INET, other: unix.AF_INET, web: unix.AF_INET, six: unix.AF_INET6, mapped: unix.AF_INET6,
		} {
			listen(t, family, address, 16)
		}
		for range 3 {
			connect(t, unix.AF_INET, nfs)
		}
		connect(t, unix.AF_INET, other)
		connect(t, unix.AF_INET, web)
		connect(t, unix.AF_INET6, six)
		connect(t, unix.AF_INET6, six)
		connect(t, unix.AF_INET, netip.MustParseAddrPort("10.1.0.2:443")) // a v4 client of a v6 socket

		got, err := Established(2049, 443)
		if err != nil {
			t.Errorf("counting: %v", err)
			return
		}
		want := map[netip.AddrPort]int{nfs: 3, other: 1, six: 2, netip.MustParseAddrPort("10.1.0.2:443"): 1}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("connections on ports 443 and 2049 (-want +got):\n%s", diff)
		}
		all, err := Established()
		total := 0
		for _, n := range all {
			total += n
		}
		if err != nil || total != 16 { // both ends of eight connections
			t.Errorf("without a port: %d connections, %v; want 16", total, err)
		}
	})
}

func addAddress(t testing.TB, address string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	prefix.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(lo, prefix); err != nil {
		t.Fatalf("adding %s: %v", address, err)
	}
}

func TestKernelReportsNeitherListenersNorClosed(t *testing.T) {
	inNamespace(t, func() {
		address := netip.MustParseAddrPort("127.0.0.1:2049")
		listen(t, unix.AF_INET, address, 16)
		fd := connect(t, unix.AF_INET, address)
		if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil { // client in FIN_WAIT, server end in CLOSE_WAIT
			t.Error(err)
		}
		got, err := Established()
		if err != nil || len(got) != 0 {
			t.Errorf("a listener and a half-closed connection: %v, %v; want none", got, err)
		}
		var served []Connection
		if err := EachServed(func(c Connection) { served = append(served, c) }); err != nil || len(served) != 1 || served[0].Local != address {
			t.Errorf("the far end that closed its half waits for the rest: %v, %v", served, err)
		}
	})
}

// TestManyConnections makes the dump span many datagrams.
func TestManyConnections(t *testing.T) {
	const many = 1500
	inNamespace(t, func() {
		manyConnections(t, many)
		got, err := Established(2049)
		if n := got[netip.MustParseAddrPort("127.0.0.1:2049")]; err != nil || n != many {
			t.Errorf("%d connections, %v; want %d", n, err, many)
		}
	})
}

func manyConnections(t testing.TB, n int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil && limit.Cur < uint64(n)+100 {
		t.Skipf("only %d open files are allowed here, needed are %d", limit.Cur, n+100)
	}
	address := netip.MustParseAddrPort("127.0.0.1:2049")
	listener := listen(t, unix.AF_INET, address, 16)
	for range n {
		connect(t, unix.AF_INET, address)
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		// The accepted end stays established without its descriptor's being kept: closing it would send a FIN.
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
}

func BenchmarkEstablished(b *testing.B) {
	for _, n := range []int{100, 2000, 8000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			inNamespace(b, func() {
				manyConnections(b, n)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Established(2049); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// answer builds a netlink message.
func answer(kind uint16, body []byte) []byte {
	b := make([]byte, sizeHeader, aligned(sizeHeader+len(body)))
	binary.NativeEndian.PutUint32(b, uint32(sizeHeader+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	b = append(b, body...)
	return b[:cap(b)]
}

func errorCode(code unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(code)))
}

// inet builds a struct inet_diag_msg.
func inet(family, state uint8, local, remote string) []byte {
	b := make([]byte, sizeMessage)
	b[0], b[1] = family, state
	for at, text := range map[int]string{0: local, 1: remote} {
		address := netip.MustParseAddrPort(text)
		binary.BigEndian.PutUint16(b[4+2*at:], address.Port())
		copy(b[8+16*at:], address.Addr().AsSlice())
	}
	return b
}

// TestRequest is what `ss -tn state established` sends too: a dump of one family, of one state, and no extensions.
func TestRequest(t *testing.T) {
	got := requestStates(unix.AF_INET6, 1<<tcpEstablished)
	want := make([]byte, 72)
	binary.NativeEndian.PutUint32(want[0:], 72)                                 // nlmsg_len
	binary.NativeEndian.PutUint16(want[4:], 20)                                 // SOCK_DIAG_BY_FAMILY
	binary.NativeEndian.PutUint16(want[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP) // nlmsg_flags
	binary.NativeEndian.PutUint32(want[8:], 1)                                  // nlmsg_seq
	want[16], want[17] = unix.AF_INET6, unix.IPPROTO_TCP                        // sdiag_family, sdiag_protocol
	binary.NativeEndian.PutUint32(want[20:], 1<<1)                              // idiag_states: TCP_ESTABLISHED
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	four := answer(sockDiagByFamily, inet(unix.AF_INET, 1, "10.0.0.1:2049", "10.0.0.9:700"))
	mapped := answer(sockDiagByFamily, inet(unix.AF_INET6, 1, "[::ffff:10.0.0.1]:2049", "[::ffff:10.0.0.9]:701"))
	six := answer(sockDiagByFamily, inet(unix.AF_INET6, 1, "[fd00::1]:2049", "[fd00::9]:702"))
	connection := func(local, remote string) Connection {
		return Connection{netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote)}
	}
	for _, tc := range []struct {
		name     string
		datagram []byte
		want     []Connection
		done     bool
		err      error
	}{
		{name: "nothing"},
		{name: "v4", datagram: four, want: []Connection{connection("10.0.0.1:2049", "10.0.0.9:700")}},
		{name: "v4-mapped is v4", datagram: mapped, want: []Connection{connection("10.0.0.1:2049", "10.0.0.9:701")}},
		{name: "several and the end", datagram: append(append(append([]byte{}, four...), six...), answer(unix.NLMSG_DONE, make([]byte, 4))...),
			want: []Connection{connection("10.0.0.1:2049", "10.0.0.9:700"), connection("[fd00::1]:2049", "[fd00::9]:702")}, done: true},
		{name: "another state is skipped", datagram: answer(sockDiagByFamily, inet(unix.AF_INET, 8, "10.0.0.1:1", "10.0.0.2:2"))},
		{name: "another family is skipped", datagram: answer(sockDiagByFamily, inet(unix.AF_UNIX, 1, "10.0.0.1:1", "10.0.0.2:2"))},
		{name: "an acknowledgement is no error", datagram: answer(unix.NLMSG_ERROR, errorCode(0))},
		{name: "no such handler", datagram: answer(unix.NLMSG_ERROR, errorCode(unix.ENOENT)), err: unix.ENOENT},
		{name: "the end may carry an error", datagram: answer(unix.NLMSG_DONE, errorCode(unix.EINVAL)), done: true, err: unix.EINVAL},
		{name: "half a header", datagram: four[:10], err: errMalformed},
		{name: "length beyond the datagram", datagram: four[:40], err: errMalformed},
		{name: "a short socket", datagram: answer(sockDiagByFamily, make([]byte, sizeMessage-4)), err: errMalformed},
		{name: "length zero would never end", datagram: make([]byte, 32), err: errMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []Connection
			done, err := parse(tc.datagram, established(func(c Connection) { got = append(got, c) }))
			if done != tc.done || !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
				t.Errorf("done %v, error %v; want %v, %v", done, err, tc.done, tc.err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReceiveSaysNo plays kernels that misbehave.
func TestReceiveSaysNo(t *testing.T) {
	end := answer(unix.NLMSG_DONE, make([]byte, 4))
	interrupted := 0
	for _, tc := range []struct {
		name string
		read func([]byte) (int, error)
		want error
	}{
		{"silent", func([]byte) (int, error) { return 0, unix.EAGAIN }, os.ErrDeadlineExceeded},
		{"out of memory", func([]byte) (int, error) { return 0, unix.ENOBUFS }, unix.ENOBUFS},
		{"interrupted, then done", func(b []byte) (int, error) {
			if interrupted++; interrupted < 3 {
				return 0, unix.EINTR
			}
			return copy(b, end), nil
		}, nil},
		{"no diagnostics", func(b []byte) (int, error) { return copy(b, answer(unix.NLMSG_ERROR, errorCode(unix.ENOENT))), nil }, ErrUnsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := receive(tc.read, func(found) {}); !errors.Is(err, tc.want) || (err != nil) != (tc.want != nil) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
	if err := receive(func(b []byte) (int, error) { return len(b) + 1, nil }, nil); err == nil {
		t.Error("a truncated datagram was accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(answer(sockDiagByFamily, inet(unix.AF_INET, 1, "10.0.0.1:2049", "10.0.0.9:700")))
	f.Add(answer(sockDiagByFamily, inet(unix.AF_INET6, 1, "[fd00::1]:2049", "[fd00::9]:702")))
	f.Add(answer(unix.NLMSG_DONE, errorCode(unix.EINVAL)))
	f.Add(answer(unix.NLMSG_ERROR, nil))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		visited := 0
		_, err := parse(datagram, func(c found) {
			visited++
			if !c.Local.IsValid() || c.Local.Addr().Is4In6() || c.Remote.Addr().Is4In6() {
				t.Errorf("visited %+v", c)
			}
		})
		if visited > len(datagram)/(sizeHeader+sizeMessage) {
			t.Errorf("%d sockets in %d bytes", visited, len(datagram))
		}
		if err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
	})
}
