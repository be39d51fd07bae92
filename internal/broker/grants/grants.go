// Package grants decides who may open which session: by whom, to what target and account, by what protocol, with what rights, and when.
//
// It guarantees that nothing is allowed that no single grant allows: without grants nobody gets a session, and rights of two grants are never
// added up. A decision says which grant it rests on, or of each grant why it is not the one. Everything here is a function of its arguments.
//
// It does not know who somebody is (a requester comes with the name by which he proved himself), resolves no name, and makes no token.
package grants

import (
	"net/netip"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// The protocols that grants know.
const (
	SSH = "ssh" // a session with an account of the target
	TCP = "tcp" // a tunnel to a port of the target, without an account
)

// Bounds of grants.
const (
	MaxGrants   = 1000
	MaxPatterns = 1000 // in one list of a grant
	MaxName     = 100  // of a grant, in bytes
	MaxWindows  = 50
)

// Grant is one thing that is allowed. A list that is empty allows nothing.
type Grant struct {
	Name      string // at most MaxName bytes
	Who       []Pattern
	Targets   []Pattern // by the name that the user writes; addresses only where they are written as they are, or by "*"
	Subnets   []netip.Prefix
	Accounts  []Pattern // for ssh
	Protocols []string
	Ports     []Ports
	May       token.Channels // in sessions by ssh
	Proof     token.Proof    // how the gateway logs in at the target
	Windows   []Window       // when a session may begin; none: at any time
	Zone      *time.Location // of the windows
	Limit     time.Duration  // of the session; 0 leaves it to the gateway
}

// Ports are ports of targets, with both ends.
type Ports struct{ First, Last uint16 }

// Request is a session that somebody wants.
type Request struct {
	Who      string
	Target   token.Target // host in lower case
	Account  string       // of ssh only
	Protocol string
	Want     token.Channels // 0: whatever the grant allows
	Now      time.Time
}

// Decision is what became of a request.
type Decision struct {
	Grant   *Grant // that allows it; nil if none does
	May     token.Channels
	Reason  string   // why, in words
	Passed  []Passed // grants before it, or all: why each is not the one
	NoGrant bool     // there are no grants at all
}

// Passed is a grant that does not allow a request.
type Passed struct {
	Name string
	Step Step
	Why  string
}

// Step is how far a grant goes along with a request, in the order in which it is looked at.
type Step uint8

// The steps.
const (
	AtWho Step = iota
	AtTarget
	AtProtocol
	AtPort
	AtAccount
	AtChannels
	AtTime
)
