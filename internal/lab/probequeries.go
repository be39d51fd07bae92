package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// dnsPort is where service addresses are asked (RFC 1035).
const dnsPort = 53

// dnsHeader is how long the header of a DNS message is (RFC 1035, section 4.1.1).
const dnsHeader = 12

// ask makes the prober ask service addresses too, for one name.
func (p *prober) ask(services []string, name string) error {
	p.services = make(map[netip.Addr]*service)
	for _, text := range services {
		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is4() {
			return fmt.Errorf("%q is not an IPv4 address", text)
		}
		p.services[address] = new(service)
	}
	if len(services) == 0 {
		return nil
	}
	var err error
	p.query, err = queryFor(name)
	return err
}

// queryFor is a query for the IPv4 addresses of a name (RFC 1035, sections 4.1 and 3.1), with the number 0.
func queryFor(name string) ([]byte, error) {
	query := append(make([]byte, 0, 512), 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) // one question
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if len(label) == 0 || len(label) > 63 {
			return nil, fmt.Errorf("service addresses cannot be asked for the name %q: give a --name such as cluster.lab", name)
		}
		query = append(append(query, byte(len(label))), label...)
	}
	return append(query, 0, 0, 1, 0, 1), nil // the root; type A; class IN
}

// numbered is a copy of a query with the number of its round.
func numbered(query []byte, round uint32) []byte {
	packet := append([]byte(nil), query...)
	binary.BigEndian.PutUint16(packet, uint16(round))
	return packet
}

// isGoodAnswer says whether a packet is an answer without error that has at least one record: one that names an address.
func isGoodAnswer(packet []byte) bool {
	return len(packet) > dnsHeader && packet[2]&0x80 != 0 && packet[3]&0x0f == 0 && binary.BigEndian.Uint16(packet[6:]) > 0
}

// answeredQuery takes in a packet from a service address. It says whether it was from one.
func (p *prober) answeredQuery(from netip.Addr, packet []byte, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.services[from]
	if one != nil && isGoodAnswer(packet) {
		p.received++
		one.silence.answered(at)
	}
	return one != nil
}

// speak makes every idle client say a line on the connection that it has.
func (p *prober) speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.watched {
		one.client.speak()
	}
}
