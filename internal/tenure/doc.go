// Package tenure decides who may hold a moving address, and until when.
//
// Its interface is two questions and one record. A Holder answers "may I hold, and until when" from the acknowledgements
// that this node has. An Observer answers "may I acknowledge, may I confirm that it is over" for every other node. A
// Statement says who owns an address and how that may change.
//
// Behind the questions stands, for now, the store's lease, with the other nodes as a second opinion:
//
//   - A node holds while its lease in the store is live, counted from the moment it sent the renewal, less a margin; or,
//     when the store does not answer, while enough other nodes (need = n - n/2 of the n others) have granted it a span,
//     counted from the moment it asked.
//   - An incarnation is Down for whoever saw its lease gone from the store and then got a confirmation from a majority
//     (n/2 + 1) of the others, each of which has no grant outstanding and will never grant that incarnation again.
//
// need + majority = n + 1, so the two always share one node: when an incarnation is Down, it has lapsed. A store that
// stalls or is lost therefore takes nothing from anybody who can still talk to its peers, and lets nobody take either.
// The change of owner is written with the condition that the lease is still gone, so a node that regains its lease
// first keeps what it has.
//
// A lapse is final for its incarnation: later acknowledgements do not revive it, and the next incarnation owns nothing
// until a record says so.
//
// The package is pure: values and now in, values and reasons out. Values are not safe for concurrent use; the caller
// owns them. It does not talk to the store or to other nodes, and it silences nothing.
//
// Clocks are CLOCK_BOOTTIME or CLOCK_MONOTONIC readings; only their rates matter (0.1% is granted to them).
package tenure
