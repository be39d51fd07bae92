package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// stampArrivals makes the kernel note when packets come, so that a reader that is late measures well.
func stampArrivals(socket syscall.Conn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if failed != nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("asking for times of arrival: %w", err)
	}
	return nil
}

// packetsAtOnce is how many packets are read at once.
const packetsAtOnce = 64

// readPackets hands on what comes, until the socket is closed.
func readPackets(socket *ipv4.PacketConn, answered func(from netip.Addr, packet []byte, at time.Time)) {
	messages := make([]ipv4.Message, packetsAtOnce)
	for i := range messages {
		messages[i].Buffers, messages[i].OOB = [][]byte{make([]byte, 256)}, make([]byte, 128)
	}
	for {
		n, err := socket.ReadBatch(messages, 0)
		if err != nil {
			return
		}
		now := time.Now()
		for _, m := range messages[:n] {
			if from, ok := addressOf(m.Addr); ok {
				answered(from, m.Buffers[0][:m.N], arrival(m.OOB[:m.NN], now))
			}
		}
	}
}

func addressOf(from net.Addr) (netip.Addr, bool) {
	var ip net.IP
	switch from := from.(type) {
	case *net.IPAddr:
		ip = from.IP
	case *net.UDPAddr:
		ip = from.IP
	}
	address, ok := netip.AddrFromSlice(ip)
	return address.Unmap(), ok
}

// arrival is when a packet came, as the kernel noted beside it (SO_TIMESTAMPNS, socket(7)); now, if it did not, or if its clock was
// set meanwhile.
func arrival(beside []byte, now time.Time) time.Time {
	messages, err := unix.ParseSocketControlMessage(beside)
	if err != nil {
		return now
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			at := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			if late := now.Sub(at); late >= 0 && late < time.Second {
				return now.Add(-late)
			}
		}
	}
	return now
}

// sendAll sends packets, as many at once as the kernel takes. One that has no way is the same as one without an answer.
func sendAll(socket *ipv4.PacketConn, messages []ipv4.Message) {
	for len(messages) > 0 {
		n, err := socket.WriteBatch(messages, 0)
		if err != nil || n <= 0 {
			n = 1 // the first could not be sent
		}
		messages = messages[n:]
	}
}

// echoRequest is an ICMP echo request without data (RFC 792), with its checksum (RFC 1071).
func echoRequest(round uint32) []byte {
	identifier, number := uint16(os.Getpid()), uint16(round)
	packet := make([]byte, 8)
	packet[0] = 8
	binary.BigEndian.PutUint16(packet[4:], identifier)
	binary.BigEndian.PutUint16(packet[6:], number)
	sum := uint32(packet[0])<<8 + uint32(identifier) + uint32(number)
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(packet[2:], ^uint16(sum))
	return packet
}

// isEchoReply says whether a packet, with its IPv4 header (RFC 791), is a reply to a request of this process.
func isEchoReply(packet []byte) bool {
	if len(packet) == 0 {
		return false
	}
	header := int(packet[0]&0x0f) * 4
	if packet[0]>>4 != 4 || len(packet) < header+8 {
		return false
	}
	reply := packet[header:]
	return reply[0] == 0 && binary.BigEndian.Uint16(reply[4:]) == uint16(os.Getpid())
}

// datagramMark begins each datagram.
const datagramMark = "holdfast lab probe "

func datagramOf(round uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte(datagramMark), round)
}

// numberOf is the number of a datagram.
func numberOf(packet []byte) (number uint32, ok bool) {
	if len(packet) != len(datagramMark)+4 || string(packet[:len(datagramMark)]) != datagramMark {
		return 0, false
	}
	return binary.BigEndian.Uint32(packet[len(datagramMark):]), true
}
