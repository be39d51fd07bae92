// Package watch keeps one fleet in view: when its central manager is asked, what its answers and failures mean, which gateways are
// suspected, how old the view is, and which alarms there are.
//
// Everything that happens goes through Watch.Step: an answer, a failed poll, a probe, a launch, a view from disk, time. Step says what is
// to be done: poll, probe, keep the view on disk. It guarantees that
//
//   - a view is replaced only by a better one: an answer that is garbled, empty or contradictory leaves the last good one in place;
//   - the age of a view is counted on the monotonic clock that is passed in, and a view from disk is never counted younger than it is
//     known to be;
//   - a central manager is down after as many failed polls as the link says, or at once after two refused connections; one that answers
//     nonsense is not down, but its view ages;
//   - a poll or probe that never comes back is given up, so that no lost event stops the watching;
//   - a gateway that did not answer a probe or a launch is suspected until a probe or a launch reaches it, and launches and probes are
//     judged by this broker alone.
//
// A Watch is pure: it has no clock, goroutine or socket, and is for one caller at a time. It does not choose gateways; package choice
// does, from the Picture.
package watch
