// Package api is the plumbing of Holdfast's contract (proto/holdfast/v1): servers and clients over the node's Unix
// socket and between nodes over mutual TLS.
//
// It guarantees that only permitted local users reach the socket, that only holders of a certificate of the cluster's
// CA reach a peer, that messages and calls are bounded in size and time, and that a panic in a handler becomes an error
// for its caller. Servers and clients are safe for concurrent use. It knows nothing of what the calls mean.
package api
