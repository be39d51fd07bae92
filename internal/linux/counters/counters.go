// Package counters reads how many bytes have passed each network interface, and how fast each link is.
//
// Byte counters come from the kernel's link list (RTM_GETLINK with IFLA_STATS64), the speed from ETHTOOL_GSET
// (linux/ethtool.h), which unlike /sys belongs to the network namespace of the caller. Both need no privilege. Calls are
// safe for concurrent use and act in the network namespace of the calling thread; nothing is kept between calls.
//
// It computes no rates: a counter may start anew when an interface is made anew, which Index shows.
package counters

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is one reading of one interface.
type Interface struct {
	Name     string
	Index    int    // stays with the interface; a new one under an old name has another
	Received uint64 // bytes since the interface was made
	Sent     uint64 // bytes since the interface was made
	// BitsPerSecond is the speed that the driver states, 0 when it states none (a virtual network card, or a link
	// without carrier). A veth states 10 Gbit/s.
	BitsPerSecond uint64
}

// Read reads every interface but the loopback, in the kernel's order.
func Read() ([]Interface, error) {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	// An interrupted dump means that an interface came or went meanwhile; what was read of the others is right.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket to ask for link speeds: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var read []Interface
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.RawFlags&unix.IFF_LOOPBACK != 0 || attrs.Statistics == nil {
			continue
		}
		read = append(read, Interface{
			Name: attrs.Name, Index: attrs.Index,
			Received: attrs.Statistics.RxBytes, Sent: attrs.Statistics.TxBytes,
			BitsPerSecond: speed(fd, attrs.Name),
		})
	}
	return read, nil
}

// ethtoolCommand is struct ethtool_cmd of linux/ethtool.h.
type ethtoolCommand struct {
	cmd, supported, advertising          uint32
	speed                                uint16
	duplex, port, phyAddress             uint8
	transceiver, autoneg, mdioSupport    uint8
	maxTransmitPackets, maxReceivePacket uint32
	speedHigh                            uint16
	etpMDIX, etpMDIXControl              uint8
	lpAdvertising                        uint32
	reserved                             [2]uint32
}

// interfaceRequest is struct ifreq of linux/if.h with a pointer in its union.
type interfaceRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is at least this long on every architecture
}

const (
	ethtoolGetSettings = 0x1
	speedUnknown       = 0xffffffff // SPEED_UNKNOWN, as unsigned Mbit/s
	megabit            = 1_000_000
)

// speed asks the driver; it is 0 when the driver does not say.
func speed(fd int, name string) uint64 {
	command := ethtoolCommand{cmd: ethtoolGetSettings}
	request := interfaceRequest{data: unsafe.Pointer(&command)}
	if len(name) >= len(request.name) {
		return 0
	}
	copy(request.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	megabits := uint32(command.speedHigh)<<16 | uint32(command.speed)
	// A link without carrier states unknown, which 16-bit drivers write as 0xffff.
	if errno != 0 || megabits == speedUnknown || megabits == 0xffff {
		return 0
	}
	return uint64(megabits) * megabit
}
