package neigh

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"

	"github.com/mdlayher/packet"
)

// replyFilter passes ARP replies. (The socket receives only ARP.)
var replyFilter = mustAssemble(
	bpf.LoadAbsolute{Off: ethernetSize + 6, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: arpReply, SkipFalse: 1},
	bpf.RetConstant{Val: captureSize},
	bpf.RetConstant{Val: 0},
)

// Asker asks one neighbour again and again whether it is there. Ask and Run may be called at the same time; Close ends Run.
type Asker struct {
	announcer *Announcer
	device    *net.Interface
	address   netip.Addr
	own       mac
	conn      *packet.Conn
	at        atomic.Pointer[mac] // where it answered last; nil: not since it was asked last
}

// Asker opens what asks on an interface for an address. It does not claim an address of its own (RFC 5227 section 2.1, RFC 4862 section
// 5.4). It is for the interface and the MAC of this moment: when either changes, it fails or hears nothing, and another one is opened.
func (a *Announcer) Asker(iface string, address netip.Addr) (*Asker, error) {
	if err := checkAddresses([]netip.Addr{address}); err != nil {
		return nil, fmt.Errorf("asking on %s: %w", iface, err)
	}
	device, own, err := a.device(iface)
	if err != nil {
		return nil, fmt.Errorf("asking on %s for %v: %w", iface, address, err)
	}
	protocol, filter := typeIPv6, naFilter
	if address.Is4() {
		protocol, filter = typeARP, replyFilter
	}
	conn, err := a.listen(device, protocol, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("asking on %s for %v: %w", iface, address, err)
	}
	return &Asker{announcer: a, device: device, address: address, own: own, conn: conn}, nil
}

// Ask puts the question once: to the neighbour alone where it answered the last one, else to all. It waits for room in the device's queue
// for 20 ms at most. A device that is down is an error.
func (k *Asker) Ask() error {
	frame := nsProbe(k.address, k.own)
	if to := k.at.Swap(nil); k.address.Is4() && to != nil {
		frame = arpProbeTo(*to, k.address, k.own)
	} else if k.address.Is4() {
		frame = arpProbe(k.address, k.own)
	}
	_ = k.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err := send(k.conn, frame); err != nil {
		return fmt.Errorf("asking on %s for %v: %w", k.device.Name, k.address, err)
	}
	return nil
}

// Run calls heard for every answer until ctx is done or the Asker is closed, and closes it. For IPv4 that is an ARP reply to this host. For IPv6 it is any
// advertisement of the address by another host: what was asked without an address of one's own is answered to all. It returns an error
// when the interface is gone.
func (k *Asker) Run(ctx context.Context, heard func()) error {
	defer context.AfterFunc(ctx, k.Close)()
	defer k.Close()
	l := &listener{announcer: k.announcer, device: k.device}
	err := l.read(ctx, k.conn, k.answer, func(c Claim) {
		from := mac(c.MAC)
		k.at.Store(&from)
		heard()
	})
	if err != nil {
		return fmt.Errorf("waiting on %s for %v: %w", k.device.Name, k.address, err)
	}
	return nil
}

// Close ends it.
func (k *Asker) Close() { _ = k.conn.Close() }

// answer reads a whole frame, and reports whether it is the neighbour's answer.
func (k *Asker) answer(frame []byte) (netip.Addr, mac, bool) {
	if !k.address.Is4() {
		address, from, ok := naClaim(frame)
		return address, from, ok && address == k.address && from != k.own
	}
	if len(frame) < ethernetSize {
		return netip.Addr{}, mac{}, false
	}
	p, err := parseARP(frame[ethernetSize:])
	answers := err == nil && p.operation == arpReply && p.senderAddress == k.address && p.targetMAC == k.own && p.senderMAC != k.own
	return p.senderAddress, p.senderMAC, answers
}
