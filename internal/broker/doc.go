// Package broker is one broker: it watches the fleets of session gateways that are linked, keeps the rules of its operators, and says on
// which gateway a session is to be launched.
//
// It guarantees that
//
//   - Open waits for nobody on the network, and a launch is answered from what is in memory: whoever is down or silent, an answer or a
//     refusal comes at once. What was known before a restart is read from disk;
//   - links, rules and last good views are in a directory of its own, each file whole or the older one; a file of links or rules that
//     cannot be believed keeps the broker from opening, since going on without rules could send sessions where they may not go;
//   - a change of rules is on disk before it counts, needs no other broker, and reaches those that are up; what two of them changed apart
//     is merged as package rules says;
//   - a choice and its being counted are one step, so that launches at the same moment spread;
//   - every launch and outcome is written to the audit, or counted as lost;
//   - after Close none of its goroutines is left and it writes nothing more.
//
// A Broker is safe for concurrent use. Each linked fleet has a goroutine that carries out what its watch says (package watch decides it),
// and the watches are behind one mutex that is held for no call of the network or the disk. It opens no session, and knows neither the
// contract's messages nor who may ask: that is for its caller.
package broker
