// Package dns answers for the delegated zones: which address of which node a client gets, and every other question
// that a resolver may put to an authoritative server (docs/dns.md).
//
// It has two layers. An Answerer turns one query into at most one response: it opens no socket, starts no goroutine and
// reads no clock. A batch does the same for queries that came together, from responses that were prepared with the view, and leaves to the
// Answerer what is unusual. A Server puts both behind UDP and TCP sockets, for each service address one of UDP for each processor and one of
// TCP, so that a response leaves from the address that was asked.
//
// What it guarantees:
//   - The question is echoed byte for byte, names compare without case, and no response is larger than its transport
//     and the client allow; what does not fit over UDP is marked truncated.
//   - A query that cannot be understood gets FORMERR or silence. It never ends the process.
//   - A name that exists without the type asked for is NODATA with SOA, a name that does not exist is NXDOMAIN with SOA,
//     and a name outside every zone is REFUSED (RFC 2308, RFC 8020; RFC 1035 section 4.1.1).
//   - Until the first view that says Ready it answers SERVFAIL, so that resolvers turn to another service address.
//   - Memory is bounded: connections, query sizes, the rate table and the answers waiting to be shared all have limits.
//
// Everything exported is safe for concurrent use. To answer a query from what is prepared no lock is taken, nothing is allocated, and
// nothing is written that another processor uses (docs/decisions/0021-picks-ahead.md). SetView prepares an immutable table and swaps it in; queries that are
// under way finish on the table they began with.
//
// Messages are read with golang.org/x/net/dns/dnsmessage, which also packs the records that are prepared with a view.
// The frame of a response is written here, because that package cannot echo every legal name byte for byte (it refuses
// a label with a dot in it) and because nothing should be allocated for an answer.
//
// It does not know who is alive, who holds what or how busy anyone is: the view says so. It transfers no zone, accepts
// no update or notify, signs nothing and resolves nothing.
package dns
