package dns

import (
	"net"
	"net/netip"
	"testing"
	"time"

	peer "github.com/miekg/dns"
)

// TestAnswersLeaveFromTheAddressAsked: a node has several service addresses of both families, and other addresses that the
// kernel would rather send from. A client that has one socket for all servers, as resolvers have, gets each answer from where
// it asked; it would throw others away (RFC 5452 section 9.1, RFC 2181 section 4.1).
func TestAnswersLeaveFromTheAddressAsked(t *testing.T) {
	inNamespace(t, steeredLink, func(t *testing.T) {
		zones := allSteered()
		startHolders(t, zones)
		for _, on := range []string{"10.20.0.1", "fd00:20::1"} {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(on), 0)))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for _, z := range zones {
				for _, held := range z.services {
					for _, service := range held {
						if service.Is4() == netip.MustParseAddr(on).Is4() {
							askedFrom(t, c, netip.AddrPortFrom(service, 53), z)
						}
					}
				}
			}
		}
	})
}

func askedFrom(t *testing.T, c *net.UDPConn, service netip.AddrPort, z *steered) {
	m := question(z.name()+".", qtypeOf(z))
	wire, err := m.Pack()
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := c.WriteToUDPAddrPort(wire, service); err != nil {
		t.Error(err)
		return
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil { // only reached by a fault
		t.Error(err)
		return
	}
	answer := make([]byte, 4096)
	n, from, err := c.ReadFromUDPAddrPort(answer)
	r := new(peer.Msg)
	if err == nil {
		err = r.Unpack(answer[:n])
	}
	if err != nil || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != service || r.Id != m.Id {
		t.Errorf("asked %v for %v: from %v, %v, %v", service, z, from, r, err)
	}
}
