// Package fleet has what a broker knows of session gateways, as values: gateways with their roles, protocols and health, what a central
// manager says of all of them, and how an answer of `/api/cluster/nodes`, `/api/cluster/status` and `/api/health_status` is read.
//
// It guarantees that
//
//   - a View that Read returned has at least one gateway, each key once, sorted, and nothing that is longer than the bounds say;
//   - an answer that is garbled, empty, cut off or contradicts itself about who is the central manager never becomes a View; it
//     becomes a Failure with evidence;
//   - a gateway takes sessions only if its roles, as they are understood, say so. A role that is not known never makes one that does;
//   - the gateway that answers is not down, whatever its answer says of its health (the vendor's own sample has null there).
//
// It is pure, and its values are safe to read from several goroutines. It judges no time: when an answer came, and what that means, is
// for package watch. The clocks of gateways are never compared with this machine's.
package fleet
