// Package tenure decides who may hold a moving address, and until when.
//
// A Peer is one node's whole part in it: the node's own right to hold, what it says as an observer about the others, and what it
// finds out about them. A Statement says who owns an address, who is next, and how that may change.
//
// A node holds while enough of its observers (Need) acknowledge its heartbeats. It counts an acknowledgement for a span from the
// moment at which it sent the heartbeat, less a margin; the observer counts the same span from the moment at which it got it. An
// incarnation is Down for whoever asked its observers and got the word of more than half of them (Majority) within one interval.
// Need(n) + Majority(n) = n + 1, so the two always share one observer, and that one had stopped: what is Down has lapsed. Down is
// final for its incarnation. A lapse is not: a node that was found Down by nobody takes its right back as soon as enough observers
// say that they have watched it all the while and have confirmed nothing.
//
// The rules are those of ARCHITECTURE.md, "Why no two nodes hold one address"; docs/model/ has them as models that SPIN
// checks, and names the mended ones. Each rule stands in the code where it is kept, by the name that its model's broken
// variant has, and rules_test.go has a small history for each.
//
// The package is pure: it reads no clock, sends nothing, and does not write records; the agent and the package datagram below it
// do that. It does not decide who should own what either; placement and steering do. A Peer is not safe for
// concurrent use.
package tenure
