// Package datagram carries what nodes say to each other about who is alive (tenure.Message): small datagrams over UDP, sealed
// under the cluster's key, sent and received by one thread that nothing else waits for. It decides nothing about who is alive.
//
// A Link guarantees, of each message that it hands to its Handler:
//
//   - It was sealed by a node that has the cluster's key, as the node number that it is handed over with, for this node. The address
//     from which a datagram came says nothing.
//   - That node is among the peers that were set last.
//   - It is handed over once, and it was sealed after this Link was opened, and after the sender's present session was taken up:
//     nothing of an earlier life of either side comes back. See exchange.
//   - It is one that Decode accepts: known kinds and reasons, numbers within bounds.
//   - Its time of arrival is never before it arrived. See arrivals.
//
// It does not guarantee that a message arrives, nor the order. The network number is that of the socket by which it came, which
// somebody on the way could have chosen.
//
// One goroutine is in Serve, on a thread of its own, and calls the Handler; Queue is for that goroutine only, within the
// Handler's calls. SetPeers, Poke, Realtime, Local and Close are safe for concurrent use. Nothing is allocated for a datagram or
// a turn. Everything is bounded; what is beyond a bound is dropped and counted.
//
// What is on the wire, all numbers big-endian:
//
//	 0  version of this layout: 1
//	 1  what it is: 1 a message, 2 a hello
//	 2  the sender's node number (LNN)
//	 4  the sender's session: 16 random bytes for each Link
//	20  counter: the receiver's node number (16 bits), then the number of the datagram from this session to that node (48 bits)
//	28  the pass: for a message, what the receiver gave the sender's session with a hello, or zeros if that is not known;
//	    for a hello, the session to which it is said
//	44  sealed: the content, and 16 bytes of authentication
//
// It is sealed with XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03), with the 24 bytes from offset 4 as nonce and the first 44 bytes as
// additional data.
package datagram
