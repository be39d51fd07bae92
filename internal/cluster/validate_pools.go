package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pool checks one pool against its subnet, its groupnet and the nodes.
func (v *validator) pool(p poolAt) {
	v.poolRanges(p)
	v.poolInterfaces(p)
	if !v.broken(place{index: "nodes"}) && !v.broken(p.field("ifaces")) && !v.broken(p.field("rules")) {
		v.poolMembers(p)
	}
	v.poolRoutes(p)
	v.poolMethod(p)
	v.poolService(p)
	for i := range p.pool.Checks {
		c := &p.pool.Checks[i]
		v.check(p.field("checks").object(p.place, i, c.Name, false), c)
	}
}

func (v *validator) poolRanges(p poolAt) {
	at := p.field("ranges")
	cidr := p.subnet.CIDR
	total := 0
	for i, r := range p.pool.Ranges {
		if cidr.IsValid() && !v.broken(place{index: subnetIndex(p) + ".cidr"}) {
			v.inside(at.item(i), r, cidr.Masked())
		}
		total += r.Size(1 << 20)
	}
	if total > MaxPoolAddresses {
		v.fault(at, "has %s addresses; a pool has at most %d", countText(total), MaxPoolAddresses)
	}
}

// subnetIndex is the index path of the subnet that has the pool.
func subnetIndex(p poolAt) string {
	return p.index[:strings.LastIndex(p.index, ".pools[")]
}

func (v *validator) poolInterfaces(p poolAt) {
	if v.broken(place{index: "nodes"}) {
		return
	}
	for i, m := range p.pool.Interfaces {
		v.member(p.field("ifaces").item(i), m)
	}
}

// member checks that a member interface exists on a node that may host.
func (v *validator) member(at place, m Member) {
	if memberInterface.check(m) != nil || v.broken(at) {
		return
	}
	n, ok := v.c.Node(m.LNN)
	switch {
	case !ok:
		v.fault(at, "there is no node with the number %d; %s", m.LNN, v.numbersText())
	case n.Witness:
		v.fault(at, "%s is a witness, which hosts nothing", n.Name)
	case !slices.Contains(n.Interfaces, m.Interface):
		v.fault(at, "%s (node %d) has no interface %s; it has %s%s", n.Name, m.LNN, m.Interface,
			listed(n.Interfaces, "and"), didYouMean(m.Interface, n.Interfaces))
	}
}

func (v *validator) numbersText() string {
	var numbers []int
	for _, n := range v.c.Nodes {
		numbers = append(numbers, n.LNN)
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var words []string
	for i, n := range numbers {
		if i == 8 {
			words = append(words, "more")
			break
		}
		words = append(words, fmt.Sprint(n))
	}
	if len(words) == 0 {
		return "no node is written down"
	}
	return "there are " + listed(words, "and")
}

// poolMembers checks what names members: pins, suspended nodes, weights.
func (v *validator) poolMembers(p poolAt) {
	members := v.c.members(p.pool)
	hosts := map[int]bool{}
	for _, m := range members {
		hosts[m.LNN] = true
	}
	pins := pinSetting
	for _, a := range slices.SortedFunc(maps.Keys(p.pool.Pins), pins.compare) {
		m, at := p.pool.Pins[a], pins.entryAt(p.field("pins"), a)
		inPool := slices.ContainsFunc(p.pool.Ranges, func(r Range) bool { return r.Contains(a) })
		if !inPool && !v.broken(p.field("ranges")) {
			v.fault(at, "%s is not an address of the pool", a)
		}
		if !slices.Contains(members, m) {
			v.fault(at, "%s is not a member of the pool; %s", m, membersText(members))
		}
	}
	for i, number := range p.pool.SuspendedNodes {
		v.nodeOfPool(p.field("sc-suspended-nodes").item(i), number, hosts)
	}
	for _, number := range slices.SortedFunc(maps.Keys(p.pool.Weights), cmp.Compare[int]) {
		v.nodeOfPool(weightSetting.entryAt(p.field("weights"), number), number, hosts)
	}
	if len(p.pool.Ranges) > 0 && !v.broken(p.field("ranges")) {
		v.poolSize(p, len(members), len(hosts))
	}
}

func membersText(members []Member) string {
	if len(members) == 0 {
		return "it has none"
	}
	var words []string
	for i, m := range members {
		if i == 8 {
			words = append(words, "more")
			break
		}
		words = append(words, m.String())
	}
	return "its members are " + listed(words, "and")
}

// nodeOfPool refuses a node that does not exist and warns of one that has no interface in the pool.
func (v *validator) nodeOfPool(at place, number int, hosts map[int]bool) {
	if _, ok := v.c.Node(number); !ok {
		v.fault(at, "there is no node with the number %d; %s", number, v.numbersText())
	} else if !hosts[number] {
		v.warn(at, "node %d has no interface in the pool, so this has no effect", number)
	}
}

// poolSize warns where the addresses cannot keep every member busy.
func (v *validator) poolSize(p poolAt, members, hosts int) {
	addresses := 0
	for _, r := range p.pool.Ranges {
		addresses += r.Size(1 << 20)
	}
	at := p.field("ranges")
	switch {
	case members == 0:
		v.warn(at, "the pool has no members, so nobody holds its addresses; give it ifaces or rules")
	case p.pool.AllocMethod == AllocStatic && addresses < members:
		v.warn(at, "%s for %d members: those left over get none", counted(addresses, "address", "addresses"), members)
	case p.pool.AllocMethod == AllocDynamic && addresses < hosts:
		v.warn(at, "%s for %d nodes: those left over get none until another fails", counted(addresses, "address", "addresses"), hosts)
	}
}

func (v *validator) poolRoutes(p poolAt) {
	cidr := p.subnet.CIDR
	if !cidr.IsValid() {
		return
	}
	for i, r := range p.pool.StaticRoutes {
		at := p.field("static-routes").item(i)
		if v.broken(at) || route.check(r) != nil {
			continue
		}
		switch {
		case r.Gateway.Is4() != cidr.Addr().Is4():
			v.fault(at, "%s is %s, but the subnet is %s (%s)", r.Gateway, family(r.Gateway), family(cidr.Addr()), cidr)
		case !cidr.Masked().Contains(r.Gateway):
			v.fault(at, "the gateway %s is not in the subnet %s", r.Gateway, cidr)
		}
		for j, earlier := range p.pool.StaticRoutes[:i] {
			if earlier.Destination == r.Destination && earlier.Gateway != r.Gateway {
				v.collision(at, p.field("static-routes").item(j), "%s has another gateway, %s, already", r.Destination, earlier.Gateway)
			}
		}
	}
}

// poolMethod checks what only dynamic pools can have.
func (v *validator) poolMethod(p poolAt) {
	if p.pool.AllocMethod != AllocStatic || v.broken(p.field("alloc-method")) {
		return
	}
	if len(p.pool.Pins) > 0 {
		v.fault(p.field("pins"), "the addresses of a static pool never move; remove the pins, or write alloc-method: dynamic")
	}
	const idle = "has no effect: the addresses of a static pool never move"
	if p.pool.FailoverPolicy != RoundRobin {
		v.warn(p.field("sc-failover-policy"), idle)
	}
	if p.pool.RebalancePolicy != RebalanceAuto {
		v.warn(p.field("rebalance-policy"), idle)
	}
	if p.pool.RebalanceDelay != 0 {
		v.warn(p.field("sc-rebalance-delay"), idle)
	}
	if p.pool.TTL > 0 && p.pool.Zone != "" {
		v.warn(p.field("sc-ttl"), "clients keep the address of a static pool's dead node for this long; 0 is safer")
	}
}

// check checks that a health check has what its kind needs and nothing else.
func (v *validator) check(at place, c *Check) {
	if c.Timeout >= c.Interval && !v.broken(at.field("interval-ms")) {
		v.fault(at.field("timeout-ms"), "%d is not less than interval-ms, %d; a check must end before the next one begins",
			c.Timeout.Milliseconds(), c.Interval.Milliseconds())
	}
	if v.broken(at.field("kind")) || checkKindForm.check(c.Kind) != nil {
		return
	}
	http := c.Kind == CheckHTTP || c.Kind == CheckHTTPS
	v.needs(at.field("port"), c.Kind, c.Kind != CheckExec, c.Port != 0, "port")
	v.needs(at.field("query"), c.Kind, c.Kind == CheckDNS, c.Query != "", "query")
	v.needs(at.field("command"), c.Kind, c.Kind == CheckExec, len(c.Command) > 0, "command")
	v.program(at.field("command"), c.Command)
	for _, extra := range []struct {
		name    string
		present bool
		ofKind  bool
		kinds   string
	}{
		{"path", c.Path != "", http, "http and https"},
		{"status", len(c.Status) > 0, http, "http and https"},
		{"program", c.Program != 0 && c.Program != nfsProgram, c.Kind == CheckRPC, "rpc"},
		{"version", c.Version != 0 && c.Version != nfsVersion, c.Kind == CheckRPC, "rpc"},
	} {
		if extra.present && !extra.ofKind {
			v.fault(at.field(extra.name), "has no meaning for a check of the kind %s; it is for %s", c.Kind, extra.kinds)
		}
	}
}

// needs reports a setting that this kind of check must have, or must not have.
func (v *validator) needs(at place, kind CheckKind, wanted, present bool, name string) {
	switch {
	case wanted && !present:
		v.fault(at, "a check of the kind %s needs a %s", kind, name)
	case !wanted && present:
		v.fault(at, "has no meaning for a check of the kind %s", kind)
	}
}
