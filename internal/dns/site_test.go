package dns

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// site is a DNS server of a site: what it says to "NAME TYPE", or to "NAME TYPE here" without looking elsewhere. Each line is a response
// code in small letters ("nxdomain"), a record of the answer ("A 10.0.0.1", "NS name", "CNAME name"), or with a + one of the authority
// section. A question that it does not have gets silence.
type site struct {
	says   map[string]string
	refers bool // it resolves for nobody
	asked  []string
}

func (s *site) ask(q SiteQuestion) (SiteReply, error) {
	key := q.Name + " " + strings.TrimPrefix(q.Type.String(), "Type")
	if !q.Recurse {
		key += " here"
	}
	s.asked = append(s.asked, key)
	said, known := s.says[key]
	if !known {
		return SiteReply{Silence: "no answer to " + key}, nil
	}
	r := SiteReply{Recurses: !s.refers}
	for line := range strings.Lines(said) {
		fields := strings.Fields(strings.TrimSpace(line))
		if len(fields) == 1 {
			for code, name := range rcodeNames {
				if name == fields[0] {
					r.RCode = code
				}
			}
			continue
		}
		kind, beside := strings.CutPrefix(fields[0], "+")
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(strings.ToUpper(q.Name) + "."), Type: q.Type}
		var body dnsmessage.ResourceBody
		switch kind {
		case "A":
			body = &dnsmessage.AResource{A: netip.MustParseAddr(fields[1]).As4()}
		case "AAAA":
			body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(fields[1]).As16()}
		case "NS":
			h.Type = dnsmessage.TypeNS
			body = &dnsmessage.NSResource{NS: dnsmessage.MustNewName(fields[1])}
		case "PTR":
			h.Type = dnsmessage.TypePTR
			body = &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(fields[1])}
		case "CNAME":
			body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(fields[1])}
		}
		if beside {
			r.Beside = append(r.Beside, dnsmessage.Resource{Header: h, Body: body})
		} else {
			r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: body})
		}
	}
	return r, nil
}

var testLead = Lead{
	Zone:     "data.test",
	Services: []DelegationInput{{Service: "ssip.test", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.5")}}},
	IPv4:     true,
	Given:    func(a netip.Addr) bool { return netip.MustParsePrefix("10.0.1.0/24").Contains(a) },
}

// TestSiteCheck is a table of sites and of what is wrong with each.
func TestSiteCheck(t *testing.T) {
	const service = "A 10.0.0.4\nA 10.0.0.5"
	dual := testLead
	dual.IPv6 = true
	for _, c := range []struct {
		why   string
		lead  Lead
		site  site
		wrong string // what is wrong, in one line; empty: nothing
	}{
		{"all is well", testLead, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": service, "data.test A": "A 10.0.1.7"}}, ""},
		{"letter case", testLead, site{says: map[string]string{"data.test NS": "NS SSIP.Test.", "ssip.test A": service, "data.test A": "A 10.0.1.7"}}, ""},
		{"separate names", testLead, site{says: map[string]string{"data.test NS": "NS ns1-ssip.test.\nNS ns2-ssip.test.",
			"ns1-ssip.test A": "A 10.0.0.4", "ns2-ssip.test A": "A 10.0.0.5", "data.test A": "A 10.0.1.7"}}, ""},
		{"forwarding, where nobody has the service name", testLead, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": "nxdomain", "data.test A": "A 10.0.1.7"}}, ""},
		{"an alias leads to the zone", testLead, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": service, "data.test A": "CNAME x.test.\nA 10.0.1.7"}}, ""},
		{"a referral from a server that resolves for nobody", testLead, site{refers: true, says: map[string]string{"data.test NS": "+NS ssip.test.", "ssip.test A": service, "data.test A": "+NS ssip.test."}}, ""},
		{"the same from one that should resolve", testLead, site{says: map[string]string{"data.test NS": "+NS ssip.test.", "ssip.test A": service, "data.test A": "+NS ssip.test."}}, "A: no address"},
		{"not delegated, the name unknown", testLead, site{says: map[string]string{"data.test NS": "nxdomain"}}, "NS: NXDOMAIN: the server knows of no such name, so the zone is not delegated there"},
		{"not delegated, the name known", testLead, site{says: map[string]string{"data.test NS": ""}}, "NS: no such record: the zone is not delegated"},
		{"delegated to somebody else", testLead, site{says: map[string]string{"data.test NS": "NS old.test.", "data.test A": "A 10.9.9.9"}},
			"NS: leads to old.test, which is not the service name ssip.test; A: 10.9.9.9, which no pool of the zone has"},
		{"to somebody else too", testLead, site{says: map[string]string{"data.test NS": "NS old.test.\nNS ssip.test.", "ssip.test A": service, "data.test A": "A 10.0.1.7"}},
			"NS: leads to old.test, which is not the service name ssip.test"},
		{"a service address that was given up", testLead, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": service + "\nA 10.0.0.6", "data.test A": "A 10.0.1.7"}},
			"A of the name server ssip.test: 10.0.0.6, which is no service address"},
		{"service addresses out of reach", testLead, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": service, "data.test A": "servfail"}},
			"A: SERVFAIL: the server gets no answer that it takes; can it reach the service addresses 10.0.0.4, 10.0.0.5, is the zone above it unsigned, and may any node be given?"},
		{"this node may not ask", testLead, site{says: map[string]string{"data.test NS": "refused"}}, "NS: REFUSED: the server does not resolve for this node"},
		{"one family is missing", dual, site{says: map[string]string{"data.test NS": "NS ssip.test.", "ssip.test A": service, "data.test A": "A 10.0.1.7", "data.test AAAA": ""}}, "AAAA: no address"},
		{"it waits for service addresses", testLead, site{says: map[string]string{"data.test NS here": "+NS ssip.test."}},
			"it answers, but finds nothing out about the zone in time: does the delegation lead to the service addresses 10.0.0.4, 10.0.0.5, and can it reach them over UDP and TCP on port 53?"},
		{"nobody there", testLead, site{}, "no answer to data.test NS here; is it the address of a DNS server, and may this node ask it?"},
		{"long and strange", testLead, site{says: map[string]string{"data.test NS": "NS a\x07.\nNS b.\nNS c.\nNS d.\nNS e.\nNS f.", "data.test A": "A 10.0.1.7"}},
			"NS: leads to a?, b, c, d and 2 more, which is not the service name ssip.test"},
	} {
		t.Run(c.why, func(t *testing.T) {
			wrong, silent := c.lead.Check(c.site.ask)
			if got := strings.Join(wrong, "; "); got != c.wrong {
				t.Errorf("wrong: %q\nwant:  %q\nasked: %q", got, c.wrong, c.site.asked)
			}
			if silent != (c.why == "nobody there") {
				t.Errorf("silent: %v", silent)
			}
		})
	}
}

// TestSiteCheckOtherFailures: a reply that cannot be read is not silence.
func TestSiteCheckOtherFailures(t *testing.T) {
	wrong, silent := testLead.Check(func(SiteQuestion) (SiteReply, error) { return SiteReply{}, errors.New("malformed") })
	if silent || strings.Join(wrong, "; ") != "NS: malformed" {
		t.Errorf("%q, silent %v", wrong, silent)
	}
}

// TestReverseLead: a reverse zone has no addresses of its own; an address in it is asked for by the name that clients ask for, so that the
// alias above a part of a /24 is looked at too (RFC 2317 section 4).
func TestReverseLead(t *testing.T) {
	lead := testLead
	lead.Zone, lead.IPv4, lead.Address, lead.Called = "0-127.2.0.10.in-addr.arpa", false, netip.MustParseAddr("10.0.2.7"), "data.test"
	for what, c := range map[string]struct{ ns, ptr, want string }{
		"all is well":              {"NS ssip.test.", "CNAME 7.0-127.2.0.10.in-addr.arpa.\nPTR DATA.test.", ""},
		"a referral alone":         {"NS ssip.test.", "+NS ssip.test.", "PTR of 10.0.2.7: no name"},
		"the alias is missing":     {"NS ssip.test.", "nxdomain", "PTR: NXDOMAIN"},
		"another name":             {"NS ssip.test.", "PTR old.test.", "PTR of 10.0.2.7: old.test, and not data.test"},
		"the zone leads elsewhere": {"NS ns.else.test.", "PTR data.test.", "NS: leads to ns.else.test"},
	} {
		s := site{says: map[string]string{lead.Zone + " NS": c.ns, "ssip.test A": "A 10.0.0.4\nA 10.0.0.5", "7.2.0.10.in-addr.arpa PTR": c.ptr}}
		wrong, silent := lead.Check(s.ask)
		if got := strings.Join(wrong, "; "); silent || !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, %v; want %q", what, got, silent, c.want)
		}
	}
	s := site{refers: true, says: map[string]string{lead.Zone + " NS": "+NS ssip.test.", "ssip.test A": "A 10.0.0.4", "7.2.0.10.in-addr.arpa PTR": "+NS ssip.test."}}
	if wrong, _ := lead.Check(s.ask); len(wrong) > 0 {
		t.Errorf("a server that refers: %v", wrong)
	}
}
