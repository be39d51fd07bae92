package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// SiteQuestion is what a DNS server of the site is asked.
type SiteQuestion struct {
	Name    string
	Type    dnsmessage.Type
	Recurse bool // the server shall find the answer, as it does for its clients
}

// SiteReply is what it said.
type SiteReply struct {
	Silence  string // not empty: it said nothing, and this is how
	RCode    dnsmessage.RCode
	Recurses bool // it finds answers for whoever asks it to
	Answers  []dnsmessage.Resource
	Beside   []dnsmessage.Resource // the authority section
}

// Lead is where the site's DNS should lead for one zone.
type Lead struct {
	Zone       string
	Services   []DelegationInput     // of the zone's pools: service names with their addresses. The delegation may name any of them
	IPv4, IPv6 bool                  // the families of which the zone has a pool
	Given      func(netip.Addr) bool // whether an address is one of the zone's pools
	Address    netip.Addr            // of a reverse zone: an address that has a name there; zero: none is asked for
	Called     string                // that name
}

// Check asks a DNS server of the site, one question at a time, whether it leads to the zone, and says what is wrong; nothing when all is
// well. A server that does not resolve for others but refers to the right name servers does well. silent says that the server said
// nothing at all. An error of ask is for a reply that cannot be read.
func (l Lead) Check(ask func(SiteQuestion) (SiteReply, error)) (wrong []string, silent bool) {
	reply, err := ask(SiteQuestion{Name: l.Zone, Type: dnsmessage.TypeNS, Recurse: true})
	if err == nil && reply.Silence != "" {
		return l.blameSilence(ask)
	}
	var names []string
	if err == nil {
		names, wrong, err = l.judgeServers(reply)
	}
	if err != nil {
		return []string{"NS: " + err.Error()}, false
	}
	for _, name := range names {
		wrong = append(wrong, l.checkServer(ask, name)...)
	}
	for _, t := range l.types() {
		if fault := l.checkAddresses(ask, t); fault != "" {
			wrong = append(wrong, fault)
		}
	}
	if l.Address.IsValid() {
		if fault := l.checkPointer(ask); fault != "" {
			wrong = append(wrong, fault)
		}
	}
	return wrong, false
}

// blameSilence tells a server that says nothing from one that waits for the service addresses: without looking elsewhere it
// answers at once.
func (l Lead) blameSilence(ask func(SiteQuestion) (SiteReply, error)) (wrong []string, silent bool) {
	if reply, err := ask(SiteQuestion{Name: l.Zone, Type: dnsmessage.TypeNS}); err == nil && reply.Silence != "" {
		return []string{reply.Silence + "; is it the address of a DNS server, and may this node ask it?"}, true
	}
	return []string{fmt.Sprintf("it answers, but finds nothing out about the zone in time: does the delegation lead to %s, and can it reach them over UDP and TCP on port 53?", l.addresses())}, false
}

// judgeServers reads which name servers the zone has, and returns those that are a service's. An error says that there are none.
func (l Lead) judgeServers(reply SiteReply) (names, wrong []string, err error) {
	if reply.RCode != dnsmessage.RCodeSuccess {
		return nil, nil, errors.New(l.blame(reply.RCode))
	}
	known := l.serverNames()
	var strange []string
	for _, r := range slices.Concat(reply.Answers, reply.Beside) {
		ns, ok := r.Body.(*dnsmessage.NSResource)
		if !ok || !sameName(r.Header.Name.String(), l.Zone) {
			continue
		}
		name := strings.ToLower(strings.TrimSuffix(ns.NS.String(), "."))
		switch {
		case slices.Contains(names, name):
		case slices.Contains(known, name):
			names = append(names, name)
		default:
			strange = append(strange, printable(name))
		}
	}
	switch {
	case len(strange) > 0:
		wrong = append(wrong, fmt.Sprintf("NS: leads to %s, which is not the service name %s", firstFew(strange), l.serviceNames()))
	case len(names) == 0:
		return nil, nil, errors.New("no such record: the zone is not delegated")
	}
	return names, wrong, nil
}

// firstFew lists the first of some words: what a server says may be long.
func firstFew[T any](words []T) string {
	const few = 4
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == few:
			fmt.Fprintf(&b, " and %d more", len(words)-few)
			return b.String()
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, w)
	}
	return b.String()
}

// printable is a name from the wire for people.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// checkServer asks where a name server is. That it is not found is no fault: configurations that forward do without it.
func (l Lead) checkServer(ask func(SiteQuestion) (SiteReply, error), name string) (wrong []string) {
	services := l.serviceAddresses()
	for _, t := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		if !slices.ContainsFunc(services, func(a netip.Addr) bool { return a.Is4() == (t == dnsmessage.TypeA) }) {
			continue
		}
		reply, err := ask(SiteQuestion{Name: name, Type: t, Recurse: true})
		if err != nil || reply.Silence != "" || reply.RCode != dnsmessage.RCodeSuccess {
			continue
		}
		if strange := slices.DeleteFunc(addressesIn(reply.Answers), func(a netip.Addr) bool { return slices.Contains(services, a) }); len(strange) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s of the name server %s: %s, which is no service address", word(t), name, firstFew(strange)))
		}
	}
	return wrong
}

// checkAddresses asks for an address of the zone, as a client does.
func (l Lead) checkAddresses(ask func(SiteQuestion) (SiteReply, error), t dnsmessage.Type) string {
	answers, fault := l.find(ask, SiteQuestion{Name: l.Zone, Type: t, Recurse: true})
	if fault != "" || answers == nil {
		return fault
	}
	got := addressesIn(answers)
	if len(got) == 0 {
		return word(t) + ": no address"
	}
	if strange := slices.DeleteFunc(got, l.Given); len(strange) > 0 {
		return fmt.Sprintf("%s: %s, which no pool of the zone has", word(t), firstFew(strange))
	}
	return ""
}

// checkPointer asks what an address is called, by the name that clients ask for: where the zone is a part of a /24, the alias in the zone
// above has to be there too.
func (l Lead) checkPointer(ask func(SiteQuestion) (SiteReply, error)) string {
	answers, fault := l.find(ask, SiteQuestion{Name: cluster.ReverseNameOf(l.Address), Type: dnsmessage.TypePTR, Recurse: true})
	if fault != "" || answers == nil {
		return fault
	}
	var strange []string
	for _, r := range answers {
		if ptr, ok := r.Body.(*dnsmessage.PTRResource); ok {
			if sameName(ptr.PTR.String(), l.Called) {
				return ""
			}
			strange = append(strange, printable(strings.TrimSuffix(ptr.PTR.String(), ".")))
		}
	}
	if len(strange) == 0 {
		return fmt.Sprintf("PTR of %v: no name", l.Address)
	}
	return fmt.Sprintf("PTR of %v: %s, and not %s", l.Address, firstFew(strange), l.Called)
}

// find asks for what the zone has and returns the answers; none and no fault for a referral, from a server that gives nothing else.
func (l Lead) find(ask func(SiteQuestion) (SiteReply, error), q SiteQuestion) (answers []dnsmessage.Resource, fault string) {
	reply, err := ask(q)
	switch {
	case err != nil:
		return nil, fmt.Sprintf("%s: %v", word(q.Type), err)
	case reply.Silence != "":
		return nil, fmt.Sprintf("%s: %s", word(q.Type), reply.Silence)
	case reply.RCode != dnsmessage.RCodeSuccess:
		return nil, word(q.Type) + ": " + l.blame(reply.RCode)
	}
	referral := !reply.Recurses && slices.ContainsFunc(reply.Beside, func(r dnsmessage.Resource) bool { return r.Header.Type == dnsmessage.TypeNS })
	if len(reply.Answers) == 0 && referral {
		return nil, ""
	}
	return append([]dnsmessage.Resource{}, reply.Answers...), ""
}

// blame says what a response code means for a delegation.
func (l Lead) blame(code dnsmessage.RCode) string {
	switch code {
	case dnsmessage.RCodeNameError:
		return "NXDOMAIN: the server knows of no such name, so the zone is not delegated there"
	case dnsmessage.RCodeServerFailure:
		return fmt.Sprintf("SERVFAIL: the server gets no answer that it takes; can it reach %s, is the zone above it unsigned, and may any node be given?", l.addresses())
	case dnsmessage.RCodeRefused:
		return "REFUSED: the server does not resolve for this node"
	}
	if name, known := rcodeNames[code]; known {
		return strings.ToUpper(name)
	}
	return fmt.Sprintf("response code %d", code)
}

func (l Lead) types() (types []dnsmessage.Type) {
	if l.IPv4 {
		types = append(types, dnsmessage.TypeA)
	}
	if l.IPv6 {
		types = append(types, dnsmessage.TypeAAAA)
	}
	return types
}

// serverNames are all names that a delegation may name, in lower case.
func (l Lead) serverNames() (names []string) {
	for _, s := range l.Services {
		names = append(names, strings.ToLower(s.Service))
		for i := range s.Addresses {
			names = append(names, strings.ToLower(SeparateName(s.Service, i)))
		}
	}
	return names
}

func (l Lead) serviceNames() string {
	var names []string
	for _, s := range l.Services {
		names = append(names, s.Service)
	}
	return strings.Join(names, " or ")
}

func (l Lead) serviceAddresses() (all []netip.Addr) {
	for _, s := range l.Services {
		all = append(all, s.Addresses...)
	}
	return sortedAddresses(all)
}

// addresses lists some service addresses for people.
func (l Lead) addresses() string {
	return "the service addresses " + firstFew(l.serviceAddresses())
}

func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

func word(t dnsmessage.Type) string { return strings.TrimPrefix(t.String(), "Type") }

// addressesIn are the addresses among some records; those of aliases are answers too.
func addressesIn(records []dnsmessage.Resource) (addresses []netip.Addr) {
	for _, r := range records {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addresses = append(addresses, netip.AddrFrom4(body.A))
		case *dnsmessage.AAAAResource:
			addresses = append(addresses, netip.AddrFrom16(body.AAAA))
		}
	}
	return sortedAddresses(addresses)
}
