package dns

import (
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// The SOA of each zone as it stands in a positive and a negative answer.
const (
	soaData       = "ssip.example.com. hostmaster.cluster.example.com. 42 min 5"
	clusterNo     = "cluster.example.com. 5 SOA " + soaData
	clusterSOA    = "cluster.example.com. 900 SOA " + soaData
	plainNo       = "plain.example.org. 5 SOA ns.deep.plain.example.org. hostmaster.plain.example.org. 42 min 5"
	subNo         = "sub.plain.example.org. 5 SOA ns.deep.plain.example.org. hostmaster.sub.plain.example.org. 42 min 5"
	ssipNo        = "ssip.example.com. 5 SOA ssip.example.com. hostmaster.ssip.example.com. 42 min 5"
	ssipAddresses = "ssip.example.com. 900 A 10.0.0.4\nssip.example.com. 900 A 10.0.0.5\nssip.example.com. 900 AAAA 2001:db8::4"
)

// rcodeRow is one row of the table of docs/dns.md, "What is answered to what".
type rcodeRow struct {
	why        string
	q          asked
	rcode      dnsmessage.RCode
	aa         bool
	answer     string
	authority  string
	additional string
}

const (
	tA, tAAAA, tNS, tSOA, tTXT, tANY = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeNS, dnsmessage.TypeSOA, dnsmessage.TypeTXT, dnsmessage.TypeALL
	noError, nxDomain, refusedCode   = dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError, dnsmessage.RCodeRefused
)

var rcodeTable = []rcodeRow{
	{why: "zone name, by policy", q: asked{name: "cluster.example.com.", qtype: tA}, aa: true,
		answer: "cluster.example.com. 0 A 10.0.1.1"},
	{why: "IPv6 pool under the same name", q: asked{name: "cluster.example.com.", qtype: tAAAA}, aa: true,
		answer: "cluster.example.com. 0 AAAA 2001:db8:0:1::1"},
	{why: "alias", q: asked{name: "files.example.com.", qtype: tA}, aa: true,
		answer: "files.example.com. 0 A 10.0.1.1"},
	{why: "NS is the service name alone, with all its held addresses beside it", q: asked{name: "cluster.example.com.", qtype: tNS}, aa: true,
		answer: "cluster.example.com. 900 NS ssip.example.com.", additional: ssipAddresses},
	{why: "SOA has the server TTL", q: asked{name: "cluster.example.com.", qtype: tSOA}, aa: true, answer: clusterSOA},
	{why: "other types: NODATA with SOA (RFC 2308 2.2)", q: asked{name: "cluster.example.com.", qtype: tTXT}, aa: true, authority: clusterNo},
	{why: "unassigned types are types (RFC 3597)", q: asked{name: "cluster.example.com.", qtype: 65280}, aa: true, authority: clusterNo},
	{why: "ANY is minimal (RFC 8482 4.2)", q: asked{name: "cluster.example.com.", qtype: tANY}, aa: true,
		answer: "cluster.example.com. 900 HINFO \"\\aRFC8482\\x00\""},
	{why: "wildcard", q: asked{name: "bucket.cluster.example.com.", qtype: tA}, aa: true,
		answer: "bucket.cluster.example.com. 0 A 10.0.1.1"},
	{why: "wildcard at any depth (RFC 4592 3.3)", q: asked{name: "a.b.cluster.example.com.", qtype: tA}, aa: true,
		answer: "a.b.cluster.example.com. 0 A 10.0.1.1"},
	{why: "a wildcard has no NS", q: asked{name: "bucket.cluster.example.com.", qtype: tNS}, aa: true, authority: clusterNo},
	{why: "an alias has its own SOA", q: asked{name: "files.example.com.", qtype: tTXT}, aa: true,
		authority: "files.example.com. 5 SOA ssip.example.com. hostmaster.files.example.com. 42 min 5"},

	{why: "AAAA of an IPv4-only zone is NODATA, never NXDOMAIN (RFC 4074 4.2)", q: asked{name: "plain.example.org.", qtype: tAAAA}, aa: true, authority: plainNo},
	{why: "no wildcard: NXDOMAIN with SOA (RFC 2308 2.1)", q: asked{name: "www.plain.example.org.", qtype: tA}, rcode: nxDomain, aa: true, authority: plainNo},
	{why: "ANY of a name that is not", q: asked{name: "www.plain.example.org.", qtype: tANY}, rcode: nxDomain, aa: true, authority: plainNo},
	{why: "empty non-terminal: NODATA (RFC 8020)", q: asked{name: "deep.plain.example.org.", qtype: tA}, aa: true, authority: plainNo},
	{why: "empty non-terminal: ANY", q: asked{name: "deep.plain.example.org.", qtype: tANY}, aa: true, authority: plainNo},
	{why: "beside the host below an empty non-terminal", q: asked{name: "x.deep.plain.example.org.", qtype: tA}, rcode: nxDomain, aa: true, authority: plainNo},
	{why: "service name inside a zone", q: asked{name: "ns.deep.plain.example.org.", qtype: tA}, aa: true,
		answer: "ns.deep.plain.example.org. 900 A 10.0.0.7"},
	{why: "a host inside a zone has no SOA", q: asked{name: "ns.deep.plain.example.org.", qtype: tSOA}, aa: true, authority: plainNo},
	{why: "below a host", q: asked{name: "x.ns.deep.plain.example.org.", qtype: tA}, rcode: nxDomain, aa: true, authority: plainNo},
	{why: "separate name inside a zone", q: asked{name: "ns1-ns.deep.plain.example.org.", qtype: tA}, aa: true,
		answer: "ns1-ns.deep.plain.example.org. 900 A 10.0.0.7"},
	{why: "a zone inside a zone", q: asked{name: "sub.plain.example.org.", qtype: tTXT}, aa: true, authority: subNo},
	{why: "below the inner zone", q: asked{name: "x.sub.plain.example.org.", qtype: tA}, rcode: nxDomain, aa: true, authority: subNo},
	{why: "DS is the parent's business (RFC 4035 3.1.4.1)", q: asked{name: "sub.plain.example.org.", qtype: typeDS}, aa: true, authority: plainNo},
	{why: "DS with the parent elsewhere", q: asked{name: "plain.example.org.", qtype: typeDS}, aa: true, authority: plainNo},

	{why: "service name", q: asked{name: "ssip.example.com.", qtype: tA}, aa: true,
		answer: "ssip.example.com. 900 A 10.0.0.4\nssip.example.com. 900 A 10.0.0.5"},
	{why: "service name, IPv6", q: asked{name: "ssip.example.com.", qtype: tAAAA}, aa: true, answer: "ssip.example.com. 900 AAAA 2001:db8::4"},
	{why: "service name, other types", q: asked{name: "ssip.example.com.", qtype: tTXT}, aa: true, authority: ssipNo},
	{why: "separate name of an address that nobody holds now", q: asked{name: "ns3-ssip.example.com.", qtype: tA}, aa: true,
		answer: "ns3-ssip.example.com. 900 A 10.0.0.6"},

	{why: "no node, on-none servfail", q: asked{name: "nobody.example.net.", qtype: tA}, rcode: dnsmessage.RCodeServerFailure},
	{why: "no node, but other types as ever", q: asked{name: "nobody.example.net.", qtype: tAAAA}, aa: true,
		authority: "nobody.example.net. 5 SOA ssip.example.com. hostmaster.nobody.example.net. 42 min 5"},

	{why: "outside every zone (RFC 1035 4.1.1)", q: asked{name: "www.example.com.", qtype: tA}, rcode: refusedCode},
	{why: "above a zone", q: asked{name: "example.com.", qtype: tSOA}, rcode: refusedCode},
	{why: "the root", q: asked{name: ".", qtype: tNS}, rcode: refusedCode},

	{why: "search domain: zone", q: asked{name: "cluster.", qtype: tA}, aa: true, answer: "cluster. 0 A 10.0.1.1"},
	{why: "search domain: letter case", q: asked{name: "cLuStEr.", qtype: tA}, aa: true, answer: "cLuStEr. 0 A 10.0.1.1"},
	{why: "search domain: IPv6", q: asked{name: "cluster.", qtype: tAAAA}, aa: true, answer: "cluster. 0 AAAA 2001:db8:0:1::1"},
	{why: "search domain: alias", q: asked{name: "files.", qtype: tA}, aa: true, answer: "files. 0 A 10.0.1.1"},
	{why: "search domain: below a zone with a wildcard", q: asked{name: "a.bucket.cluster.", qtype: tA}, aa: true, answer: "a.bucket.cluster. 0 A 10.0.1.1"},
	{why: "search domain: service name", q: asked{name: "ssip.", qtype: tA}, aa: true, answer: "ssip. 900 A 10.0.0.4\nssip. 900 A 10.0.0.5"},
	{why: "search domain: NS is the service name in full", q: asked{name: "cluster.", qtype: tNS}, aa: true,
		answer: "cluster. 900 NS ssip.example.com.", additional: ssipAddresses},
	{why: "search domain: SOA", q: asked{name: "cluster.", qtype: tSOA}, aa: true, answer: "cluster. 900 SOA " + soaData},
	{why: "search domain: ANY", q: asked{name: "cluster.", qtype: tANY}, aa: true, answer: "cluster. 900 HINFO \"\\aRFC8482\\x00\""},
	{why: "search domain: NODATA has the SOA under the name that was asked", q: asked{name: "cluster.", qtype: tTXT}, aa: true, authority: "cluster. 5 SOA " + soaData},
	{why: "search domain: NODATA of a wildcard", q: asked{name: "bucket.cluster.", qtype: tNS}, aa: true, authority: "cluster. 5 SOA " + soaData},
	{why: "search domain: AAAA of an IPv4-only zone", q: asked{name: "sub.", qtype: tAAAA}, aa: true, authority: "sub. 5 SOA" + subNo[len("sub.plain.example.org. 5 SOA"):]},
	{why: "search domain: the SOA of a zone that is itself one", q: asked{name: "deep.", qtype: tA}, aa: true, authority: "deep. 5 SOA" + plainNo[len("plain.example.org. 5 SOA"):]},
	{why: "search domain: DS", q: asked{name: "sub.", qtype: typeDS}, aa: true, authority: "sub. 5 SOA" + plainNo[len("plain.example.org. 5 SOA"):]},
	{why: "search domain: no node", q: asked{name: "nobody.", qtype: tA}, rcode: dnsmessage.RCodeServerFailure},
	{why: "search domain: a name that it does not complete", q: asked{name: "www.", qtype: tA}, rcode: refusedCode},
	{why: "search domain: nor denies below a zone", q: asked{name: "x.sub.", qtype: tA}, rcode: refusedCode},
	{why: "search domain: part of the domain in the name", q: asked{name: "cluster.example.", qtype: tA}, rcode: refusedCode},
	{why: "search domain: only for what is outside every zone", q: asked{name: "cluster.plain.example.org.", qtype: tA}, rcode: nxDomain, aa: true, authority: plainNo},
	{why: "search domain: zone transfer", q: asked{name: "cluster.", qtype: dnsmessage.TypeAXFR}, rcode: refusedCode},
	{why: "search domain: class CHAOS", q: asked{name: "cluster.", qtype: tA, class: dnsmessage.ClassCHAOS}, rcode: refusedCode},

	{why: "class CHAOS", q: asked{name: "version.bind.", qtype: tTXT, class: dnsmessage.ClassCHAOS}, rcode: refusedCode},
	{why: "class ANY", q: asked{name: "cluster.example.com.", qtype: tA, class: dnsmessage.ClassANY}, rcode: refusedCode},
	{why: "zone transfer", q: asked{name: "cluster.example.com.", qtype: dnsmessage.TypeAXFR}, rcode: refusedCode},
	{why: "incremental zone transfer", q: asked{name: "cluster.example.com.", qtype: typeIXFR}, rcode: refusedCode},
	{why: "OPT as a question (RFC 6891 6.1.1)", q: asked{name: "cluster.example.com.", qtype: dnsmessage.TypeOPT}, rcode: dnsmessage.RCodeFormatError},
	{why: "obsolete mail types (RFC 1035 3.2.3)", q: asked{name: "cluster.example.com.", qtype: typeMAILB}, rcode: dnsmessage.RCodeNotImplemented},
	{why: "NOTIFY", q: asked{name: "cluster.example.com.", qtype: tSOA, opcode: 4}, rcode: dnsmessage.RCodeNotImplemented},
	{why: "UPDATE (RFC 2136 3.1)", q: asked{name: "cluster.example.com.", qtype: tSOA, opcode: 5}, rcode: dnsmessage.RCodeNotImplemented},
	{why: "IQUERY (RFC 3425)", q: asked{name: "cluster.example.com.", qtype: tA, opcode: 1}, rcode: dnsmessage.RCodeNotImplemented},

	{why: "EDNS version 1 (RFC 6891 6.1.3)", q: asked{name: "cluster.example.com.", qtype: tA, edns: true, version: 1}, rcode: rcodeBadVersion},
	{why: "EDNS, with an option that nobody knows", q: asked{name: "cluster.example.com.", qtype: tA, edns: true,
		options: []dnsmessage.Option{{Code: 65001, Data: []byte("x")}}}, aa: true, answer: "cluster.example.com. 0 A 10.0.1.1"},
	{why: "letter case", q: asked{name: "cLuStEr.eXample.COM.", qtype: tA}, aa: true, answer: "cLuStEr.eXample.COM. 0 A 10.0.1.1"},
	{why: "letter case in the owner of the SOA", q: asked{name: "x.PLAIN.example.org.", qtype: tA}, rcode: nxDomain, aa: true,
		authority: "PLAIN" + plainNo[len("plain"):]},
}

// TestTableOfAnswers asks every row over UDP and over TCP, of a fresh answerer, so that the policy begins at node 1.
func TestTableOfAnswers(t *testing.T) {
	for _, row := range rcodeTable {
		for _, transport := range []string{"udp", "tcp"} {
			t.Run(row.why+"/"+transport, func(t *testing.T) {
				row.q.rd = true
				req := udp(row.q.pack(t))
				req.TCP = transport == "tcp"
				m := ask(t, newTestAnswerer(t, testView(), AnswererOptions{}), req)
				if got := rcodeOf(m); got != row.rcode {
					t.Errorf("rcode %v, want %v", got, row.rcode)
				}
				if m.ID != 0x1234 || !m.Response || m.OpCode != row.q.opcode || !m.RecursionDesired || m.RecursionAvailable || m.Truncated {
					t.Errorf("header %+v", m.Header)
				}
				if m.Authoritative != row.aa {
					t.Errorf("AA is %v, want %v", m.Authoritative, row.aa)
				}
				for _, s := range []struct {
					name string
					got  []dnsmessage.Resource
					want string
				}{{"answer", m.Answers, row.answer}, {"authority", m.Authorities, row.authority}, {"additional", m.Additionals, row.additional}} {
					if got := text(s.got); got != s.want {
						t.Errorf("%s section:\n%s\nwant:\n%s", s.name, got, s.want)
					}
				}
			})
		}
	}
}
