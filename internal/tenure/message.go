package tenure

import "time"

// Kind is what a Message says.
type Kind uint8

// The kinds of messages. Asker and observer are nodes; the subject is the node whose incarnation the message is about.
const (
	Heartbeat       Kind = iota + 1 // subject to observer: acknowledge me
	Acknowledgement                 // observer to subject: a lease, for the heartbeat of this number
	Refusal                         // anybody to subject: this incarnation is over for good
	Hint                            // observer to all: I have heard nothing of the subject for its span
	Question                        // asker to observer: confirm that this incarnation has stopped
	Confirmation                    // observer to asker: it has, and I promise not to acknowledge it for a while
	Denial                          // observer to asker: I cannot say so; Reason says why
	DownNotice                      // finder to all: this incarnation is Down
	Farewell                        // subject to all: I have let go of everything; this incarnation is over
	kinds                           // the bound
)

// Valid reports whether a kind that came off the wire exists.
func (k Kind) Valid() bool { return k >= Heartbeat && k < kinds }

var kindNames = [...]string{
	Heartbeat: "heartbeat", Acknowledgement: "acknowledgement", Refusal: "refusal", Hint: "hint", Question: "question",
	Confirmation: "confirmation", Denial: "denial", DownNotice: "notice that a node is down", Farewell: "farewell",
}

// String names the kind for people.
func (k Kind) String() string {
	if !k.Valid() {
		return "unknown message"
	}
	return kindNames[k]
}

// Message is one datagram between two nodes, flat so that it can be passed and encoded without allocation. Which fields count
// depends on the kind; the others are zero.
//
// ARCHITECTURE.md, "Why no two nodes hold one address".
type Message struct {
	Kind        Kind
	Lapsed      bool          // heartbeat and acknowledgement: the heartbeat is a marked one, its sender has lapsed
	Reason      Denied        // denial: why
	Subject     int           // LNN of the node that the message is about; 1 to 2^16-1
	Incarnation Incarnation   // of the subject
	Number      uint64        // of the heartbeat, or of the question; an answer repeats it
	Span        time.Duration // heartbeat: how long an acknowledgement of it counts; whole microseconds
	Interval    time.Duration // heartbeat: the time between two; whole microseconds
	Life        uint64        // acknowledgement: the observer's life, drawn anew at each start; marked heartbeat: the life that the sender remembers of the observer
	Version     uint64        // version of the subject's set of observers: heartbeat: as the sender has it; question: under which is asked; acknowledgement: as the observer has recorded it
}

// Denied is why an observer does not confirm.
type Denied uint8

// The reasons of a Denial.
const (
	DeniedHeard     Denied = iota + 1 // it has heard the subject lately
	DeniedListening                   // it has just started, and listens first
	DeniedLapsed                      // its own leases have lapsed, or it resumed a moment ago
	DeniedVersion                     // it knows another version of the subject's observers
	DeniedStranger                    // it is not an observer of the subject
	DeniedLater                       // the subject has gone on to a later incarnation
	denials                           // the bound
)

// Valid reports whether a reason that came off the wire exists; zero is no reason.
func (d Denied) Valid() bool { return d < denials }

var deniedNames = [...]string{
	0: "for no reason", DeniedHeard: "it hears the node", DeniedListening: "it has just started and listens first",
	DeniedLapsed: "it may not hold itself", DeniedVersion: "it knows another version of the node's observers",
	DeniedStranger: "it does not observe the node", DeniedLater: "the node has gone on to a later incarnation",
}

// String says why for people.
func (d Denied) String() string {
	if !d.Valid() {
		return "for an unknown reason"
	}
	return deniedNames[d]
}
