package agent

import (
	"context"
	"net/netip"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/tickle"
	"github.com/holdfast/holdfast/internal/tenure"
)

// connectionsRequest writes a message to a successor.
func connectionsRequest(incarnation tenure.Incarnation, push address.Push) *holdfastv1.ConnectionsRequest {
	request := &holdfastv1.ConnectionsRequest{
		Incarnation: &holdfastv1.Incarnation{Start: uint64(incarnation)}, Sequence: push.Sequence, Full: push.Full,
	}
	of := map[netip.Addr]*holdfastv1.ClientConnections{}
	at := func(c address.Connection) *holdfastv1.ClientConnections {
		addr := c.Local.Addr()
		if of[addr] == nil {
			of[addr] = &holdfastv1.ClientConnections{Address: addr.String()}
			request.Addresses = append(request.Addresses, of[addr])
		}
		return of[addr]
	}
	for _, c := range push.Opened {
		at(c).Opened = append(at(c).Opened, clientConnection(c))
	}
	for _, c := range push.Closed {
		at(c).Closed = append(at(c).Closed, clientConnection(c))
	}
	return request
}

func clientConnection(c address.Connection) *holdfastv1.ClientConnection {
	return &holdfastv1.ClientConnection{LocalPort: uint32(c.Local.Port()), Remote: c.Remote.Addr().AsSlice(), RemotePort: uint32(c.Remote.Port())}
}

// pushOf reads a message of an owner, which comes from the network: everything in it must be a connection between two hosts.
func pushOf(r *holdfastv1.ConnectionsRequest) (address.Push, error) {
	push := address.Push{Sequence: r.Sequence, Full: r.Full}
	for _, table := range r.Addresses {
		local, err := netip.ParseAddr(table.Address)
		if err != nil {
			return push, api.Invalid("%q is not an address", table.Address)
		}
		for _, list := range []struct {
			from []*holdfastv1.ClientConnection
			into *[]address.Connection
		}{{table.Opened, &push.Opened}, {table.Closed, &push.Closed}} {
			for _, wire := range list.from {
				remote, ok := netip.AddrFromSlice(wire.Remote)
				if !ok || wire.LocalPort > 0xffff || wire.RemotePort > 0xffff {
					return push, api.Invalid("a connection to %s from %x is none", local, wire.Remote)
				}
				c := address.Connection{Local: netip.AddrPortFrom(local, uint16(wire.LocalPort)), Remote: netip.AddrPortFrom(remote, uint16(wire.RemotePort))}
				if !tickle.Fit(c) {
					return push, api.Invalid("a connection from %s to %s is not one between two hosts", c.Remote, c.Local)
				}
				*list.into = append(*list.into, c)
			}
		}
		if len(push.Opened)+len(push.Closed) > address.MaxPush {
			return push, api.Invalid("a message of more than %d connections is too large", address.MaxPush)
		}
	}
	return push, nil
}

// Connections takes in what an owner says of its clients.
func (s peerService) Connections(ctx context.Context, r *holdfastv1.ConnectionsRequest) (*holdfastv1.ConnectionsResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return s.clients.receive(node, r)
}

// receive takes in what a node says of its clients.
func (c *clients) receive(node cluster.Node, r *holdfastv1.ConnectionsRequest) (*holdfastv1.ConnectionsResponse, error) {
	push, err := pushOf(r)
	if err != nil {
		return nil, err
	}
	from := address.Source{LNN: node.LNN, Incarnation: tenure.Incarnation(r.Incarnation.GetStart())}
	return &holdfastv1.ConnectionsResponse{Lost: c.tickler.Receive(from, push)}, nil
}

// Connections tells another node of connections.
func (p *peers) Connections(ctx context.Context, lnn int, request *holdfastv1.ConnectionsRequest) (lost bool, err error) {
	client, err := p.of(lnn)
	if err != nil {
		return false, err
	}
	answer, err := client.Connections(ctx, request)
	if err != nil {
		return false, err
	}
	return answer.Lost, nil
}
