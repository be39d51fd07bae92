// Package load measures how busy this node is, and keeps what every node last said about itself.
//
// The Sampler reads established TCP connections, bytes and link speeds, and the processor, through functions that it is
// given, and turns two readings into rates. The Board holds the last Sample of each node and answers with a
// placement.Load that carries its age and says when it is stale. Both have bounds on everything that they keep.
//
// A Sampler is for one goroutine; a Board is safe for concurrent use. The package sends nothing: how a sample gets from
// one node to another is not its business, and neither is what a load means for a choice.
package load

import (
	"net/netip"
	"time"
)

// Bounds of one sample. A larger one is neither made nor accepted.
const (
	MaxInterfaces = 64
	MaxAddresses  = 8192 // twice the most addresses of a pool: what one node may hold at the very worst
)

// Sample is what one node measured at one moment.
type Sample struct {
	LNN   int
	Taken time.Time // by the node's own clock; only its order matters elsewhere

	// Rated says that CPU and Interfaces are measured. They are rates, so the first sample of a node has none.
	Rated      bool
	CPU        float64         // busy share of all processors since the sample before, 0 to 1
	Interfaces map[string]Rate // by name; an interface that has only just appeared is missing

	Connections map[netip.Addr]int // established TCP connections on client ports, for every address asked about
}

// Rate is how much passes one interface.
type Rate struct {
	BytesPerSecond     float64 // of the busier direction: links are full duplex, and the fuller one is what is scarce
	LinkBytesPerSecond float64 // what the link can carry in one direction
}

// share is the part of the link that is in use, 0 to 1.
func (r Rate) share() (float64, bool) {
	share := r.BytesPerSecond / r.LinkBytesPerSecond
	// Written so that a share that is no number, from a faulty sender, is not known either.
	if known := r.LinkBytesPerSecond > 0 && share >= 0; !known {
		return 0, false
	}
	return min(share, 1), true
}
