package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// ground is who has which address in the namespace. What is sent to forged sources leaves it by an interface that counts, and ends there.
type ground struct {
	service   netip.AddrPort
	honest    netip.Prefix
	forged    netip.Prefix // 65,536 of them, in 256 prefixes of the rate limit
	neighbour netip.Addr   // an honest one of the first of these prefixes
	crowd     netip.Prefix // those that connect
	ipHeader  int
}

// grounds are by family, 4 or 6.
var grounds = map[int]*ground{
	4: {service: netip.MustParseAddrPort("10.0.53.53:53"), honest: netip.MustParsePrefix("10.78.0.0/24"), forged: netip.MustParsePrefix("10.77.0.0/16"),
		neighbour: netip.MustParseAddr("10.77.0.200"), crowd: netip.MustParsePrefix("10.79.0.0/16"), ipHeader: 20},
	6: {service: netip.MustParseAddrPort("[fd53::53]:53"), honest: netip.MustParsePrefix("fd78::/64"), forged: netip.MustParsePrefix("fd77::/48"),
		neighbour: netip.MustParseAddr("fd77::c8"), crowd: netip.MustParsePrefix("fd79::/48"), ipHeader: 40},
}

// groundOf is that of a family.
func groundOf(family int) (*ground, error) {
	if g := grounds[family]; g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("there is no family %d; there are 4 and 6", family)
}

func (g *ground) six() bool { return g.service.Addr().Is6() }

func (g *ground) family() int {
	if g.six() {
		return 6
	}
	return 4
}

// within is the address with a high octet, of the prefix that the rate limit counts, and a low one, of the host in it.
func within(p netip.Prefix, high, low byte) netip.Addr {
	if p.Addr().Is4() {
		four := p.Addr().As4()
		four[2], four[3] = high, low
		return netip.AddrFrom4(four)
	}
	sixteen := p.Addr().As16()
	sixteen[6], sixteen[15] = high, low
	return netip.AddrFrom16(sixteen)
}

// source is one of the forged sources; not that of the honest neighbour.
func (g *ground) source(i int) netip.Addr {
	var octets [2]byte
	binary.BigEndian.PutUint16(octets[:], uint16(i))
	if a := within(g.forged, octets[0], octets[1]); a != g.neighbour {
		return a
	}
	return g.forged.Addr()
}

// crowdAddress is one of those that connect, each in a prefix of its own.
func (g *ground) crowdAddress(i int) netip.Addr { return within(g.crowd, byte(i), 1) }

// prepare gives the namespace its addresses. Forged sources are behind an interface that nobody is at the other end of.
func (g *ground) prepare() error {
	ip, whole := "", "/32 dev lo"
	if g.six() {
		ip, whole = "-6 ", "/128 dev lo nodad"
		if err := os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0); err != nil { // else no client has an address of a whole prefix
			return fmt.Errorf("preparing the namespace: %w", err)
		}
	}
	for _, line := range []string{
		"link set lo up",
		"link add " + forgedLink + " type veth peer name fire1",
		"link set fire0 addrgenmode none", "link set fire1 addrgenmode none",
		"link set fire0 arp off up", "link set fire1 arp off up",
		ip + "address add " + g.service.Addr().String() + whole,
		ip + "address add " + g.neighbour.String() + whole,
		ip + "route add local " + g.honest.String() + " dev lo",
		ip + "route add local " + g.crowd.String() + " dev lo",
		ip + "route add " + g.forged.String() + " dev " + forgedLink,
	} {
		if said, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("preparing the namespace: ip %s: %w: %s", line, err, said)
		}
	}
	return nil
}
