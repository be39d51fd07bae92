// Package neigh tells the link where an address is, and hears who else says that it is there: ARP for IPv4 (RFC 826,
// RFC 5227), neighbour discovery for IPv6 (RFC 4861), in raw Ethernet frames.
//
// It guarantees that what it sends names the MAC that the device has at that moment, and that only well-formed frames
// become claims. An Announcer is safe for concurrent use; it keeps one socket for each interface that it announced on,
// and one or two for each running Watch or Probe.
//
// It does not decide what is held, when to announce, or whether a claim is rightful, and it refuses devices that do
// not speak Ethernet (RFC 4391 InfiniBand among them).
package neigh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Claim is another host's word that an address is at its MAC.
type Claim struct {
	Address   netip.Addr
	MAC       net.HardwareAddr
	Interface string // where it was heard
}

// Errors that callers tell apart with errors.Is.
var (
	ErrNoInterface = errors.New("no such interface")
	ErrNotUnicast  = errors.New("is not an address that a host can hold")
	ErrNotEthernet = errors.New("is not an Ethernet device, so addresses cannot be announced on it; " +
		"use an Ethernet, bond, bridge or VLAN interface")
)

// Announcer sends and hears announcements in one network namespace. Use Open; Close it when done.
type Announcer struct {
	in     func(func() error) error
	handle *netlink.Handle
	mu     sync.Mutex
	ports  map[string]port
}

// port is an open socket for sending on one interface.
type port struct {
	index int
	conn  *packet.Conn
}

// writeTimeout bounds the wait for room in the device's queue, for one call of Announce.
const writeTimeout = 20 * time.Millisecond

// Open returns an Announcer. in calls a function on a thread of the network namespace to work in; nil means that the
// process lives in one namespace. Everything but Open needs CAP_NET_RAW.
func Open(in func(func() error) error) (*Announcer, error) {
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	a := &Announcer{in: in, ports: map[string]port{}}
	err := in(func() (err error) {
		a.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a route netlink socket: %w", err)
	}
	return a, nil
}

// Close closes the sockets. No other method may be running or be called later.
func (a *Announcer) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, p := range a.ports {
		_ = p.conn.Close()
		delete(a.ports, name)
	}
	a.handle.Close()
}

// Announce sends for each address what tells the link that it is at the interface: ARP in the request and in the reply
// form, or an unsolicited neighbour advertisement with override. The MAC is read at each call. A frame that cannot be
// sent does not keep back the others; the error names the first failure and counts all.
func (a *Announcer) Announce(iface string, addresses []netip.Addr) error {
	if err := checkAddresses(addresses); err != nil {
		return fmt.Errorf("announcing on %s: %w", iface, err)
	}
	device, own, err := a.device(iface)
	if err != nil {
		return fmt.Errorf("announcing on %s: %w", iface, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	conn, err := a.port(device)
	if err != nil {
		return fmt.Errorf("announcing on %s: %w", iface, err)
	}
	var first error
	failed, sent := 0, 0
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	for _, address := range addresses {
		for _, frame := range announcements(address, own) {
			sent++
			err := send(conn, frame)
			if err != nil && failed == 0 {
				first = err
			}
			if err != nil {
				failed++
			}
		}
	}
	if failed > 0 {
		a.drop(iface)
		return fmt.Errorf("announcing on %s: %d of %d frames not sent: %w", iface, failed, sent, first)
	}
	return nil
}

// checkAddresses refuses what no host can hold.
func checkAddresses(addresses []netip.Addr) error {
	for _, a := range addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%v %w", a, ErrNotUnicast)
		}
	}
	return nil
}

func announcements(address netip.Addr, own mac) [][]byte {
	if address.Is4() {
		return arpAnnouncements(address, own)
	}
	return [][]byte{naAnnouncement(address, own)}
}

func send(conn *packet.Conn, frame []byte) error {
	_, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: net.HardwareAddr(frame[:6])})
	return err
}

// device finds an interface and its current MAC.
func (a *Announcer) device(name string) (*net.Interface, mac, error) {
	l, err := a.handle.LinkByName(name)
	if err != nil {
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			return nil, mac{}, ErrNoInterface
		}
		return nil, mac{}, fmt.Errorf("reading the interface: %w", err)
	}
	attrs := l.Attrs()
	if attrs.EncapType != "ether" || len(attrs.HardwareAddr) != len(mac{}) {
		return nil, mac{}, fmt.Errorf("%s (%s) %w", name, attrs.EncapType, ErrNotEthernet)
	}
	device := &net.Interface{Name: name, Index: attrs.Index, MTU: attrs.MTU, HardwareAddr: attrs.HardwareAddr}
	return device, mac(attrs.HardwareAddr), nil
}

// port returns the socket for sending on a device. One that belongs to an earlier device of that name is replaced.
// a.mu is held.
func (a *Announcer) port(device *net.Interface) (*packet.Conn, error) {
	if p, open := a.ports[device.Name]; open && p.index == device.Index {
		return p.conn, nil
	}
	a.drop(device.Name)
	conn, err := a.listen(device, 0, nil) // protocol 0: it receives nothing
	if err != nil {
		return nil, err
	}
	a.ports[device.Name] = port{device.Index, conn}
	return conn, nil
}

// drop closes the socket for sending on an interface, if there is one. a.mu is held.
func (a *Announcer) drop(iface string) {
	if p, open := a.ports[iface]; open {
		_ = p.conn.Close()
		delete(a.ports, iface)
	}
}

func (a *Announcer) listen(device *net.Interface, protocol int, config *packet.Config) (*packet.Conn, error) {
	var conn *packet.Conn
	err := a.in(func() (err error) {
		conn, err = packet.Listen(device, packet.Raw, protocol, config)
		return err
	})
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("opening a packet socket: %w: this needs CAP_NET_RAW", err)
	case err != nil:
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	return conn, nil
}

// Probe asks whether anybody on the link has one of the addresses, waits for wait, and returns what answered. It does
// not claim the addresses (RFC 5227 section 2.1, RFC 4862 section 5.4). It asks twice, so that one lost frame does not
// matter.
func (a *Announcer) Probe(ctx context.Context, iface string, addresses []netip.Addr, wait time.Duration) ([]Claim, error) {
	if err := checkAddresses(addresses); err != nil {
		return nil, fmt.Errorf("probing on %s: %w", iface, err)
	}
	_, own, err := a.device(iface)
	if err != nil {
		return nil, fmt.Errorf("probing on %s: %w", iface, err)
	}
	asked := make(map[netip.Addr]bool, len(addresses))
	for _, address := range addresses {
		asked[address] = true
	}
	var mu sync.Mutex
	answers := map[netip.Addr]Claim{}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	hear, err := a.open(iface)
	if err != nil {
		return nil, fmt.Errorf("probing on %s: %w", iface, err)
	}
	heard := make(chan error, 1)
	go func() {
		heard <- hear.run(listening, func(c Claim) {
			mu.Lock()
			defer mu.Unlock()
			if asked[c.Address] && mac(c.MAC) != own {
				answers[c.Address] = c
			}
		})
	}()
	err = a.ask(ctx, iface, addresses, own, wait)
	stop()
	if err := errors.Join(err, <-heard); err != nil {
		return nil, fmt.Errorf("probing on %s: %w", iface, err)
	}
	list := make([]Claim, 0, len(answers))
	for _, address := range addresses {
		if c, answered := answers[address]; answered {
			list = append(list, c)
		}
	}
	return list, nil
}

// ask sends the questions twice and waits after each time for half of wait.
func (a *Announcer) ask(ctx context.Context, iface string, addresses []netip.Addr, own mac, wait time.Duration) error {
	device, _, err := a.device(iface)
	if err != nil {
		return err
	}
	conn, err := a.listen(device, 0, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 2 {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		for _, address := range addresses {
			frame := nsProbe(address, own)
			if address.Is4() {
				frame = arpProbe(address, own)
			}
			if err := send(conn, frame); err != nil {
				return fmt.Errorf("sending the question for %v: %w", address, err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait / 2):
		}
	}
	return nil
}
