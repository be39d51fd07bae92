// Package choice picks the gateway that a session is launched on, and says why that one, who would be next, who was left out and why, and
// how old the news are that it rests on.
//
// The order is: the policy's fleet; the network of the target, by assignment, by the longest subnet, or the default one; the roles, the
// protocol, who is alive, what probes and launches found; then the order that the rule says, the fitness, and the lowest key.
//
// It guarantees that
//
//   - no gateway is picked that its roles, its central manager, or (but under strict) this broker's own experience rule out;
//   - a central manager that cannot be reached is not picked either, whatever the last good view says of it;
//   - the result is a function of what was passed in; a dry run is the same call;
//   - whatever is asked, the outcome is an Answer or a Refusal whose text says what, since when, and what to do.
//
// It is pure and does not change what it is given. Several may be made at once, as long as nobody changes the pictures meanwhile.
// It polls nobody, dials nobody, and does not count launches: package watch does.
package choice
