package placement

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// MaxWeight bounds weights: a larger one counts as MaxWeight. A weight below 1 counts as 1; a node that should be given
// nothing is drained or suspended, not made weightless.
const MaxWeight = 65535

// PlanInterval is how often, at most, the measurements change on which the plan under a measured failover policy rests. The caller
// keeps the time; Allocate itself may be called as often as wanted.
const PlanInterval = 10 * time.Second

// PlanGain is the gain that a measured failover policy must promise before a next on record is replaced: the load of
// the recorded next after the owner's death must exceed the best candidate's by more than this share.
const PlanGain = 0.10

// Load is how busy a candidate is. The zero value is a load that nobody knows.
type Load struct {
	Known       bool          // whether a sample ever arrived
	Connections int           // established TCP connections to the pool's addresses and client ports
	Throughput  float64       // share of the link that is in use, 0 to 1
	CPU         float64       // busy share, 0 to 1
	Age         time.Duration // age of the sample
	Stale       bool          // the sample is older than three intervals: it no longer counts
}

// Candidate is one member interface of a pool.
type Candidate struct {
	Member cluster.Member
	Node   string // the node's name, for messages
	Weight int    // see MaxWeight
	Fit    bool   // may hold addresses now
	Why    string // when not fit, or when in hold-down: the reason, for messages

	// HoldDown marks a fit candidate that came back too recently to be trusted, such as a flapping node: it keeps what it
	// owns, but is given nothing more and is nobody's next while another candidate is fit.
	HoldDown bool

	Load Load
}

// Statement says who holds an address and who takes it when the owner goes down. The zero Member is nobody.
type Statement struct {
	Address     netip.Addr
	Owner, Next cluster.Member
}

// Request is everything that one allocation of one pool depends on.
type Request struct {
	Pool           cluster.PoolID
	Addresses      []netip.Addr // what is to be owned; duplicates count once
	Candidates     []Candidate  // a member listed twice counts once, and as fit only if it is so each time
	Current        []Statement  // what is on record; statements on other addresses are let go of
	FailoverPolicy cluster.Policy
	Pins           map[netip.Addr]cluster.Member // where the operator put addresses

	// Rebalance allows addresses to leave a fit owner for evenness. Movable says which of them; nil means all (the idle
	// policy names the addresses without connections). Addresses without a fit owner move in any case.
	Rebalance bool
	Movable   map[netip.Addr]bool

	// Elsewhere says how many addresses a member holds in other pools of the same subnet. It only breaks ties, so that
	// what does not divide evenly does not pile up on the same node in every pool. May be nil.
	Elsewhere map[cluster.Member]int

	Now time.Time // goes into the Decisions
}

// Move is one address that changes hands. From or To is the zero Member when nobody held it or nobody will.
type Move struct {
	Address  netip.Addr
	From, To cluster.Member
	Reason   string
}

// Result is what an allocation proposes.
type Result struct {
	Statements []Statement // every address of the request, sorted by address
	Moves      []Move      // addresses whose owner changes, sorted by address; then those that left the pool

	// Decisions has one record for each address whose owner or next changes, sorted by address. For all others ask Explain.
	// The Decisions of one Result share their Among and LeftOut: read them only.
	Decisions []Decision

	// Even is whether it is plain that a rebalance of everything would move nothing. Where it is not plain only a rebalance says.
	Even bool
}
