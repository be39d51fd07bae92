// Package address holds the addresses that this node is told to hold: it brings the kernel to a desired state, keeps it
// there, and tells the link.
//
// It guarantees that what it reports as held was acknowledged by the kernel; that removals come before additions; that
// an address with a lifetime is renewed only while it is desired, so that nothing that Set removed or Silence dropped
// comes back; and that whatever cannot be done is reported to the caller and on the problem board, never only logged.
//
// A Reconciler is safe for concurrent use. Set and CleanUp run one at a time; Silence never waits for a whole one of
// them, only for the batch of operations that the kernel is working on. Run does the background work and must run
// for addresses with lifetimes to stay.
//
// It does not decide who should hold an address, does not fence (that is the guard's work), and does not know whether
// an interface without carrier should go on holding.
package address

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
	"github.com/holdfast/holdfast/internal/problem"
)

// The lifetimes of addresses that move (ARCHITECTURE.md, "The counts").
const (
	// ValidLifetime is after how long without renewal the kernel removes an address by itself.
	ValidLifetime = 2 * time.Second
	// RenewInterval is how often the lifetime is renewed. Three renewals in a row may fail.
	RenewInterval = 500 * time.Millisecond
	// PreferredLifetime is the preferred lifetime of an IPv4 address that moves. For IPv6 it is 0: the kernel then
	// answers on the address as ever, but does not pick it as the source of connections that the node opens itself,
	// which would break when the address moves (RFC 4862 section 5.5.4, RFC 6724 rule 3).
	PreferredLifetime = ValidLifetime
)

// Times of the background work.
const (
	// RereadInterval is how often the kernel is read again although it told of no change.
	RereadInterval = 10 * time.Second
	// AnswerInterval is the least time between two answers to foreign claims to one address.
	AnswerInterval = time.Second
	// ConflictQuiet is how long nobody must claim an address for its conflict to be over.
	ConflictQuiet = 30 * time.Second
	// ProbeWait is how long a stranger may take to answer before an address is taken for the first time. RFC 5227 waits
	// for seconds because hosts may be asleep; a server that uses the address answers at once.
	ProbeWait = 200 * time.Millisecond
	// ProbeAgain is how long an address that a stranger answered for stays refused before it is asked for again.
	ProbeAgain = 10 * time.Second
)

// Holding is one address that the node is to hold.
type Holding struct {
	Address   netip.Addr
	Interface string
	Lifetime  bool   // moving addresses: with a kernel lifetime, dropped by Silence. Static ones: neither.
	Epoch     uint64 // of the statement that gives the address to this node; kept for the caller
	// Probe asks the link for strangers before the address is taken, which takes ProbeWait. It is for addresses that no
	// node of the cluster held before; never for a takeover, where the old owner may still answer.
	Probe bool
}

// SubnetRoute says how replies from addresses of a subnet leave. Several with the same prefix are put together.
type SubnetRoute struct {
	Prefix    netip.Prefix
	Gateway   netip.Addr // zero: none
	Interface string
	Static    []cluster.Route
	MTU       int // of the routes, in bytes, as far as the interface takes that much; 0: what the interface takes
	// Priority makes the gateway a candidate for the node's own default route: the lowest wins. 0: it is none.
	Priority int
}

// Desired is all that the node is to hold. The zero Desired is nothing.
type Desired struct {
	Holdings []Holding
	Routes   []SubnetRoute
	// Managed says which addresses are the cluster's: one that is found on an interface and is not among the Holdings goes,
	// whoever put it there. Nil: only what this Reconciler put on an interface goes.
	Managed func(netip.Addr) bool
}

// Result is what was achieved.
type Result struct {
	Held     []Holding            // really on the interface now, as desired, sorted by address
	Left     []netip.Addr         // on an interface although they should not be, or not so: they could not be removed or changed; sorted
	Unread   error                // why the kernel could not be read; Left may lack something then
	Failed   map[netip.Addr]error // desired and not held, or to be removed and still there; nil if none
	Taken    []netip.Addr         // added by this call, sorted
	Released []netip.Addr         // removed by this call, or found gone, sorted

	// When the first of Taken were on their interfaces, and when their first announcements were out, by the Reconciler's clock; zero if
	// none was taken, or not all could be announced. What is probed first comes later.
	Put, Announced time.Time
}

// Kernel is what the Reconciler needs of link.Kernel.
type Kernel interface {
	Interfaces() ([]link.Interface, error)
	Addresses() ([]link.Address, error)
	Rules() ([]link.Rule, error)
	Routes() ([]link.Route, error)
	Findings([]link.Uses) ([]link.Finding, error)
	Apply([]link.Operation) []error
	Changes(ctx context.Context, notify func(link.Change)) error
}

// Announcer is what the Reconciler needs of neigh.Announcer.
type Announcer interface {
	Announce(iface string, addresses []netip.Addr) error
	Probe(ctx context.Context, iface string, addresses []netip.Addr, wait time.Duration) ([]neigh.Claim, error)
	Watch(ctx context.Context, iface string, heard func(neigh.Claim)) error
}

var (
	_ Kernel    = (*link.Kernel)(nil)
	_ Announcer = (*neigh.Announcer)(nil)
)

// Options are what New needs. Kernel and Announcer are required.
type Options struct {
	Kernel     Kernel
	Announcer  Announcer
	Logger     *slog.Logger          // default: none
	Board      *problem.Board        // default: one of its own
	Registerer prometheus.Registerer // default: metrics are not registered
	Now        func() time.Time      // default time.Now
	// Permit says whether the node has the right to hold moving addresses at this moment. It is asked directly before
	// each batch of additions, renewals and announcements of addresses with lifetimes, so that a process that was
	// stopped and goes on does not act on a right that ran out meanwhile. It must be fast and must not call the
	// Reconciler. Default: always.
	Permit func() bool
}
