package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// accept takes the one connection that waits at a listener.
func accept(t testing.TB, listener int) int {
	t.Helper()
	fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// readError is what a read that need not wait says.
func readError(fd int) error {
	_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
	return err
}

// Only connections of the picked address end, on both sides at once; others, and the listener itself, go on.
func TestDestroyResetsTheFarEnd(t *testing.T) {
	inNamespace(t, func() {
		for _, address := range []string{"10.1.0.1/32", "10.1.0.2/32", "fd00::1/128"} {
			addAddress(t, address)
		}
		goes := map[netip.Addr]bool{netip.MustParseAddr("10.1.0.1"): true, netip.MustParseAddr("fd00::1"): true, netip.MustParseAddr("10.1.0.9"): true}
		type pair struct{ client, server int }
		pairs := map[string]pair{}
		listeners := map[string]int{}
		for name, at := range map[string]struct {
			family, client  int
			address, called string
		}{
			"IPv4":            {unix.AF_INET, unix.AF_INET, "10.1.0.1:2049", "10.1.0.1:2049"},
			"IPv6":            {unix.AF_INET6, unix.AF_INET6, "[fd00::1]:2049", "[fd00::1]:2049"},
			"IPv4 in IPv6":    {unix.AF_INET6, unix.AF_INET, "[::ffff:10.1.0.1]:443", "10.1.0.1:443"},
			"another address": {unix.AF_INET, unix.AF_INET, "10.1.0.2:2049", "10.1.0.2:2049"},
		} {
			listeners[name] = listen(t, at.family, netip.MustParseAddrPort(at.address), 16)
			client := connectFrom(t, at.client, netip.MustParseAddrPort(at.called))
			pairs[name] = pair{client, accept(t, listeners[name])}
		}
		ended, err := Destroy(func(a netip.Addr) bool { return goes[a] })
		if errors.Is(err, ErrCannotDestroy) || errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil || len(ended) != 3 {
			t.Errorf("ended %v, %v; want three", ended, err)
		}
		for name, p := range pairs {
			wantClient, wantServer := error(unix.ECONNRESET), error(unix.ECONNABORTED)
			if name == "another address" {
				wantClient, wantServer = unix.EAGAIN, unix.EAGAIN
			}
			if client, server := readError(p.client), readError(p.server); !errors.Is(client, wantClient) || !errors.Is(server, wantServer) {
				t.Errorf("%s: the client reads %v and the server %v, want %v and %v", name, client, server, wantClient, wantServer)
			}
		}
		again := connectFrom(t, unix.AF_INET, netip.MustParseAddrPort("10.1.0.1:2049"))
		accept(t, listeners["IPv4"])
		if err := readError(again); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("a new connection to the listener reads %v", err)
		}
	})
}

// connectFrom connects from the loopback's own address, so that the far end is not on the address that goes.
func connectFrom(t testing.TB, family int, address netip.AddrPort) int {
	t.Helper()
	fd := socket(t, family)
	source := netip.MustParseAddrPort("127.0.0.1:0")
	if family == unix.AF_INET6 {
		source = netip.MustParseAddrPort("[::1]:0")
	}
	if err := unix.Bind(fd, sockaddr(family, source)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, sockaddr(family, address)); err != nil {
		t.Fatalf("connecting to %s: %v", address, err)
	}
	return fd
}

func TestDestroyRequest(t *testing.T) {
	socket := inet(unix.AF_INET, 1, "10.0.0.1:2049", "10.0.0.9:700")
	copy(socket[44:52], "cookie!!")
	f, understood, err := parseSocket(socket)
	if err != nil || !understood {
		t.Fatal(err)
	}
	want := make([]byte, 72)
	binary.NativeEndian.PutUint32(want[0:], 72)                                // nlmsg_len
	binary.NativeEndian.PutUint16(want[4:], 21)                                // SOCK_DESTROY
	binary.NativeEndian.PutUint16(want[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK) // nlmsg_flags
	binary.NativeEndian.PutUint32(want[8:], 1)                                 // nlmsg_seq
	want[16], want[17] = unix.AF_INET, unix.IPPROTO_TCP                        // sdiag_family, sdiag_protocol
	binary.NativeEndian.PutUint32(want[20:], 1<<1)                             // idiag_states
	copy(want[24:], socket[4:52])                                              // id, as the kernel gave it
	if diff := cmp.Diff(want, destroyRequest(f)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestParseAcknowledgement(t *testing.T) {
	for name, tc := range map[string]struct {
		datagram []byte
		want     error
	}{
		"done":             {answer(unix.NLMSG_ERROR, errorCode(0)), nil},
		"gone already":     {answer(unix.NLMSG_ERROR, errorCode(unix.ENOENT)), unix.ENOENT},
		"not built in":     {answer(unix.NLMSG_ERROR, errorCode(unix.EOPNOTSUPP)), unix.EOPNOTSUPP},
		"something else":   {answer(unix.NLMSG_DONE, errorCode(0)), errMalformed},
		"without a number": {answer(unix.NLMSG_ERROR, nil), errMalformed},
		"nothing":          {nil, errMalformed},
	} {
		if err := parseAcknowledgement(tc.datagram); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func FuzzParseAcknowledgement(f *testing.F) {
	f.Add(answer(unix.NLMSG_ERROR, errorCode(0)))
	f.Add(answer(unix.NLMSG_ERROR, errorCode(unix.EPERM)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := parseAcknowledgement(b); err == nil && len(b) < sizeHeader+4 {
			t.Errorf("%d bytes say that it was done", len(b))
		}
	})
}

// What has no permission is told what it lacks.
func TestDestroyWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may destroy sockets; run as an ordinary user to see the refusal")
	}
	_, err := Destroy(func(netip.Addr) bool { return true })
	if err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v, want %v", err, unix.EPERM)
	}
}
