// Package nft lets a node be silent on a set of addresses: nothing leaves from them, and nothing that is sent to them arrives. It
// speaks to nf_tables by netlink (linux/netfilter/nf_tables.h; nft(8)).
//
// A Filter keeps the addresses in sets of two tables of its own, one for ARP and one for IPv4 and IPv6. While nothing is silenced
// the tables have no chain, so no packet passes through them. Silence adds the chains in one transaction: what it costs does not
// depend on how many addresses there are, and it is in force for all of them at once or for none.
//
// The tables belong to the socket (NFT_TABLE_F_OWNER): nobody else can change them, a flush of the rule set leaves them alone, and
// the kernel removes them when the Filter is closed or its process dies, whichever way.
//
// Frames that are sent through packet sockets do not pass through these hooks, and neither do packets that the node forwards. A
// Filter is not safe for concurrent use. It works in the network namespace of the thread that opened it and needs CAP_NET_ADMIN
// there. It decides nothing.
package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// TableName is the name of both tables, as `nft list ruleset` shows them.
const TableName = "holdfast-guard"

// ErrUnsupported is wrapped where the kernel has no nf_tables, or not the parts that are needed.
var ErrUnsupported = errors.New("the kernel has no nf_tables for ARP, IPv4 and IPv6 whose tables can belong to a process (Linux 5.12)")

// Filter is the two tables. Use Open; Close it when done.
type Filter struct {
	socket   *socket
	present  map[netip.Addr]bool // in the sets
	silenced bool
}

// Open makes the tables, empty. Tables of the same name that another process owns, or that a person made, are an error.
func Open() (*Filter, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	f := &Filter{socket: s, present: map[netip.Addr]bool{}}
	if err := s.commit(tables()); err != nil {
		s.close()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("making the tables %s: %w; this needs CAP_NET_ADMIN, and no other tables of that name (`nft list ruleset`)", TableName, err)
		}
		return nil, fmt.Errorf("making the tables %s: %w: %w", TableName, err, ErrUnsupported)
	}
	return f, nil
}

// Close removes the tables, and with them the silence.
func (f *Filter) Close() { f.socket.close() }

// Silenced says whether the silence is in force.
func (f *Filter) Silenced() bool { return f.silenced }

// Silence silences all addresses of the sets at once.
func (f *Filter) Silence() error {
	if f.silenced {
		return nil
	}
	if err := f.socket.commit(chains()); err != nil {
		return fmt.Errorf("silencing by nf_tables: %w", err)
	}
	f.silenced = true
	return nil
}

// Lift ends the silence.
func (f *Filter) Lift() error {
	if !f.silenced {
		return nil
	}
	if err := f.socket.commit(noChains()); err != nil {
		return fmt.Errorf("lifting the silence of nf_tables: %w", err)
	}
	f.silenced = false
	return nil
}

// perMessage is how many addresses go into one message: the list of elements has a length of 16 bits, and an element has 28 bytes.
const perMessage = 1000

// Set makes these the addresses. Those that come are added before others go, and what stays is not touched, so that a silence has no
// gap. On an error some may be missing; Set may be called again.
func (f *Filter) Set(addresses []netip.Addr) error {
	wanted := make(map[netip.Addr]bool, len(addresses))
	var come, gone []netip.Addr
	for _, a := range addresses {
		if a = a.Unmap().WithZone(""); a.IsValid() && !wanted[a] {
			wanted[a] = true
			if !f.present[a] {
				come = append(come, a)
			}
		}
	}
	for a := range f.present {
		if !wanted[a] {
			gone = append(gone, a)
		}
	}
	if err := f.change(come, true); err != nil {
		return err
	}
	return f.change(gone, false)
}

func (f *Filter) change(addresses []netip.Addr, add bool) error {
	for chunk := range slices.Chunk(addresses, perMessage) {
		if err := f.socket.commit(elements(chunk, add)); err != nil {
			return fmt.Errorf("changing the addresses of the tables %s: %w", TableName, err)
		}
		for _, a := range chunk {
			if add {
				f.present[a] = true
			} else {
				delete(f.present, a)
			}
		}
	}
	return nil
}

// The sets: one of IPv4 in the table for ARP, and one of each family in the other.
const (
	set4 = "addresses4"
	set6 = "addresses6"
)

// ownedTable is NFT_TABLE_F_OWNER (Linux 5.12).
const ownedTable = 2

// tables makes the tables and their sets.
func tables() []message {
	var list []message
	for _, family := range []uint8{unix.NFPROTO_ARP, unix.NFPROTO_INET} {
		list = append(list, message{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE | unix.NLM_F_EXCL, family, attributes(
			text(unix.NFTA_TABLE_NAME, TableName), number(unix.NFTA_TABLE_FLAGS, ownedTable),
		)})
		list = append(list, newSet(family, set4, typeIPv4, 4, 1))
		if family == unix.NFPROTO_INET {
			list = append(list, newSet(family, set6, typeIPv6, 16, 2))
		}
	}
	return list
}

// The kinds of keys, as nft(8) shows them (its own numbers; the kernel keeps them unread).
const (
	typeIPv4 = 7
	typeIPv6 = 8
)

func newSet(family uint8, name string, kind, length, id uint32) message {
	return message{unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE | unix.NLM_F_EXCL, family, attributes(
		text(unix.NFTA_SET_TABLE, TableName), text(unix.NFTA_SET_NAME, name), number(unix.NFTA_SET_FLAGS, 0),
		number(unix.NFTA_SET_KEY_TYPE, kind), number(unix.NFTA_SET_KEY_LEN, length), number(unix.NFTA_SET_ID, id),
	)}
}

// elements adds addresses to the sets or takes them out.
func elements(addresses []netip.Addr, add bool) []message {
	kind, flags := uint16(unix.NFT_MSG_DELSETELEM), uint16(0)
	if add {
		kind, flags = unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE
	}
	var four, six [][]byte
	for _, a := range addresses {
		element := nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, plain(unix.NFTA_DATA_VALUE, a.AsSlice())))
		if a.Is4() {
			four = append(four, element)
		} else {
			six = append(six, element)
		}
	}
	var list []message
	into := func(family uint8, name string, elements [][]byte) {
		if len(elements) > 0 {
			list = append(list, message{kind, flags, family, attributes(
				text(unix.NFTA_SET_ELEM_LIST_TABLE, TableName), text(unix.NFTA_SET_ELEM_LIST_SET, name),
				nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, elements...),
			)})
		}
	}
	into(unix.NFPROTO_ARP, set4, four)
	into(unix.NFPROTO_INET, set4, four)
	into(unix.NFPROTO_INET, set6, six)
	return list
}

// hook is one chain: where it looks, and what it drops.
type hook struct {
	family uint8
	name   string
	number uint32
	rules  []match
}

// match is packets of a protocol whose header has, at an offset, an address of a set.
type match struct {
	protocol byte // of the network layer; 0: any
	offset   uint32
	length   uint32
	set      string
}

// Of ARP, what is sent: the kernel's answers and questions from an address, whose sender it names at offset 14 (RFC 826, for
// Ethernet and IPv4). Of IP, what comes to an address, and what leaves from one; the latter covers neighbour advertisements, which
// are sent from the address that they are about (RFC 4861 section 7.2.4).
var hooks = []hook{
	{unix.NFPROTO_ARP, "output", 1, []match{{0, 14, 4, set4}}},
	{unix.NFPROTO_INET, "input", unix.NF_INET_LOCAL_IN, []match{{unix.NFPROTO_IPV4, 16, 4, set4}, {unix.NFPROTO_IPV6, 24, 16, set6}}},
	{unix.NFPROTO_INET, "output", unix.NF_INET_LOCAL_OUT, []match{{unix.NFPROTO_IPV4, 12, 4, set4}, {unix.NFPROTO_IPV6, 8, 16, set6}}},
}

// priority puts the chains before connection tracking and before everybody else's.
const priority = -500

func chains() []message {
	var list []message
	for _, h := range hooks {
		order := int32(priority)
		list = append(list, message{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE | unix.NLM_F_EXCL, h.family, attributes(
			text(unix.NFTA_CHAIN_TABLE, TableName), text(unix.NFTA_CHAIN_NAME, h.name),
			nested(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, h.number), number(unix.NFTA_HOOK_PRIORITY, uint32(order))),
			text(unix.NFTA_CHAIN_TYPE, "filter"),
		)})
		for _, m := range h.rules {
			list = append(list, message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | unix.NLM_F_APPEND, h.family, attributes(
				text(unix.NFTA_RULE_TABLE, TableName), text(unix.NFTA_RULE_CHAIN, h.name),
				nested(unix.NFTA_RULE_EXPRESSIONS, m.expressions()...),
			)})
		}
	}
	return list
}

func noChains() []message {
	var list []message
	for _, h := range hooks {
		list = append(list, message{unix.NFT_MSG_DELCHAIN, 0, h.family, attributes(
			text(unix.NFTA_CHAIN_TABLE, TableName), text(unix.NFTA_CHAIN_NAME, h.name),
		)})
	}
	return list
}

// expressions are what the rule does: load the protocol and compare it, load the address and look it up, drop.
func (m match) expressions() [][]byte {
	var list [][]byte
	if m.protocol != 0 {
		list = append(list,
			expression("meta", number(unix.NFTA_META_KEY, unix.NFT_META_NFPROTO), number(unix.NFTA_META_DREG, unix.NFT_REG_1)),
			expression("cmp", number(unix.NFTA_CMP_SREG, unix.NFT_REG_1), number(unix.NFTA_CMP_OP, unix.NFT_CMP_EQ),
				nested(unix.NFTA_CMP_DATA, plain(unix.NFTA_DATA_VALUE, []byte{m.protocol}))))
	}
	drop := int32(0) // NF_DROP
	return append(list,
		expression("payload", number(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
			number(unix.NFTA_PAYLOAD_OFFSET, m.offset), number(unix.NFTA_PAYLOAD_LEN, m.length)),
		expression("lookup", text(unix.NFTA_LOOKUP_SET, m.set), number(unix.NFTA_LOOKUP_SREG, unix.NFT_REG_1)),
		expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
			nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT, number(unix.NFTA_VERDICT_CODE, uint32(drop))))))
}

func expression(name string, data ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, data...))
}

// Attributes (linux/netlink.h). Numbers are in network byte order, as everywhere in nf_tables.

func attributes(parts ...[]byte) []byte { return slices.Concat(parts...) }

func plain(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func text(kind uint16, value string) []byte { return plain(kind, append([]byte(value), 0)) }

func number(kind uint16, value uint32) []byte {
	return plain(kind, binary.BigEndian.AppendUint32(nil, value))
}

func nested(kind uint16, parts ...[]byte) []byte {
	return plain(kind|unix.NLA_F_NESTED, slices.Concat(parts...))
}
