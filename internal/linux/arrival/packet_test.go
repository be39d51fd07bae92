package arrival

import (
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
)

var (
	held4, client4 = netip.MustParseAddr("10.0.0.101"), netip.MustParseAddr("10.0.0.9")
	held6, client6 = netip.MustParseAddr("fd00::101"), netip.MustParseAddr("fd00::9")
)

// ip puts a header before what a client sends.
func ip(protocol byte, from, to netip.Addr, rest ...byte) []byte {
	if to.Is4() {
		b := []byte{0x45, 0, 0, byte(ipv4Size + len(rest)), 0, 0, 0, 0, 64, protocol, 0, 0}
		return append(append(append(b, from.AsSlice()...), to.AsSlice()...), rest...)
	}
	b := []byte{0x60, 0, 0, 0, 0, byte(len(rest)), protocol, 64}
	return append(append(append(b, from.AsSlice()...), to.AsSlice()...), rest...)
}

func tcp(flags byte, data ...byte) []byte {
	return append([]byte{0, 80, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, flags, 0, 0, 0, 0, 0, 0}, data...)
}

const (
	flagRST  = 4
	flagPSH  = 8
	flagACK  = 16
	protoUDP = 17
)

func TestWhatCounts(t *testing.T) {
	fragment := ip(protocolTCP, client4, held4, 1, 2, 3)
	fragment[7] = 185
	for name, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"a datagram":                      {ip(protoUDP, client4, held4, 1, 2, 3, 4, 5, 6, 7, 8), true},
		"a datagram, IPv6":                {ip(protoUDP, client6, held6, 1, 2, 3, 4, 5, 6, 7, 8), true},
		"an echo request":                 {ip(1, client4, held4, 8, 0), true},
		"an echo request, IPv6":           {ip(protocolICMPv6, client6, held6, 128, 0), true},
		"a connection that begins":        {ip(protocolTCP, client4, held4, tcp(flagSYN)...), true},
		"one that begins, IPv6":           {ip(protocolTCP, client6, held6, tcp(flagSYN)...), true},
		"one that ends":                   {ip(protocolTCP, client4, held4, tcp(flagACK|flagFIN)...), true},
		"data on a connection":            {ip(protocolTCP, client4, held4, tcp(flagACK|flagPSH, 'x')...), true},
		"a later fragment":                {fragment, true},
		"the answer to a tickle":          {ip(protocolTCP, client4, held4, tcp(flagACK)...), false},
		"the answer to a tickle, IPv6":    {ip(protocolTCP, client6, held6, tcp(flagACK)...), false},
		"that of a client without it":     {ip(protocolTCP, client4, held4, tcp(flagRST)...), false},
		"a neighbour's question":          {ip(protocolICMPv6, client6, held6, 135, 0), false},
		"a neighbour's answer":            {ip(protocolICMPv6, client6, held6, 136, 0), false},
		"from itself":                     {ip(protoUDP, held4, held4, 1), false},
		"from nobody":                     {ip(protoUDP, netip.MustParseAddr("0.0.0.0"), held4, 1), false},
		"cut within the header":           {ip(protoUDP, client4, held4)[:19], false},
		"cut within the header, IPv6":     {ip(protoUDP, client6, held6)[:39], false},
		"cut within the segment":          {ip(protocolTCP, client4, held4, tcp(flagSYN)[:12]...), false},
		"a header shorter than it may be": {append([]byte{0x41}, ip(protoUDP, client4, held4)[1:]...), false},
		"no IP":                           {make([]byte, 60), false},
		"nothing":                         {nil, false},
	} {
		from, to, ok := Counts(c.packet)
		if ok != c.want {
			t.Errorf("%s: counts %t", name, ok)
		}
		if ok && (to != held4 && to != held6 || from != client4 && from != client6) {
			t.Errorf("%s: from %v to %v", name, from, to)
		}
	}
}

// The filter is what the kernel runs on every packet that comes in; here a machine in this process does.
func TestFilters(t *testing.T) {
	another := netip.MustParseAddr("fd00::1:101")
	for _, f := range []struct {
		family family
		wanted []netip.Addr
		other  []netip.Addr
	}{
		{four, []netip.Addr{held4, netip.MustParseAddr("10.0.0.102")}, []netip.Addr{client4, netip.MustParseAddr("10.0.1.101")}},
		{six, []netip.Addr{held6, another}, []netip.Addr{client6, netip.MustParseAddr("fd01::101"), netip.MustParseAddr("fd00:0:0:1::101"), netip.MustParseAddr("fd00::1:0:101")}},
	} {
		instructions, complete := bpf.Disassemble(f.family.filter(f.wanted))
		machine, err := bpf.NewVM(instructions)
		if err != nil || !complete {
			t.Fatal(err)
		}
		passes := func(to netip.Addr) bool {
			from := client4
			if to.Is6() {
				from = client6
			}
			n, err := machine.Run(ip(protoUDP, from, to, 1, 2))
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		}
		for _, a := range f.wanted {
			if !passes(a) {
				t.Errorf("%v does not pass", a)
			}
		}
		for _, a := range f.other {
			if passes(a) {
				t.Errorf("%v passes", a)
			}
		}
	}
}

// The longest filter fits what the kernel takes (BPF_MAXINSNS, 4096).
func TestTheLongestFilter(t *testing.T) {
	var wanted []netip.Addr
	for a := held6; len(wanted) < MaxAddresses; a = a.Next() {
		wanted = append(wanted, a)
	}
	if n := len(six.filter(wanted)); n > 4096 {
		t.Errorf("%d instructions", n)
	}
}

func FuzzCounts(f *testing.F) {
	f.Add(ip(protocolTCP, client4, held4, tcp(flagSYN)...))
	f.Add(ip(protocolTCP, client6, held6, tcp(flagACK)...))
	f.Add(ip(protoUDP, client6, held6))
	f.Fuzz(func(t *testing.T, packet []byte) {
		from, to, ok := Counts(packet)
		if ok && (!from.IsValid() || from == to || from.Is4() != to.Is4()) {
			t.Errorf("%x: from %v to %v", packet, from, to)
		}
	})
}
