// Package placement chooses: which member interface owns each address of a pool, who takes it when the owner dies,
// when addresses may return home, how many addresses a pool needs, and which node a DNS answer names.
//
// It guarantees, for every dynamic pool and whatever it is given:
//
//   - Every address has an owner as soon as one candidate is fit.
//   - An address whose owner is fit stays, unless the request allows a rebalance or pins the address elsewhere.
//   - An address whose owner is not fit goes to the next on record if that one is fit, and only otherwise elsewhere.
//   - After a rebalance of movable addresses the spread is as even as weights and pins allow (with equal weights no
//     member holds two more than another), first over member interfaces, then over nodes, with the fewest moves. Where only
//     some addresses are movable, they move only as far as this would move them too: no step is taken that another undoes.
//   - Nexts are chosen so that the spread is as even as it can be after the death of any one node, never on the
//     owner's node while another node is fit.
//   - The result is a function of the request's contents, not of the order in which they are listed, and a second
//     call with the first one's result changes nothing.
//
// Evenness is the least sum of n*n/weight over the members, n being the addresses that a member holds: for equal
// weights that is max-min <= 1, and for others the nearest whole numbers to the ideal shares (the method of Webster
// and Sainte-Laguë). The unit is the member interface, as in the original: a node with two in a pool counts twice.
//
// Everything here is pure: no clock, randomness, goroutine, socket or logger; time and measurements come as values.
// Functions may be called from several goroutines and do not change their input. A Rotation is a value with state: one
// caller at a time.
//
// It does not decide who is alive or fit, does not move anything, and knows nothing of incarnations or epochs.
package placement
