package agent

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/dns"
)

// unixPair are the two ends of a Unix socket.
func unixPair(t *testing.T) (one, other *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if one, err = net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if other, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	return one, other
}

// TestSocketsOfNamesAreHandedOver: each address gets its own sockets back, however many there are, also more than one message carries; and
// from an agent that has one of UDP for each address and does not speak of more.
func TestSocketsOfNamesAreHandedOver(t *testing.T) {
	for _, c := range []struct {
		why                string
		addresses, sockets int
		silent             bool
	}{{"none", 0, 0, false}, {"one each", 3, 1, false}, {"two each", 3, 2, false}, {"more than a message carries", 40, 16, false}, {"of before", 3, 1, true}} {
		t.Run(c.why, func(t *testing.T) {
			file, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			descriptor := func() int {
				fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				return fd
			}
			var sockets []dns.Socket
			for i := range c.addresses {
				socket := dns.Socket{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), TCP: descriptor()}
				for range c.sockets {
					socket.UDP = append(socket.UDP, descriptor())
				}
				sockets = append(sockets, socket)
			}
			addresses, further, fds := layOut(sockets)
			rooms := handoverRooms{DNS: addresses, DNSFurther: further}
			if c.silent {
				rooms.DNSFurther = nil
			}
			from, to := unixPair(t)
			sent := make(chan error, 1)
			go func() { sent <- sendRooms(from, rooms, fds) }()
			var got handoverRooms
			received, err := receiveRooms(to, &got)
			defer closeDescriptors(received)
			if err != nil || len(received) != len(fds) {
				t.Fatalf("received %d of %d descriptors, %v", len(received), len(fds), err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			closeDescriptors(fds)
			seen := map[int]bool{}
			for i, socket := range got.socketsOf(received) {
				if socket.Address != sockets[i].Address || len(socket.UDP) != c.sockets {
					t.Errorf("address %d is %+v", i, socket)
				}
				for _, fd := range append(socket.UDP, socket.TCP) {
					seen[fd] = true
				}
			}
			if len(seen) != len(received) {
				t.Errorf("%d of %d descriptors belong to an address", len(seen), len(received))
			}
		})
	}
}
