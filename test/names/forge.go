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
	ipHeader  = 20
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
	rate := flags.Int("rate", 0, "packets a second at most; 0: as many as can be")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if os.Getenv(inNamespace) == "" {
		return errors.New("an attack stays in the namespace of `names fire`; run that")
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
			f = newCrowd(serviceAddress).run(a.crowd, length)
		} else {
			f, err = forge(&a, serviceAddress, length)
		}
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(f))
	}
	return fmt.Errorf("there is no attack %q", *name)
}

// forge sends packets with forged sources.
func forge(a *attack, to netip.AddrPort, length time.Duration) (f fired, err error) {
	runtime.LockOSThread()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
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
	name := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.Addr().As4()}
	var packets [forgedAtOnce][]byte
	var vectors [forgedAtOnce]unix.Iovec
	var messages [forgedAtOnce]message
	began := time.Now()
	for f.Sent < forgedLimit && time.Since(began) < length {
		if a.rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(f.Sent) * time.Second / time.Duration(a.rate))))
		}
		for i := range packets {
			source := sourceOf(random.IntN(a.sources))
			if a.syn {
				packets[i] = synPacket(packets[i][:0], netip.AddrPortFrom(source, uint16(1024+random.IntN(60000))), to, random.Uint32())
			} else {
				packets[i] = udpPacket(packets[i][:0], netip.AddrPortFrom(source, forgedPort), to, payloads[(f.Sent+i)%len(payloads)], uint16(f.Sent+i))
			}
			vectors[i].Base = &packets[i][0]
			vectors[i].SetLen(len(packets[i]))
			messages[i].header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&name)), Namelen: unix.SizeofSockaddrInet4, Iov: &vectors[i]}
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
				f.Octets -= ipHeader + udpHeader
			}
		}
		f.Sent += int(n)
	}
	return f, nil
}

// sourceOf is one of the forged sources; not that of the honest neighbour.
func sourceOf(i int) netip.Addr {
	four := forgedSources.Addr().As4()
	binary.BigEndian.PutUint16(four[2:], uint16(i))
	if a := netip.AddrFrom4(four); a != neighbourAddress {
		return a
	}
	return forgedSources.Addr()
}

// ipPacket begins a packet; the kernel fills in its length and its checksum (raw(7)).
func ipPacket(into []byte, protocol byte, from, to netip.Addr) []byte {
	into = append(into, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0)
	source, target := from.As4(), to.As4()
	return append(append(into, source[:]...), target[:]...)
}

// udpPacket is a datagram without a checksum, with an identifier in its payload.
func udpPacket(into []byte, from, to netip.AddrPort, payload []byte, id uint16) []byte {
	into = ipPacket(into, unix.IPPROTO_UDP, from.Addr(), to.Addr())
	into = binary.BigEndian.AppendUint16(into, from.Port())
	into = binary.BigEndian.AppendUint16(into, to.Port())
	into = binary.BigEndian.AppendUint16(into, uint16(udpHeader+len(payload)))
	into = append(append(into, 0, 0), payload...)
	if len(payload) >= 2 {
		binary.BigEndian.PutUint16(into[ipHeader+udpHeader:], id)
	}
	return into
}

// synPacket asks for a connection.
func synPacket(into []byte, from, to netip.AddrPort, sequence uint32) []byte {
	into = ipPacket(into, unix.IPPROTO_TCP, from.Addr(), to.Addr())
	into = binary.BigEndian.AppendUint16(into, from.Port())
	into = binary.BigEndian.AppendUint16(into, to.Port())
	into = binary.BigEndian.AppendUint32(into, sequence)
	into = append(into, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
	sum := uint32(unix.IPPROTO_TCP + tcpHeader)
	for i := 12; i < len(into); i += 2 { // both addresses, and the segment
		sum += uint32(binary.BigEndian.Uint16(into[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(into[ipHeader+16:], ^uint16(sum))
	return into
}
