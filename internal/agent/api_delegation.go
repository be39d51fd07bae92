package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// Delegation prints, for each service name, the delegation of all zones that it answers for, or of one of them.
func (s nodeService) Delegation(_ context.Context, r *holdfastv1.DelegationRequest) (*holdfastv1.DelegationResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	flavour := r.Flavour
	if flavour == "" {
		flavour = "bind"
	}
	if !slices.Contains(dns.Flavours(), flavour) {
		return nil, api.Invalid("%q is no kind of DNS server that a delegation can be printed for; there are %s", flavour, strings.Join(dns.Flavours(), ", "))
	}
	inputs, aliases := delegations(v.world.Config, strings.TrimSuffix(r.Zone, "."), r.SeparateNames)
	if len(inputs) == 0 {
		return nil, api.NotFound("no pool has the zone or the alias %q; set it with `holdfast network pools modify POOL --sc-dns-zone NAME`, or --add-sc-dns-zone-aliases", r.Zone)
	}
	response := &holdfastv1.DelegationResponse{}
	for _, in := range inputs {
		text, err := dns.Delegation(*in, flavour)
		if err != nil {
			return nil, api.NotNow("%v", err)
		}
		servers, err := dns.NameServers(*in)
		if err != nil {
			return nil, api.NotNow("%v", err)
		}
		response.Text += text
		for _, zone := range in.Zones {
			response.Zones = append(response.Zones, delegatedZone(zone, aliases[zone], servers))
		}
	}
	return response, nil
}

func delegatedZone(zone, aliasOf string, servers []dns.NameServer) *holdfastv1.DelegatedZone {
	delegated := &holdfastv1.DelegatedZone{Zone: zone, AliasOf: aliasOf}
	for _, server := range servers {
		delegated.Names = append(delegated.Names, server.Name)
		for _, addr := range server.Addresses {
			delegated.Addresses = append(delegated.Addresses, addr.String())
		}
	}
	return delegated
}

// delegations are what a parent zone must know, one for each service name: of every zone with its aliases, of one with its aliases, or
// of one alias alone. Aliases says of which zone an alias is.
func delegations(config *cluster.Config, asked string, separate bool) (inputs []*dns.DelegationInput, aliases map[string]string) {
	aliases = map[string]string{}
	byService := map[string]*dns.DelegationInput{}
	for _, id := range config.Pools() {
		pool, _, _, _ := config.Pool(id)
		serviceSubnet, ok := config.ServiceSubnet(id)
		zones := zonesAsked(pool, asked)
		if len(zones) == 0 || !ok {
			continue
		}
		subnet, _ := config.Subnet(serviceSubnet)
		in, known := byService[subnet.ServiceName]
		if !known {
			in = &dns.DelegationInput{Service: subnet.ServiceName, TTL: config.Settings.ServerTTL, SeparateNames: separate}
			byService[subnet.ServiceName] = in
			inputs = append(inputs, in)
		}
		for _, zone := range zones {
			if !slices.Contains(in.Zones, zone) {
				in.Zones = append(in.Zones, zone)
			}
			if zone != pool.Zone {
				aliases[zone] = pool.Zone
			}
		}
		for _, addr := range config.ServiceAddresses(serviceSubnet) {
			if !slices.Contains(in.Addresses, addr) {
				in.Addresses = append(in.Addresses, addr)
			}
		}
	}
	return inputs, aliases
}

// zonesAsked are those names of a pool that are to be delegated.
func zonesAsked(pool *cluster.Pool, asked string) []string {
	if pool.Zone == "" {
		return nil
	}
	if asked == "" || strings.EqualFold(asked, pool.Zone) {
		return append([]string{pool.Zone}, pool.ZoneAliases...)
	}
	for _, alias := range pool.ZoneAliases {
		if strings.EqualFold(asked, alias) {
			return []string{alias}
		}
	}
	return nil
}
