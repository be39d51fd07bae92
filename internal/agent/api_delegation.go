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
		return nil, noSuchZone(r.Zone)
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

// CheckDelegation asks the site's DNS servers from this node whether they lead to the zones.
func (s nodeService) CheckDelegation(ctx context.Context, r *holdfastv1.CheckDelegationRequest) (*holdfastv1.CheckDelegationResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	if err := askable(v.world.Config, r.Zones); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, siteAsked)
	defer cancel()
	response := &holdfastv1.CheckDelegationResponse{Node: s.self.Name}
	for _, result := range s.checkSites(ctx, siteServers(v.world.Config, r.Zones), siteParallel) {
		check := &holdfastv1.DelegationCheck{
			Zone: result.zone, Server: result.address.String(), Groupnet: result.groupnet, Good: len(result.wrong) == 0, Wrong: result.wrong,
			TookMs: float64(result.took.Microseconds()) / 1000,
		}
		if !check.Good && !result.silent {
			check.Remedy = "holdfast network dns delegation " + result.zone
		}
		response.Checks = append(response.Checks, check)
	}
	return response, nil
}

// askable refuses zones that no pool has, and those of which no groupnet has DNS servers.
func askable(config *cluster.Config, zones []string) error {
	for _, zone := range zones {
		inputs, _ := delegations(config, strings.TrimSuffix(zone, "."), false)
		switch {
		case len(inputs) == 0:
			return noSuchZone(zone)
		case len(siteServers(config, []string{zone})) == 0:
			return noServers("no groupnet of " + zone)
		}
	}
	switch inputs, _ := delegations(config, "", false); {
	case len(inputs) == 0:
		return api.NotFound("no pool has a zone; set one with `holdfast network pools modify POOL --sc-dns-zone NAME`")
	case len(siteServers(config, nil)) == 0:
		return noServers("no groupnet with a zone")
	}
	return nil
}

func noSuchZone(zone string) error {
	if _, err := cluster.ParseReverseZone(zone); err == nil {
		return api.NotFound("no subnet has the reverse zone %q; set it with `holdfast network subnets modify SUBNET --add-sc-reverse-zones NAME`", zone)
	}
	return api.NotFound("no pool has the zone or the alias %q; set it with `holdfast network pools modify POOL --sc-dns-zone NAME`, or --add-sc-dns-zone-aliases", zone)
}

func noServers(who string) error {
	return api.NotNow("%s has dns-servers, so there is nobody to ask; name the site's with `holdfast network groupnets modify GROUPNET --dns-servers ADDRESS`", who)
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

// delegations are what a parent zone must know, one for each service name: of every zone with its aliases and every reverse zone, of one
// zone with its aliases, or of one alias or reverse zone alone. Aliases says of which zone an alias is.
func delegations(config *cluster.Config, asked string, separate bool) (inputs []*dns.DelegationInput, aliases map[string]string) {
	aliases = map[string]string{}
	byService := map[string]*dns.DelegationInput{}
	delegate := func(service cluster.SubnetID, zones ...string) {
		subnet, _ := config.Subnet(service)
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
		}
		for _, addr := range config.ServiceAddresses(service) {
			if !slices.Contains(in.Addresses, addr) {
				in.Addresses = append(in.Addresses, addr)
			}
		}
	}
	for _, id := range config.Pools() {
		pool, _, _, _ := config.Pool(id)
		zones := zonesAsked(pool, asked)
		for _, zone := range zones {
			if zone != pool.Zone {
				aliases[zone] = pool.Zone
			}
		}
		if service, ok := config.ServiceSubnet(id); ok && len(zones) > 0 {
			delegate(service, zones...)
		}
	}
	for _, r := range config.Reverses() {
		if asked == "" || strings.EqualFold(asked, r.Name) {
			delegate(r.Service, r.Name)
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
