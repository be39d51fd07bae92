package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// changeBuffer is the receive buffer for changes, in bytes; when it is full the kernel drops changes and says so, which
// becomes an Overrun.
const changeBuffer = 1 << 20

// Changes calls notify for every change until ctx is done, and then returns nil. Any other end is an error. notify
// must not block for long. The subscription starts before the first call; changes that happened before it are not told,
// so read everything once after a first Overrun, with which every subscription begins.
func (k *Kernel) Changes(ctx context.Context, notify func(Change)) error {
	var socket *nl.NetlinkSocket
	err := k.In(func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_ROUTE,
			unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
		return err
	})
	if err != nil {
		return fmt.Errorf("subscribing to link and address changes: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	if err := errors.Join(socket.SetReceiveBufferSize(changeBuffer, false), filterChanges(socket.GetFd())); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("preparing the subscription to link and address changes: %w", err)
	}
	notify(Change{Kind: Overrun})
	for {
		messages, from, err := socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			notify(Change{Kind: Overrun})
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("reading link and address changes: %w", err)
		case from.Pid != nl.PidKernel:
			continue // only the kernel is believed
		}
		for _, m := range messages {
			if change, ok := parseChange(m); ok {
				notify(change)
			}
		}
	}
}

// filterChanges lets the kernel drop news of added and renewed addresses before they wake anybody.
func filterChanges(fd int) error {
	// The filter reads the message type big-endian; netlink writes it in the machine's order.
	wanted := uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.RTM_NEWADDR)))
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: wanted, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 0xffffffff},
	})
	if err != nil {
		return fmt.Errorf("assembling the filter: %w", err)
	}
	filters := make([]unix.SockFilter, len(program))
	for i, p := range program {
		filters[i] = unix.SockFilter{Code: p.Op, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]})
}

// parseChange reads one message; false means that it is of no interest.
func parseChange(m syscall.NetlinkMessage) (Change, bool) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return Change{}, false
		}
		carrier := hasCarrier(binary.NativeEndian.Uint32(m.Data[8:]))
		return Change{
			Kind: LinkChanged, Interface: int(int32(binary.NativeEndian.Uint32(m.Data[4:]))),
			Carrier: carrier && m.Header.Type == unix.RTM_NEWLINK,
		}, true
	case unix.RTM_DELADDR:
		if len(m.Data) < unix.SizeofIfAddrmsg {
			return Change{}, false
		}
		body := m.Data[unix.SizeofIfAddrmsg:]
		ip := attribute(body, unix.IFA_LOCAL)
		if ip == nil {
			ip = attribute(body, unix.IFA_ADDRESS)
		}
		addr, ok := netip.AddrFromSlice(ip)
		if !ok || int(m.Data[1]) > addr.BitLen() {
			return Change{}, false
		}
		return Change{
			Kind: AddressRemoved, Interface: int(binary.NativeEndian.Uint32(m.Data[4:])),
			Address: netip.PrefixFrom(addr, int(m.Data[1])),
		}, true
	}
	return Change{}, false
}
