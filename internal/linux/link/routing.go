package link

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks the rules and routes that are Holdfast's own (rtm_protocol; 'H'). Rules and Routes list only those,
// so that nothing that belongs to somebody else can be removed.
const Protocol = 'H'

// Rules lists Holdfast's own rules, IPv4 first.
func (k *Kernel) Rules() ([]Rule, error) {
	var list []Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := dump(func() ([]netlink.Rule, error) { return k.handle.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("listing rules: %w", err)
		}
		for _, f := range found {
			from, ok := toPrefix(f.Src)
			if !ok || f.Protocol != Protocol {
				continue
			}
			list = append(list, Rule{From: from, Table: f.Table, Priority: f.Priority})
		}
	}
	return list, nil
}

// Routes lists Holdfast's own routes of all tables, IPv4 first.
func (k *Kernel) Routes() ([]Route, error) {
	interfaces, err := k.Interfaces()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(interfaces))
	for _, i := range interfaces {
		names[i.Index] = i.Name
	}
	var list []Route
	own := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: Protocol}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := dump(func() ([]netlink.Route, error) {
			return k.handle.RouteListFiltered(family, own, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, f := range found {
			list = append(list, fromRoute(f, family, names))
		}
	}
	return list, nil
}

func fromRoute(f netlink.Route, family int, names map[int]string) Route {
	r := Route{Table: f.Table, Interface: names[f.LinkIndex], Metric: f.Priority, MTU: f.MTU}
	if prefix, ok := toPrefix(f.Dst); ok {
		r.Destination = prefix
	} else if family == unix.AF_INET {
		r.Destination = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	} else {
		r.Destination = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if gateway, ok := netip.AddrFromSlice(f.Gw); ok {
		r.Gateway = gateway.Unmap()
	}
	return r
}

// applyRouting carries out one operation on a rule or a route.
func (k *Kernel) applyRouting(o Operation) error {
	if o.Verb == Renew {
		return errors.New("only addresses can be renewed")
	}
	switch object := o.Object.(type) {
	case Rule:
		return k.applyRule(o.Verb, object)
	case Route:
		return k.applyRoute(o.Verb, object)
	}
	return errors.New("not an address, a rule or a route")
}

func (k *Kernel) applyRule(verb Verb, r Rule) error {
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Priority, rule.Protocol = toIPNet(r.From), r.Table, r.Priority, Protocol
	rule.Family = family(r.From.Addr())
	if verb == Add {
		return explain(k.handle.RuleAdd(rule))
	}
	return explain(k.handle.RuleDel(rule))
}

func (k *Kernel) applyRoute(verb Verb, r Route) error {
	index, err := k.index(r.Interface)
	if err != nil {
		return err
	}
	route := &netlink.Route{
		LinkIndex: index, Table: r.Table, Dst: toIPNet(r.Destination), Priority: r.Metric,
		Protocol: Protocol, Family: family(r.Destination.Addr()), Scope: netlink.SCOPE_LINK, MTU: r.MTU,
	}
	if r.Gateway.IsValid() {
		route.Scope = netlink.SCOPE_UNIVERSE
		route.Gw = r.Gateway.AsSlice()
		route.Flags = int(netlink.FLAG_ONLINK) // the node need not have an address of its own in the subnet
	}
	if verb == Add {
		return explain(k.handle.RouteAdd(route))
	}
	return explain(k.handle.RouteDel(route))
}

func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
