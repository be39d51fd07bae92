// Package member makes a gateway a member of a fleet of Holdfast's own: it reports to the fleet's central manager, and the central manager answers
// brokers for all, as `/api/cluster/nodes`, `/api/cluster/status` and `/api/health_status` of the vendor's gateways do (package fleet reads them).
//
// It guarantees that
//
//   - a member speaks only for itself: what it says counts for the key whose certificate it has proved to hold, and for no other;
//   - a member that has not been heard for three beats is down, and one that is heard again is up, by the central manager's own clock and nobody else's;
//   - a central manager that has just started takes nobody for up or for down: until three beats have passed, who has not been heard is unknown. What
//     members said of themselves (roles, address, ports, host keys) is remembered on disk, so that a list is whole at once. The same is so of one that has heard nobody for a while, as when it was cut off, from the first beat that comes again;
//   - a beat counts once, and one of an earlier process of a member not at all while the later one lives;
//   - there is one search-primary at a time, and nobody but the central manager is one;
//   - nobody reads and nobody reports whose certificate is not listed.
//
// The Roster and everything in beat.go, roles.go, answers.go and remember.go is pure and belongs to one goroutine at a time. A Station is the shell around it:
// HTTPS with certificates that are known by their fingerprints (package pin). It is safe for concurrent use. Requests, connections, times and members are bounded.
// A gateway's sessions do not depend on any of this: they go on, and new ones begin, while nobody hears its beats.
package member
