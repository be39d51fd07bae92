package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
)

// Explain says why: for an event of a failover, or for an address, a node, a pool, a subnet, or else a name.
func (s nodeService) Explain(ctx context.Context, r *holdfastv1.ExplainRequest) (*holdfastv1.ExplainResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	if r.Event != "" {
		return s.explainFailover(ctx, v, r.Event)
	}
	var decisions []placement.Decision
	if addr, parseErr := netip.ParseAddr(r.Subject); parseErr == nil {
		decisions, err = s.explainAddress(v, addr)
	} else if node, findErr := findNode(v.world.Config, r.Subject); findErr == nil {
		decisions = s.explainNode(v, node)
	} else if id, poolErr := cluster.ParsePoolID(v.world.Config, r.Subject); poolErr == nil {
		decisions = s.explainPool(v, id)
	} else if id, subnetErr := cluster.ParseSubnetID(v.world.Config, r.Subject); subnetErr == nil {
		decisions = s.explainSubnet(v, id)
	} else {
		decisions, err = s.explainOther(v, r.Subject, r.Type)
	}
	if err != nil {
		return nil, err
	}
	return &holdfastv1.ExplainResponse{Decisions: decisionMessages(decisions), Text: explainText(decisions)}, nil
}

// explainOther explains what can only be a name.
func (s nodeService) explainOther(v *view, subject, qtype string) ([]placement.Decision, error) {
	nothing := nothingOf(v.world.Config, subject)
	if nothing != nil && len(searches(v.world.Config)) == 0 {
		return nil, nothing
	}
	decisions, err := s.explainName(v, subject, qtype)
	if nothing != nil && api.IsNotFound(err) {
		return nil, nothing // nor does a search domain complete it
	}
	return decisions, err
}

// nothingOf refuses a subject without a dot that is nothing which has a name here: it is hardly meant as one for the DNS.
func nothingOf(config *cluster.Config, subject string) error {
	name := strings.TrimSuffix(subject, ".")
	if strings.Contains(name, ".") {
		return nil
	}
	for _, id := range config.Pools() {
		pool, _, _, _ := config.Pool(id)
		if strings.EqualFold(name, pool.Zone) || slices.ContainsFunc(pool.ZoneAliases, func(alias string) bool { return strings.EqualFold(name, alias) }) {
			return nil
		}
	}
	for _, id := range config.Subnets() {
		if subnet, _ := config.Subnet(id); strings.EqualFold(name, subnet.ServiceName) {
			return nil
		}
	}
	nodes := make([]string, 0, len(config.Nodes))
	for _, node := range config.Nodes {
		nodes = append(nodes, node.Name)
	}
	return api.NotFound("%q is neither a node (there is %s) nor a name that is answered here; explain takes a node, an address, a pool, a subnet or a name",
		subject, firstOf(nodes, 8))
}

// firstOf lists the first of some names, and how many more there are.
func firstOf(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// explainName shows the next answer and why, without giving it. Of a service name it also says who holds its addresses.
func (s nodeService) explainName(v *view, name, qtype string) ([]placement.Decision, error) {
	types := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	if qtype != "" {
		parsed, known := recordTypes[strings.ToUpper(qtype)]
		if !known {
			return nil, api.Invalid("%q is not a record type that is explained; use one of %s", qtype, strings.Join(slices.Sorted(maps.Keys(recordTypes)), ", "))
		}
		types = []dnsmessage.Type{parsed}
	} else if strings.HasSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), ".arpa") {
		types = []dnsmessage.Type{dnsmessage.TypePTR}
	}
	var decisions []placement.Decision
	for _, t := range types {
		decision, err := s.answers.server.Explain(name, t)
		if err != nil {
			return nil, api.NotFound("%v", err)
		}
		decisions = append(decisions, decision)
	}
	for _, id := range v.world.Config.Subnets() {
		subnet, _ := v.world.Config.Subnet(id)
		if subnet.ServiceName != "" && strings.EqualFold(strings.TrimSuffix(name, "."), subnet.ServiceName) {
			decisions = append(decisions, serviceDecisions(v.world, id)...)
		}
	}
	return decisions, nil
}

var recordTypes = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "NS": dnsmessage.TypeNS, "SOA": dnsmessage.TypeSOA,
	"TXT": dnsmessage.TypeTXT, "MX": dnsmessage.TypeMX, "ANY": dnsmessage.TypeALL, "PTR": dnsmessage.TypePTR,
}

// explainNode says what a node is, why, and what it holds.
func (s nodeService) explainNode(v *view, node cluster.Node) []placement.Decision {
	w := v.world
	known := w.Nodes[node.LNN]
	state, why := nodeState(w, known)
	decision := placement.Decision{Subject: node.Name, Chosen: state, Reason: why + ".", At: time.Now()}
	if entry, present := v.members[node.LNN]; present {
		decision.Reason += fmt.Sprintf(" Incarnation %d, in the store since %s, at revision %d of the configuration.",
			known.Incarnation, wall(entry.upSince, s.now()).Format(time.RFC3339), entry.record.ConfigRevision)
		if left := w.HeldDown(node.LNN, s.now()); left > 0 {
			decision.Reason += fmt.Sprintf(" It came back lately: nothing new is given to it for another %s, unless an operator rebalances a pool.", left.Round(100*time.Millisecond))
		} else if known.HoldDown > 0 && known.Trusted {
			decision.Reason += " It came back lately; an operator's rebalance ended its hold-down."
		}
	}
	if node.LNN == s.self.LNN {
		may := "may"
		if !v.standing.MayHold {
			may = "may not"
		}
		decision.Reason += " It " + may + " hold moving addresses: " + v.standing.Reason + "."
	}
	for _, id := range w.Config.Pools() {
		for _, given := range steering.GivenMembers(w, id, s.now()) {
			m := given.Member
			if m.LNN != node.LNN {
				continue
			}
			name := id.String() + " on " + m.Interface
			if given.Why != "" {
				decision.LeftOut = append(decision.LeftOut, placement.Excluded{Name: name, Reason: given.Why})
				continue
			}
			decision.Among = append(decision.Among, placement.Considered{Name: name, Weight: weightIn(w, id, m.LNN), Note: "in the answers with " + joined(given.Addresses)})
		}
	}
	return []placement.Decision{decision}
}

func joined(addrs []netip.Addr) string {
	texts := make([]string, 0, len(addrs))
	for _, addr := range addrs {
		texts = append(texts, addr.String())
	}
	return strings.Join(texts, ", ")
}

// explainText writes decisions for people.
func explainText(decisions []placement.Decision) string {
	var b strings.Builder
	for i, d := range decisions {
		if i > 0 {
			b.WriteByte('\n')
		}
		chosen := d.Chosen
		if chosen == "" {
			chosen = "nobody"
		}
		fmt.Fprintf(&b, "%s: %s\n  %s\n", d.Subject, chosen, d.Reason)
		for _, c := range d.Among {
			fmt.Fprintf(&b, "  + %s (weight %d, score %s) %s\n", c.Name, c.Weight, strconv.FormatFloat(c.Score, 'g', 4, 64), c.Note)
		}
		for _, e := range d.LeftOut {
			fmt.Fprintf(&b, "  - %s: %s\n", e.Name, e.Reason)
		}
		if d.DataAge > 0 {
			fmt.Fprintf(&b, "  on data up to %s old\n", d.DataAge.Round(time.Millisecond))
		}
	}
	return b.String()
}

func weightIn(w *steering.World, id cluster.PoolID, lnn int) int {
	pool, _, _, ok := w.Config.Pool(id)
	if !ok {
		return 1
	}
	return w.Weight(pool, lnn)
}
