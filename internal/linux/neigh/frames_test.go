package neigh

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/ndp"
	"pgregory.net/rapid"
)

var own = mac{0x02, 0, 0, 0, 0, 0x0a}

// unhex reads hex digits with blanks between them.
func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Public report 3 (kube-vip #80, #82): devices honour only one form of the gratuitous ARP. The whole frames, byte by
// byte as RFC 826 has them.
func TestReport3BothForms(t *testing.T) {
	address := netip.MustParseAddr("10.0.0.7")
	want := [][]byte{
		unhex(`ffffffffffff 02000000000a 0806  0001 0800 06 04 0001  02000000000a 0a000007  000000000000 0a000007`),
		unhex(`ffffffffffff 02000000000a 0806  0001 0800 06 04 0002  02000000000a 0a000007  02000000000a 0a000007`),
	}
	if diff := cmp.Diff(want, announcements(address, own)); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
}

func TestARPProbeFrame(t *testing.T) {
	want := unhex(`ffffffffffff 02000000000a 0806  0001 0800 06 04 0001  02000000000a 00000000  000000000000 0a000007`)
	if diff := cmp.Diff(want, arpProbe(netip.MustParseAddr("10.0.0.7"), own)); diff != "" {
		t.Errorf("frame differs (-want +got):\n%s", diff)
	}
}

// The advertisement as another implementation reads it.
func TestReport3Advertisement(t *testing.T) {
	address := netip.MustParseAddr("fd00::7")
	frames := announcements(address, own)
	if len(frames) != 1 {
		t.Fatalf("%d frames, want one", len(frames))
	}
	wantHead := unhex(`333300000001 02000000000a 86dd 60000000 0020 3a ff
		fd000000000000000000000000000007 ff020000000000000000000000000001`)
	if diff := cmp.Diff(wantHead, frames[0][:len(wantHead)]); diff != "" {
		t.Errorf("headers differ (-want +got):\n%s", diff)
	}
	message, err := ndp.ParseMessage(frames[0][len(wantHead):])
	if err != nil {
		t.Fatal(err)
	}
	want := &ndp.NeighborAdvertisement{
		Override: true, TargetAddress: address,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: own[:]}},
	}
	if diff := cmp.Diff(ndp.Message(want), message, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("message differs (-want +got):\n%s", diff)
	}
}

func TestNeighbourSolicitationProbe(t *testing.T) {
	frame := nsProbe(netip.MustParseAddr("fd00::12:3456"), own)
	want := unhex(`3333ff123456 02000000000a 86dd 60000000 0018 3a ff
		00000000000000000000000000000000 ff0200000000000000000001ff123456
		87 00 dcb7 00000000 fd000000000000000000000000123456`)
	sum := checksum(netip.IPv6Unspecified(), netip.MustParseAddr("ff02::1:ff12:3456"), frame[ethernetSize+ipv6Size:])
	if sum != 0 {
		t.Errorf("the checksum does not hold: %#x", sum)
	}
	copy(want[ethernetSize+ipv6Size+2:], frame[ethernetSize+ipv6Size+2:][:2]) // checked just now
	if diff := cmp.Diff(want, frame); diff != "" {
		t.Errorf("frame differs (-want +got):\n%s", diff)
	}
}

func TestARPRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.Byte(), 22, 22).Draw(t, "bytes")
		want := arpPacket{
			uint16(bytes[0])<<8 | uint16(bytes[1]), mac(bytes[2:8]), netip.AddrFrom4([4]byte(bytes[8:12])),
			mac(bytes[12:18]), netip.AddrFrom4([4]byte(bytes[18:22])),
		}
		got, err := parseARP(append(want.append(nil), 0, 0, 0)) // padding
		if err != nil || got != want {
			t.Errorf("got %+v (%v), want %+v", got, err, want)
		}
	})
}

// What is no claim: each case is a good announcement with one thing wrong.
func TestNoClaims(t *testing.T) {
	arp := arpAnnouncements(netip.MustParseAddr("10.0.0.7"), own)[0]
	na := naAnnouncement(netip.MustParseAddr("fd00::7"), own)
	if _, _, ok := arpClaim(arp); !ok {
		t.Fatal("a good ARP announcement is no claim")
	}
	if _, _, ok := naClaim(na); !ok {
		t.Fatal("a good advertisement is no claim")
	}
	change := func(frame []byte, at int, value byte) []byte {
		changed := append([]byte(nil), frame...)
		changed[at] = value
		return changed
	}
	for name, frame := range map[string][]byte{
		"cut short":         arp[:41],
		"no frame":          arp[:5],
		"a probe":           arpProbe(netip.MustParseAddr("10.0.0.7"), own),
		"not IPv4":          change(arp, ethernetSize+2, 0x86),
		"InfiniBand":        change(arp, ethernetSize+1, 32),
		"an inverse answer": change(arp, ethernetSize+7, 9),
	} {
		if address, _, ok := arpClaim(frame); ok {
			t.Errorf("%s: taken for a claim to %v", name, address)
		}
	}
	body := ethernetSize + ipv6Size
	for name, frame := range map[string][]byte{
		"cut short":           na[:body+23],
		"length beyond frame": change(na, ethernetSize+5, 40),
		"forwarded":           change(na, ethernetSize+7, 64),
		"a solicitation":      change(na, body, solicitation),
		"wrong checksum":      change(na, body+2, na[body+2]^1),
		"not IPv6":            change(na, ethernetSize, 0x45),
		"broken option":       change(na, body+messageSize+1, 0),
	} {
		if address, _, ok := naClaim(frame); ok {
			t.Errorf("%s: taken for a claim to %v", name, address)
		}
	}
}

// An advertisement without the option names the MAC that sent it.
func TestAdvertisementWithoutOption(t *testing.T) {
	address := netip.MustParseAddr("fd00::7")
	a := advertisement{target: address, flags: flagSolicited, source: address, receiver: netip.MustParseAddr("fd00::1")}
	got, from, ok := naClaim(a.append(appendEthernet(nil, allNodesMAC, own, typeIPv6)))
	if !ok || got != address || from != own {
		t.Errorf("claim is %v at %x (%v), want %v at %x", got, from, ok, address, own)
	}
}

func FuzzARP(f *testing.F) {
	for _, frame := range arpAnnouncements(netip.MustParseAddr("10.0.0.7"), own) {
		f.Add(frame[ethernetSize:])
	}
	f.Add(arpProbe(netip.MustParseAddr("10.0.0.7"), own)[ethernetSize:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseARP(b)
		if err != nil {
			return
		}
		if diff := cmp.Diff(b[:arpSize], p.append(nil)); diff != "" {
			t.Errorf("written back it differs:\n%s", diff)
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	address := netip.MustParseAddr("fd00::7")
	f.Add(naAnnouncement(address, own)[ethernetSize:])
	f.Add(nsProbe(address, own)[ethernetSize:])
	f.Add(advertisement{target: address, flags: flagSolicited, source: address, receiver: address}.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAdvertisement(b)
		if err != nil {
			return
		}
		again, err := parseAdvertisement(a.append(nil))
		if err != nil {
			t.Fatalf("written back it does not parse: %v", err)
		}
		a.flags, again.flags = a.flags&0xe0000000, again.flags&0xe0000000
		if a != again {
			t.Errorf("written back it is %+v, want %+v", again, a)
		}
	})
}
