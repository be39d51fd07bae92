package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel is the kernel of one network namespace. Use Open; Close it when done.
type Kernel struct {
	space     *namespace
	handle    *netlink.Handle
	addresses *addressSocket
	answering time.Duration // how long a batch of added IPv6 addresses is waited for
}

// answerTimeout bounds the wait for one answer of the kernel. It answers within the request; more means that something
// is badly wrong, and is better reported than waited for.
const answerTimeout = 2 * time.Second

// Open opens the kernel of the network namespace of the calling thread. Reading needs no privilege; changing needs
// CAP_NET_ADMIN.
func Open() (*Kernel, error) {
	space, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		space.close()
		return nil, fmt.Errorf("opening a route netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(answerTimeout); err != nil {
		space.close()
		handle.Close()
		return nil, fmt.Errorf("setting the timeout of the route netlink socket: %w", err)
	}
	addresses, err := openAddressSocket()
	if err != nil {
		space.close()
		handle.Close()
		return nil, err
	}
	return &Kernel{space, handle, addresses, answeringLimit}, nil
}

// Close closes the sockets. No other method may be running or be called later.
func (k *Kernel) Close() {
	k.addresses.close()
	k.handle.Close()
	k.space.close()
}

// In calls f on a thread of the kernel's network namespace, for what opens sockets of its own.
func (k *Kernel) In(f func() error) error { return k.space.run(f) }

// Interfaces lists the interfaces in the order of their indexes.
func (k *Kernel) Interfaces() ([]Interface, error) {
	links, err := dump(k.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	list := make([]Interface, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		list = append(list, Interface{
			Name: a.Name, Index: a.Index, MAC: a.HardwareAddr, MTU: a.MTU,
			Up:       a.RawFlags&unix.IFF_UP != 0,
			Carrier:  hasCarrier(a.RawFlags),
			Ethernet: a.EncapType == "ether" && len(a.HardwareAddr) == 6,
		})
	}
	return list, nil
}

// hasCarrier judges the flags of a device. The kernel takes IFF_LOWER_UP away at once, and IFF_RUNNING up to a second
// later; it gives IFF_RUNNING last, when the device can send.
func hasCarrier(flags uint32) bool {
	const all = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	return flags&all == all
}

// Addresses lists the addresses of every interface, IPv4 first, in the kernel's order. IPv6 link-local addresses are
// left out: nobody moves them.
func (k *Kernel) Addresses() ([]Address, error) {
	interfaces, err := k.Interfaces()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(interfaces))
	for _, i := range interfaces {
		names[i.Index] = i.Name
	}
	var list []Address
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := dump(func() ([]netlink.Addr, error) { return k.handle.AddrList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("listing addresses: %w", err)
		}
		for _, f := range found {
			prefix, ok := toPrefix(f.IPNet)
			if !ok || prefix.Addr().IsLinkLocalUnicast() && prefix.Addr().Is6() {
				continue
			}
			list = append(list, Address{
				Interface: names[f.LinkIndex], Prefix: prefix,
				Valid: fromSeconds(f.ValidLft), Preferred: fromSeconds(f.PreferedLft),
			})
		}
	}
	return list, nil
}

// dumpTries is how often a list is read again when the kernel says that it changed under the reader.
const dumpTries = 5

// dump reads a list until it is consistent. The last, inconsistent one is an error: acting on it could remove or
// add what it happened to leave out.
func dump[T any](read func() ([]T, error)) ([]T, error) {
	var list []T
	var err error
	for range dumpTries {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, explain(err)
}

// Apply carries out the operations in order and returns one error for each, nil where it was done. A failure does not
// stop the rest. Runs of operations on addresses go to the kernel together, so that a thousand cost a few milliseconds.
func (k *Kernel) Apply(operations []Operation) []error {
	failures := make([]error, len(operations))
	for start := 0; start < len(operations); {
		end := start
		for end < len(operations) && isAddress(operations[end]) {
			end++
		}
		if end > start {
			k.applyAddresses(operations[start:end], failures[start:end])
			start = end
			continue
		}
		failures[start] = k.applyRouting(operations[start])
		start++
	}
	for i, err := range failures {
		if err != nil {
			failures[i] = fmt.Errorf("%v: %w", operations[i], err)
		}
	}
	return failures
}

func isAddress(o Operation) bool {
	_, ok := o.Object.(Address)
	return ok
}

// index finds an interface by name.
func (k *Kernel) index(name string) (int, error) {
	l, err := k.handle.LinkByName(name)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return 0, ErrNoInterface
		}
		return 0, explain(err)
	}
	return l.Attrs().Index, nil
}

// explain turns the kernel's error numbers into the errors of this package.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		return ErrExists
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOENT):
		return ErrMissing
	case errors.Is(err, unix.ENODEV):
		return ErrNoInterface
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: this needs CAP_NET_ADMIN", err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: IPv6 is disabled there (net.ipv6.conf.*.disable_ipv6)", err)
	}
	return err
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if addr = addr.Unmap(); !ok || bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// foreverSeconds is the kernel's INFINITY_LIFE_TIME.
const foreverSeconds = 0xffffffff

// fromSeconds reads a lifetime; the kernel counts whole seconds in 32 bits.
func fromSeconds(seconds int) time.Duration {
	if uint32(seconds) == foreverSeconds {
		return Forever
	}
	return time.Duration(uint32(seconds)) * time.Second
}

func toSeconds(d time.Duration) uint32 {
	if d >= foreverSeconds*time.Second {
		return foreverSeconds
	}
	return uint32(max(0, d) / time.Second)
}
