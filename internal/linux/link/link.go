// Package link is the door to the kernel's interfaces, addresses, rules and routes, in netip types.
//
// It guarantees that what it reports as done was acknowledged by the kernel, that one Kernel uses a fixed number of
// sockets however long it lives, and that operations are carried out in the order given. Every operation is a
// command, not a wish: adding what exists and removing what is missing are errors (ErrExists, ErrMissing).
//
// A Kernel is safe for concurrent use. It works in the network namespace of the thread that opened it.
//
// It decides nothing: what should be on an interface, and what to do about an error, is the caller's business.
package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// MainTable is the number of the routing table that every host consults (rtnetlink(7)).
const MainTable = 254

// Forever is the lifetime of an address that does not expire.
const Forever = time.Duration(1<<63 - 1)

// Interface is one network interface as the kernel shows it now.
type Interface struct {
	Name     string
	Index    int
	MAC      net.HardwareAddr // current hardware address; empty where the device has none
	Up       bool             // administratively up
	Carrier  bool             // up, and the lower layer works: it can send
	MTU      int              // bytes
	Ethernet bool             // speaks Ethernet: ARP and neighbour discovery frames can be sent on it
}

// Object is what an Operation works on: an Address, a Rule or a Route.
type Object interface {
	fmt.Stringer
	object()
}

// Address is one IP address on one interface.
type Address struct {
	Interface string
	Prefix    netip.Prefix  // the address with its prefix length, for example 10.0.0.7/32
	Valid     time.Duration // after this the kernel removes it by itself; whole seconds, or Forever
	Preferred time.Duration // after this IPv6 no longer picks it as a source; whole seconds, at most Valid, or Forever
}

// Rule sends packets by their source to a routing table.
type Rule struct {
	From     netip.Prefix
	Table    int
	Priority int
}

// Route is one route of one routing table.
type Route struct {
	Table       int
	Destination netip.Prefix // 0.0.0.0/0 or ::/0 for the default route
	Gateway     netip.Addr   // zero: the destination is on the link
	Interface   string
	Metric      int // the lowest wins; at least 1
	MTU         int // bytes of a packet that takes it, at most; 0: as many as the interface takes (RTAX_MTU, rtnetlink(7))
}

func (Address) object() {}
func (Rule) object()    {}
func (Route) object()   {}

// String writes the address in the words of ip-address(8).
func (a Address) String() string {
	return fmt.Sprintf("address %v dev %s valid %s preferred %s", a.Prefix, a.Interface, lifetime(a.Valid), lifetime(a.Preferred))
}

// String writes the rule in the words of ip-rule(8).
func (r Rule) String() string {
	return fmt.Sprintf("rule %d from %v table %d", r.Priority, r.From, r.Table)
}

// String writes the route in the words of ip-route(8).
func (r Route) String() string {
	via := ""
	if r.Gateway.IsValid() {
		via = " via " + r.Gateway.String()
	}
	mtu := ""
	if r.MTU != 0 {
		mtu = fmt.Sprintf(" mtu %d", r.MTU)
	}
	return fmt.Sprintf("route %v%s dev %s table %d metric %d%s", r.Destination, via, r.Interface, r.Table, r.Metric, mtu)
}

func lifetime(d time.Duration) string {
	if d == Forever {
		return "forever"
	}
	return d.String()
}

// Verb is what an Operation does.
type Verb string

// The verbs. Renew gives an address new lifetimes, starting now; it also adds the address if the kernel has let it
// expire meanwhile (that is what the kernel does, RTM_NEWADDR with NLM_F_REPLACE). It exists for addresses only.
const (
	Add    Verb = "add"
	Renew  Verb = "renew"
	Remove Verb = "remove"
)

// Operation is one change of the kernel's state.
type Operation struct {
	Verb   Verb
	Object Object
}

// String writes the operation as one line.
func (o Operation) String() string { return string(o.Verb) + " " + o.Object.String() }

// Errors that callers tell apart with errors.Is.
var (
	ErrExists      = errors.New("is there already")
	ErrMissing     = errors.New("is not there")
	ErrNoInterface = errors.New("no such interface")
)

// ChangeKind is what a Change is about.
type ChangeKind string

// The kinds of changes. A new address is not one of them: Holdfast renews its own addresses twice a second, and the
// kernel would tell it about each.
const (
	LinkChanged    ChangeKind = "link"    // an interface came, went, or changed its state or its MAC
	AddressRemoved ChangeKind = "address" // an address was removed or has expired
	Overrun        ChangeKind = "overrun" // changes were lost: read everything again
)

// Change is a hint that the kernel's state changed. It says that something is to be read again, not what is true now.
type Change struct {
	Kind      ChangeKind
	Interface int          // index; 0 for Overrun
	Carrier   bool         // for LinkChanged: whether the interface had carrier at that moment; it may be gone or back since
	Address   netip.Prefix // for AddressRemoved
}

// Host is the host prefix (/32 or /128) of a.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
