// Package rules has what operators say about where sessions go: networks of targets and the gateways that serve them, targets that are
// assigned to a network by name, policies that name a fleet, and overrides for the time of an outage.
//
// All of it is in a Book. Every broker has one and may change it while every other broker and every central manager is down; Merge
// brings two of them together. It guarantees that
//
//   - Merge is commutative, associative and idempotent, so that brokers that have heard of the same changes have the same Book,
//     whatever the order and however often;
//   - a change that was made in knowledge of another replaces it. Of changes to the same thing that did not know of each other the one
//     with the higher Number counts, which is the later one by the clocks of those who made them and never lower than any that its
//     maker had seen; then the one from the higher Origin; then the one with the higher content. A removal competes like any other;
//   - what lost stays in the Book and is reported by Contests until somebody decides, by changing that thing once more;
//   - what is wrong in itself (a subnet that is there twice, a name that does not exist) is refused when it is saved, and flagged when
//     it came to be by a merge or by a gateway that left.
//
// A Table is a Book made ready for choices: Find takes the explicit assignment of the target, else the longest prefix, else the default
// network. IPv4 addresses inside IPv6 ones are IPv4 addresses.
//
// The package is pure; a Book and a Table are never changed, and may be read from several goroutines. It does not know who is alive.
package rules
