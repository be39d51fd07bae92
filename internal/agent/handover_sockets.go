package agent

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/holdfast/holdfast/internal/dns"
)

// layOut puts the descriptors of DNS into the order of handoverRooms.
func layOut(sockets []dns.Socket) (addresses []netip.Addr, further, fds []int) {
	for _, socket := range sockets {
		addresses = append(addresses, socket.Address)
		further = append(further, len(socket.UDP)-1)
		fds = append(fds, socket.UDP[0], socket.TCP)
	}
	for _, socket := range sockets {
		fds = append(fds, socket.UDP[1:]...)
	}
	return addresses, further, fds
}

// descriptorsOf is how many descriptors belong to the rooms; an error if what they say makes no sense.
func (r *handoverRooms) descriptorsOf() (int, error) {
	if len(r.DNSFurther) > 0 && len(r.DNSFurther) != len(r.DNS) {
		return 0, fmt.Errorf("it speaks of further sockets for DNS on %d of %d addresses", len(r.DNSFurther), len(r.DNS))
	}
	count := 2 * len(r.DNS)
	for i, more := range r.DNSFurther {
		if more < 0 || more > maxHandoverFiles {
			return 0, fmt.Errorf("it speaks of %d further sockets for DNS on %s", more, r.DNS[i])
		}
		count += more
	}
	return count, nil
}

// socketsOf is layOut the other way round. The number of descriptors is right.
func (r *handoverRooms) socketsOf(fds []int) (sockets []dns.Socket) {
	rest := fds[2*len(r.DNS):]
	for i, addr := range r.DNS {
		socket := dns.Socket{Address: addr, UDP: []int{fds[2*i]}, TCP: fds[2*i+1]}
		if len(r.DNSFurther) > 0 {
			more := r.DNSFurther[i]
			socket.UDP = append(socket.UDP, rest[:more]...)
			rest = rest[more:]
		}
		sockets = append(sockets, socket)
	}
	return sockets
}

// sendRooms sends the rooms with their descriptors, in as many messages as that takes. They stay the caller's.
func sendRooms(conn *net.UnixConn, rooms handoverRooms, fds []int) error {
	first := min(len(fds), maxHandoverFiles)
	err := sendHandover(conn, rooms, fds[:first]...)
	for rest := fds[first:]; err == nil && len(rest) > 0; {
		n := min(len(rest), maxHandoverFiles)
		err = sendHandover(conn, handoverWord{wordMore}, rest[:n]...)
		rest = rest[n:]
	}
	return err
}

// receiveRooms reads the rooms, and the descriptors that belong to them, which are the caller's also with an error.
func receiveRooms(conn *net.UnixConn, rooms *handoverRooms) ([]int, error) {
	fds, err := receiveHandover(conn, rooms)
	if err != nil {
		return fds, fmt.Errorf("hearing what it has: %w", err)
	}
	if rooms.Failed != "" {
		return fds, fmt.Errorf("it cannot hand over now: %s", rooms.Failed)
	}
	count, err := rooms.descriptorsOf()
	for err == nil && len(fds) < count && len(fds) > 0 && len(fds)%maxHandoverFiles == 0 {
		var more []int
		var word handoverWord
		if more, err = receiveHandover(conn, &word); err == nil && (word.Word != wordMore || len(more) == 0) {
			err = fmt.Errorf("it said %q, not %q with sockets", word.Word, wordMore)
		}
		fds = append(fds, more...)
	}
	if err == nil && len(fds) != count {
		err = fmt.Errorf("it handed over %d sockets for DNS on %d addresses, not %d", len(fds), len(rooms.DNS), count)
	}
	return fds, err
}
