package tickle

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func connection(local, remote string) Connection {
	return Connection{netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote)}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// The whole segments, field by field as RFC 9293 section 3.1 has them; the checksums were worked out by hand.
func TestSegments(t *testing.T) {
	for _, c := range []struct {
		name string
		Connection
		want string
	}{
		{"IPv4", connection("10.0.0.7:2049", "10.0.0.9:700"), `0801 02bc  00000000 00000000  50 10 0400  8d08 0000`},
		{"IPv6", connection("[fd00::7]:2049", "[fd00::9]:700"), `0801 02bc  00000000 00000000  50 10 0400  a706 0000`},
	} {
		got := segment(c.Connection)
		if diff := cmp.Diff(unhex(c.want), got[:]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// FuzzSegment checks the checksum as a receiver does: over the whole it gives zero.
func FuzzSegment(f *testing.F) {
	four, six := netip.MustParseAddr("10.0.0.7").As16(), netip.MustParseAddr("fd00::7").As16()
	f.Add(four[:], four[:], uint16(2049), uint16(700))
	f.Add(six[:], six[:], uint16(1), uint16(65535))
	f.Fuzz(func(t *testing.T, local, remote []byte, localPort, remotePort uint16) {
		from, ok := netip.AddrFromSlice(local)
		to, also := netip.AddrFromSlice(remote)
		c := Connection{netip.AddrPortFrom(from.Unmap(), localPort), netip.AddrPortFrom(to.Unmap(), remotePort)}
		if !ok || !also || check(c) != nil {
			return
		}
		b := segment(c)
		if got := checksum(c.Local.Addr(), c.Remote.Addr(), b[:]); got != 0 {
			t.Errorf("%+v: the checksum is off: %#x", c, got)
		}
	})
}
