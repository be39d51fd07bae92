package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/verdict/probe"
)

var problemDelegation = problem.Define(problem.Kind{
	Code: "dns.delegation", Severity: problem.Warning,
	Meaning: "A DNS server of the site (dns-servers of the groupnet) does not lead to a zone, so clients that ask it may not find the cluster.",
	Remedy:  "See `holdfast network dns check` for what is wrong with which zone; `holdfast network dns delegation ZONE` prints what to paste there.",
})

// How the site's DNS servers are asked.
const (
	siteTimeout  = 2 * time.Second // for one question
	siteEvery    = 5 * time.Minute // between two rounds of a node that holds a service address, give or take a tenth
	siteLook     = 10 * time.Second
	siteRound    = 2 * time.Minute  // a round asks no further after this
	siteAsked    = 20 * time.Second // nor does an operator's after this
	siteParallel = 8                // servers that are asked at once for an operator; by itself a node puts one question at a time
	siteServing  = 53
)

// siteAsker puts one question to a DNS server: probe.Ask.
type siteAsker func(ctx context.Context, at netip.AddrPort, question probe.Question) (probe.Reply, error)

func askSite(ctx context.Context, at netip.AddrPort, question probe.Question) (probe.Reply, error) {
	return probe.Ask(ctx, nil, at, question)
}

// siteServer is a DNS server of a groupnet, and where it should lead.
type siteServer struct {
	groupnet string
	address  netip.Addr
	leads    []dns.Lead
}

func (s siteServer) subject() string { return s.groupnet + " " + s.address.String() }

// siteResult is what one server said about one zone.
type siteResult struct {
	siteServer
	zone   string
	wrong  []string
	silent bool // it said nothing at all
	took   time.Duration
}

// siteServers are the DNS servers of all groupnets with the zones and aliases of their pools, or those among them that are asked for.
// A groupnet without dns-servers or without a zone has none. In the order of the configuration.
func siteServers(config *cluster.Config, zones []string) []siteServer {
	leads, of := leadsOf(config)
	var servers []siteServer
	for i := range config.Groupnets {
		g := &config.Groupnets[i]
		var wanted []dns.Lead
		for _, lead := range leads {
			if slices.Contains(of[lead.Zone], g.Name) && (len(zones) == 0 || slices.ContainsFunc(zones, func(z string) bool { return sameZone(z, lead.Zone) })) {
				wanted = append(wanted, *lead)
			}
		}
		for _, address := range g.DNSServers {
			if len(wanted) > 0 {
				servers = append(servers, siteServer{g.Name, address, wanted})
			}
		}
	}
	return servers
}

func sameZone(a, b string) bool { return strings.EqualFold(strings.TrimSuffix(a, "."), b) }

// leadsOf says where every zone and alias should lead, in the order of the pools, and behind them every reverse zone; and by its name which
// groupnets have it. Pools that share a name, one of each family, are one lead.
func leadsOf(config *cluster.Config) (leads []*dns.Lead, groupnets map[string][]string) {
	groupnets = map[string][]string{}
	ranges := map[string][]cluster.Range{}
	byZone := map[string]*dns.Lead{}
	services, _ := delegations(config, "", false)
	for _, id := range config.Pools() {
		pool, subnet, _, _ := config.Pool(id)
		for _, zone := range zonesAsked(pool, "") {
			lead, known := byZone[zone]
			if !known {
				lead = &dns.Lead{Zone: zone, Given: func(a netip.Addr) bool { return inRanges(ranges[zone], a) }}
				for _, service := range services {
					if slices.Contains(service.Zones, zone) {
						lead.Services = append(lead.Services, *service)
					}
				}
				byZone[zone] = lead
				leads = append(leads, lead)
			}
			v6 := subnet.CIDR.Addr().Is6()
			lead.IPv4, lead.IPv6 = lead.IPv4 || !v6, lead.IPv6 || v6
			ranges[zone] = append(ranges[zone], pool.Ranges...)
			groupnets[zone] = append(groupnets[zone], id.Groupnet)
		}
	}
	for _, r := range config.Reverses() {
		lead := &dns.Lead{Zone: r.Name, Given: func(netip.Addr) bool { return false }}
		if len(r.Names) > 0 {
			lead.Address, lead.Called = r.Names[0].Low, r.Names[0].Name
			if lead.Address.Less(r.Covers.Low) {
				lead.Address = r.Covers.Low
			}
		}
		for _, service := range services {
			if slices.Contains(service.Zones, r.Name) {
				lead.Services = append(lead.Services, *service)
			}
		}
		leads = append(leads, lead)
		groupnets[r.Name] = append(groupnets[r.Name], r.Groupnet)
	}
	return leads, groupnets
}

func inRanges(ranges []cluster.Range, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r cluster.Range) bool { return r.Contains(a) })
}

// checkSites asks the servers about their zones, some servers at once and each one question at a time, until ctx ends.
func (a *Agent) checkSites(ctx context.Context, servers []siteServer, parallel int) []siteResult {
	results := make([][]siteResult, len(servers))
	turns := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, server := range servers {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			results[i] = a.checkSite(ctx, server)
		})
	}
	all.Wait()
	return slices.Concat(results...)
}

// checkSite asks one server. One that says nothing at all is not asked about the other zones.
func (a *Agent) checkSite(ctx context.Context, server siteServer) []siteResult {
	known := map[dns.SiteQuestion]dns.SiteReply{} // the zones share their name servers
	ask := func(q dns.SiteQuestion) (dns.SiteReply, error) {
		if reply, asked := known[q]; asked {
			return reply, nil
		}
		asking, cancel := context.WithTimeout(ctx, siteTimeout)
		defer cancel()
		reply, err := a.edges.site(asking, netip.AddrPortFrom(server.address, siteServing), probe.Question(q))
		if err == nil {
			known[q] = dns.SiteReply(reply)
		}
		return dns.SiteReply(reply), err
	}
	var results []siteResult
	var last siteResult
	for _, lead := range server.leads {
		began := a.now()
		result := siteResult{siteServer: server, zone: lead.Zone}
		switch {
		case last.silent:
			result.wrong, result.silent = last.wrong, true
		case ctx.Err() == nil:
			result.wrong, result.silent = lead.Check(ask)
		}
		if ctx.Err() != nil {
			result.wrong, result.silent = []string{"not asked to the end: the questions took all the time that there was"}, false
		}
		result.took = a.now().Sub(began)
		results, last = append(results, result), result
	}
	return results
}

// watchSites asks the DNS servers of those groupnets of which this node holds a service address, every so often and when what there is
// to ask has changed.
func (a *Agent) watchSites(ctx context.Context) {
	ticker := time.NewTicker(siteLook)
	defer ticker.Stop()
	var next time.Time
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		v := a.view.Load()
		if v == nil {
			continue
		}
		servers := ownSiteServers(v.world)
		a.forgetSites(servers)
		if what := sitesText(servers); what != last || !a.now().Before(next) {
			round, cancel := context.WithTimeout(ctx, siteRound)
			results := a.checkSites(round, servers, 1)
			cancel()
			if ctx.Err() != nil {
				return
			}
			a.noteSites(results)
			last, next = what, a.now().Add(siteEvery*9/10+rand.N(siteEvery/5)) //nolint:gosec // spreads the questions of several nodes
		}
	}
}

// ownSiteServers are the servers of the groupnets of which this node holds a service address.
func ownSiteServers(w *steering.World) []siteServer {
	return slices.DeleteFunc(siteServers(w.Config, nil), func(s siteServer) bool {
		return !slices.ContainsFunc(w.Config.Subnets(), func(id cluster.SubnetID) bool {
			return id.Groupnet == s.groupnet && len(ownServiceAddresses(w, id, w.Config.ServiceAddresses(id))) > 0
		})
	})
}

// sitesText says what is asked of whom, to compare.
func sitesText(servers []siteServer) string {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "%s:", s.subject())
		for _, lead := range s.leads {
			fmt.Fprintf(&b, " %s %v", lead.Zone, lead.Services)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// forgetSites ends the problems of servers that this node does not ask.
func (a *Agent) forgetSites(asked []siteServer) {
	for _, active := range a.board.List() {
		if active.Kind == problemDelegation && !slices.ContainsFunc(asked, func(s siteServer) bool { return s.subject() == active.Subject }) {
			a.board.Clear(problemDelegation, active.Subject)
		}
	}
}

// noteSites turns results into problems, one for each server of a groupnet.
func (a *Agent) noteSites(results []siteResult) {
	wrong := map[string][]string{}
	for _, r := range results {
		said := wrong[r.subject()]
		if len(r.wrong) > 0 {
			said = append(said, r.zone+": "+strings.Join(r.wrong, "; "))
		}
		wrong[r.subject()] = said
	}
	for subject, said := range wrong {
		a.board.Is(len(said) > 0, problemDelegation, subject, fewReasons(said), a.now())
	}
}
