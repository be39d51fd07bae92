package neigh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// captureSize is how much of a frame is read. An advertisement with the options in use takes less than half of it; a
// longer one is cut, and then fails its length check.
const captureSize = 256

// arpFilter passes ARP frames whose sender's address is not 0.0.0.0. (The socket receives only ARP.)
var arpFilter = mustAssemble(
	bpf.LoadAbsolute{Off: ethernetSize + 14, Size: 4},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
	bpf.RetConstant{Val: captureSize},
	bpf.RetConstant{Val: 0},
)

// naFilter passes neighbour advertisements. (The socket receives only IPv6.) One with extension headers does not
// pass; hosts do not send those.
var naFilter = mustAssemble(
	bpf.LoadAbsolute{Off: ethernetSize + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: ethernetSize + ipv6Size, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: advertising, SkipTrue: 1},
	bpf.RetConstant{Val: captureSize},
	bpf.RetConstant{Val: 0},
)

func mustAssemble(program ...bpf.Instruction) []bpf.RawInstruction {
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(fmt.Sprintf("neigh: assembling a filter: %v", err))
	}
	return raw
}

// listener hears claims on one interface.
type listener struct {
	announcer *Announcer
	device    *net.Interface
	arp, na   *packet.Conn
}

// Watch calls heard for every claim that arrives on the interface until ctx is done; then it returns nil. It returns an
// error at once if it cannot listen. Going down and up again does not end it. When the interface is gone it returns an
// error where the kernel says so, which it does not for an interface that was down: a caller that learns of it ends the
// watch by ctx.
//
// What this host announces on the interface itself is not heard, but what it announces on another interface of the
// same link is: the caller knows the MACs of the host. heard is called from two goroutines and must not block for
// long: what comes meanwhile waits in the sockets' buffers, and what has no room there is lost.
func (a *Announcer) Watch(ctx context.Context, iface string, heard func(Claim)) error {
	l, err := a.open(iface)
	if err != nil {
		return fmt.Errorf("watching %s: %w", iface, err)
	}
	if err := l.run(ctx, heard); err != nil {
		return fmt.Errorf("watching %s: %w", iface, err)
	}
	return nil
}

// open starts to receive; what arrives from now on is heard by run.
func (a *Announcer) open(iface string) (*listener, error) {
	device, _, err := a.device(iface)
	if err != nil {
		return nil, err
	}
	// A socket that is bound to one protocol is asked only for frames of that protocol and never sees frames that this
	// host sends, so nothing of the data that clients move passes through here.
	arp, err := a.listen(device, typeARP, &packet.Config{Filter: arpFilter})
	if err != nil {
		return nil, err
	}
	na, err := a.listen(device, typeIPv6, &packet.Config{Filter: naFilter})
	if err != nil {
		_ = arp.Close()
		return nil, err
	}
	return &listener{a, device, arp, na}, nil
}

// run hears until ctx is done or the interface is gone, and closes the sockets.
func (l *listener) run(ctx context.Context, heard func(Claim)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	closed := context.AfterFunc(ctx, func() {
		_ = l.arp.Close()
		_ = l.na.Close()
	})
	defer closed()
	ended := make(chan error, 2)
	go func() { ended <- l.read(ctx, l.arp, arpClaim, heard) }()
	go func() { ended <- l.read(ctx, l.na, naClaim, heard) }()
	first := <-ended
	stop()
	return errors.Join(first, <-ended)
}

func (l *listener) read(ctx context.Context, conn *packet.Conn, parse func([]byte) (netip.Addr, mac, bool), heard func(Claim)) error {
	frame := make([]byte, captureSize)
	for {
		n, _, err := conn.ReadFrom(frame)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was called off
		case errors.Is(err, unix.ENETDOWN):
			if now, _, err := l.announcer.device(l.device.Name); err != nil {
				return err
			} else if now.Index != l.device.Index {
				return ErrNoInterface
			}
			continue // down; the socket goes on when it is up again
		case err != nil:
			return fmt.Errorf("reading frames: %w", err)
		}
		if address, from, ok := parse(frame[:n]); ok {
			heard(Claim{Address: address, MAC: net.HardwareAddr(from[:]), Interface: l.device.Name})
		}
	}
}
