package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of headers without options.
const (
	udpHeader = 8
	tcpHeader = 20
)

// forgedAtOnce is how many packets one call sends; forgedLimit how many one attack does.
const (
	forgedAtOnce = 32
	forgedLimit  = 3_000_000
	forgedPort   = 5353
	longestFire  = 10 * time.Second
)

// fired is what an attacker did.
type fired struct {
	Sent      int `json:"sent"`      // datagrams, segments or connections
	Octets    int `json:"octets"`    // of their payload; of segments with the headers
	Connected int `json:"connected"` // the most that were open at once
}

// attackCommand is one attacker.
func attackCommand(arguments []string) error {
	flags := flag.NewFlagSet("attack", flag.ExitOnError)
	name := flags.String("name", "", "which attack")
	seconds := flags.Float64("seconds", 3, "how long")
	family := flags.Int("family", 4, "of IP, 4 or 6")
	rate := flags.Int("rate", 0, "packets a second at most; 0: as many as can be")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if os.Getenv(inNamespace) == "" {
		return errors.New("an attack stays in the namespace of `names fire`; run that")
	}
	g, err := groundOf(*family)
	if err != nil {
		return err
	}
	length := min(time.Duration(*seconds*float64(time.Second)), longestFire)
	for _, a := range attacks {
		if a.name != *name {
			continue
		}
		if a.rate == 0 || *rate > 0 && *rate < a.rate {
			a.rate = *rate
		}
		var f fired
		var err error
		if a.crowd != nil {
			f = newCrowd(g).run(a.crowd, length)
		} else {
			f, err = forge(&a, g, length)
		}
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(f))
	}
	return fmt.Errorf("there is no attack %q", *name)
}

// forge sends packets with forged sources.
func forge(a *attack, g *ground, length time.Duration) (f fired, err error) {
	runtime.LockOSThread()
	to, name := g.service, socketName(g.service.Addr())
	fd, err := unix.Socket(int(binary.NativeEndian.Uint16(name)), unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return f, fmt.Errorf("opening a raw socket (as root): %w", err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	random := rand.New(rand.NewPCG(1, 2))
	var payloads [][]byte
	if a.payloads != nil {
		payloads = a.payloads(random)
	}
	var packets [forgedAtOnce][]byte
	var vectors [forgedAtOnce]unix.Iovec
	var messages [forgedAtOnce]message
	began := time.Now()
	for f.Sent < forgedLimit && time.Since(began) < length {
		if a.rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(f.Sent) * time.Second / time.Duration(a.rate))))
		}
		for i := range packets {
			source := g.source(random.IntN(a.sources))
			if a.syn {
				packets[i] = synPacket(packets[i][:0], netip.AddrPortFrom(source, uint16(1024+random.IntN(60000))), to, random.Uint32())
			} else {
				packets[i] = udpPacket(packets[i][:0], netip.AddrPortFrom(source, forgedPort), to, payloads[(f.Sent+i)%len(payloads)], uint16(f.Sent+i))
			}
			vectors[i].Base = &packets[i][0]
			vectors[i].SetLen(len(packets[i]))
			messages[i].header = unix.Msghdr{Name: &name[0], Namelen: uint32(len(name)), Iov: &vectors[i]}
			messages[i].header.SetIovlen(1)
		}
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&messages[0])), forgedAtOnce, 0, 0, 0)
		if errno != 0 && errno != unix.EINTR && errno != unix.ENOBUFS {
			return f, fmt.Errorf("sending forged packets: %w", errno)
		}
		if errno != 0 {
			continue
		}
		for i := range int(n) {
			f.Octets += len(packets[i])
			if !a.syn {
				f.Octets -= g.ipHeader + udpHeader
			}
		}
		f.Sent += int(n)
	}
	return f, nil
}

// socketName is an address as the kernel reads it; it begins with the family.
func socketName(a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(append(binary.NativeEndian.AppendUint16(nil, unix.AF_INET), 0, 0), append(four[:], make([]byte, 8)...)...)
	}
	sixteen := a.As16()
	return append(append(binary.NativeEndian.AppendUint16(nil, unix.AF_INET6), make([]byte, 6)...), append(sixteen[:], make([]byte, 4)...)...)
}

// ipPacket begins a packet with so long a payload. Of IPv4 the kernel fills in the checksum (raw(7)).
func ipPacket(into []byte, protocol byte, from, to netip.Addr, length int) []byte {
	if from.Is6() {
		into = append(into, 6<<4, 0, 0, 0)
		into = append(binary.BigEndian.AppendUint16(into, uint16(length)), protocol, 64)
		source, target := from.As16(), to.As16()
		return append(append(into, source[:]...), target[:]...)
	}
	into = append(into, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0)
	source, target := from.As4(), to.As4()
	return append(append(into, source[:]...), target[:]...)
}

// checksum is that of a segment or datagram behind both addresses, which the packet has from an offset on.
func checksum(packet []byte, addresses int, protocol byte, length int) uint16 {
	sum := uint32(protocol) + uint32(length)
	for ; addresses+1 < len(packet); addresses += 2 {
		sum += uint32(packet[addresses])<<8 | uint32(packet[addresses+1])
	}
	if addresses < len(packet) {
		sum += uint32(packet[addresses]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Where the addresses begin in a header.
const (
	addresses4 = 12
	addresses6 = 8
)

// udpPacket is a datagram with an identifier in its payload; over IPv4 without a checksum, which IPv6 wants (RFC 8200 section 8.1).
func udpPacket(into []byte, from, to netip.AddrPort, payload []byte, id uint16) []byte {
	length := udpHeader + len(payload)
	into = ipPacket(into, unix.IPPROTO_UDP, from.Addr(), to.Addr(), length)
	header := len(into)
	into = binary.BigEndian.AppendUint16(into, from.Port())
	into = binary.BigEndian.AppendUint16(into, to.Port())
	into = binary.BigEndian.AppendUint16(into, uint16(length))
	into = append(append(into, 0, 0), payload...)
	if len(payload) >= 2 {
		binary.BigEndian.PutUint16(into[header+udpHeader:], id)
	}
	if from.Addr().Is6() {
		sum := checksum(into, addresses6, unix.IPPROTO_UDP, length)
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(into[header+6:], sum)
	}
	return into
}

// synPacket asks for a connection.
func synPacket(into []byte, from, to netip.AddrPort, sequence uint32) []byte {
	into = ipPacket(into, unix.IPPROTO_TCP, from.Addr(), to.Addr(), tcpHeader)
	header, addresses := len(into), addresses4
	if from.Addr().Is6() {
		addresses = addresses6
	}
	into = binary.BigEndian.AppendUint16(into, from.Port())
	into = binary.BigEndian.AppendUint16(into, to.Port())
	into = binary.BigEndian.AppendUint32(into, sequence)
	into = append(into, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(into[header+16:], checksum(into, addresses, unix.IPPROTO_TCP, tcpHeader))
	return into
}
