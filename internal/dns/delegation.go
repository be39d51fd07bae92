package dns

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// DelegationInput is what a site's DNS must know to send its questions for some zones here.
type DelegationInput struct {
	Zones         []string     // zone names, aliases and reverse zones; each is delegated
	Service       string       // service name
	Addresses     []netip.Addr // all service addresses, whoever holds them
	TTL           time.Duration
	SeparateNames bool // one name for each service address, for sites whose DNS cannot have several under one
}

// delegation is a checked DelegationInput.
type delegation struct {
	zones     []string                       // with trailing dot, in the order given
	reverse   map[string]cluster.ReverseZone // those that are reverse zones
	servers   []nameServer
	addresses []netip.Addr // sorted
	ttl       uint32
}

// nameServer is one name and the addresses under it.
type nameServer struct {
	name      string // with trailing dot
	addresses []netip.Addr
}

// NameServer is one name server of a delegation.
type NameServer struct {
	Name      string       // without trailing dot
	Addresses []netip.Addr // sorted
}

// NameServers are the name servers that Delegation names for each zone: the service name with all service addresses, or with
// SeparateNames one name for each of them.
func NameServers(in DelegationInput) ([]NameServer, error) {
	d, err := in.check()
	if err != nil {
		return nil, fmt.Errorf("naming the servers of a delegation: %w", err)
	}
	servers := make([]NameServer, 0, len(d.servers))
	for _, s := range d.servers {
		servers = append(servers, NameServer{Name: strings.TrimSuffix(s.name, "."), Addresses: s.addresses})
	}
	return servers, nil
}

// flavours are the programs whose configuration can be printed.
var flavours = map[string]func(*delegation) string{
	"bind":         delegateBIND,
	"bind-forward": forwardBIND,
	"windows":      delegateWindows,
	"unbound":      stubUnbound,
	"dnsmasq":      serverDnsmasq,
	"knot":         stubKnot,
	"powerdns":     forwardPowerDNS,
	"coredns":      forwardCoreDNS,
}

// Flavours lists what Delegation can print for, sorted.
func Flavours() []string { return slices.Sorted(maps.Keys(flavours)) }

// Delegation prints what to paste into a site's DNS, so that it asks the service addresses for the zones: the records of
// the parent zone for bind and windows, and the forwarding or stub configuration of a resolver for all others. The text
// ends with a newline, and what is not configuration in it is a comment of that program.
func Delegation(in DelegationInput, flavour string) (string, error) {
	print := flavours[flavour]
	if print == nil {
		return "", fmt.Errorf("printing a delegation: flavour %q is not known; there are %s", flavour, strings.Join(Flavours(), ", "))
	}
	d, err := in.check()
	if err != nil {
		return "", fmt.Errorf("printing a delegation: %w", err)
	}
	return print(d), nil
}

func (in DelegationInput) check() (*delegation, error) {
	d := &delegation{reverse: map[string]cluster.ReverseZone{}, ttl: ttlSeconds(in.TTL), addresses: sortedAddresses(in.Addresses)}
	service, err := encodeName(in.Service)
	switch {
	case in.Service == "":
		return nil, errors.New("the subnet has no service name; set sc-service-name")
	case err != nil:
		return nil, fmt.Errorf("the service name: %w", err)
	case len(d.addresses) == 0:
		return nil, errors.New("the subnet has no service address; set sc-service-addrs")
	case len(in.Zones) == 0:
		return nil, errors.New("there is no zone; set sc-dns-zone on a pool")
	}
	for _, zone := range in.Zones {
		wire, err := encodeName(zone)
		if err != nil {
			return nil, fmt.Errorf("the zone: %w", err)
		}
		d.zones = append(d.zones, wire.String()+".")
		if reverse, err := cluster.ParseReverseZone(zone); err == nil {
			d.reverse[wire.String()+"."] = reverse
		}
	}
	if !in.SeparateNames {
		d.servers = []nameServer{{service.String() + ".", d.addresses}}
		return d, nil
	}
	for i, a := range d.addresses {
		name, err := encodeName(SeparateName(service.String(), i))
		if err != nil {
			return nil, fmt.Errorf("the separate name of service address %v: %w", a, err)
		}
		d.servers = append(d.servers, nameServer{name.String() + ".", []netip.Addr{a}})
	}
	return d, nil
}

// addressesOf are those of a part of a /24, each of which needs an alias in the zone above (RFC 2317 section 4); none of any other zone.
func (d *delegation) addressesOf(zone string) (each []netip.Addr) {
	r, ok := d.reverse[zone]
	if !ok || !r.Classless() {
		return nil
	}
	for a := r.Covers.Low; r.Covers.Contains(a); a = a.Next() {
		each = append(each, a)
	}
	return each
}

// list writes the service addresses between separators.
func (d *delegation) list(before, between, after string) string {
	var b strings.Builder
	for i, a := range d.addresses {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(before + a.String() + after)
	}
	return b.String()
}

// parent splits a zone into its first label and the zone above it, both without trailing dot unless that is the root.
func parent(zone string) (label, above string) {
	label, above, found := strings.Cut(strings.TrimSuffix(zone, "."), ".")
	if !found {
		above = "."
	}
	return label, above
}
