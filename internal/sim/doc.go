// Package sim plays whole clusters in virtual time: nodes with their kernels, guards and agents, the network between them and the
// store, with everything that goes wrong with those, from one seed.
//
// It guarantees that the same scenario yields the same history, event by event, wherever and however often it is played, and that
// after each event the invariants of the product hold or the history ends with what is wrong. What decides in it is the product's own
// code: tenure.Peer, steering, guard.Decide. The glue that the agent has around those exists here a second time, in files that say
// what they mirror; what that glue does wrong in the agent alone, a simulation does not find, and the lab may.
//
// A history has no goroutine, clock or source of chance but its own, and belongs to one caller. Runner plays many beside each other.
//
// It does not carry packets, speak to etcd or a kernel, or measure how fast anything is. A process that stands still does so between
// two steps, never between a look at its right and the system call that follows: behind that are the guard and the kernel's lifetimes.
package sim
