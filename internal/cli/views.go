package cli

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// The settings of each kind of object as trees, by their names in the file and in its order; a test holds them against
// cluster's own list. Values have the file's units: a name ending in -ms is in milliseconds, other durations in seconds.

func clusterView(c *cluster.Settings) object {
	return object{
		{"name", c.Name}, {"sc-server-ttl", seconds(c.ServerTTL)}, {"negative-ttl", seconds(c.NegativeTTL)},
		{"sample-interval-ms", c.SampleInterval.Milliseconds()}, {"heartbeat-interval-ms", c.HeartbeatInterval.Milliseconds()},
		{"heartbeat-multiplier", c.HeartbeatMultiplier}, {"no-witness", c.NoWitness},
		{"client-ports", items(c.ClientPorts)}, {"store.endpoints", items(c.StoreEndpoints)},
	}
}

func nodeView(n *cluster.Node) object {
	return object{
		{"name", n.Name}, {"lnn", n.LNN}, {"interfaces", items(n.Interfaces)}, {"class", n.Class}, {"rack", n.Rack}, {"weight", n.Weight},
		{"witness", n.Witness}, {"voter", string(n.Voter)}, {"addresses", items(n.Addresses)},
	}
}

func groupnetView(g *cluster.Groupnet) object {
	return object{
		{"name", g.Name}, {"dns-servers", items(g.DNSServers)}, {"dns-search", items(g.DNSSearch)},
		{"allow-wildcard-subdomains", g.AllowWildcardSubdomains}, {"server-side-dns-search", g.ServerSideDNSSearch},
	}
}

func subnetView(n *cluster.Subnet) object {
	return object{
		{"name", n.Name}, {"cidr", n.CIDR.String()}, {"gateway", addressText(n.Gateway)}, {"gateway-priority", n.GatewayPriority},
		{"mtu", n.MTU}, {"vlan-id", n.VLANID}, {"sc-service-name", n.ServiceName}, {"sc-service-addrs", items(n.ServiceAddrs)},
		{"sc-reverse-zones", items(n.ReverseZones)}, {"sc-rotation", string(n.Rotation)},
	}
}

func poolView(o *cluster.Pool) object {
	return object{
		{"name", o.Name}, {"ranges", items(o.Ranges)}, {"ifaces", items(o.Interfaces)}, {"alloc-method", string(o.AllocMethod)},
		{"sc-failover-policy", string(o.FailoverPolicy)}, {"rebalance-policy", string(o.RebalancePolicy)},
		{"sc-rebalance-delay", seconds(o.RebalanceDelay)}, {"weights", weights(o.Weights)}, {"pins", pins(o.Pins)},
		{"static-routes", routes(o.StaticRoutes)}, {"sc-connect-policy", string(o.ConnectPolicy)}, {"sc-dns-zone", o.Zone},
		{"sc-dns-zone-aliases", items(o.ZoneAliases)}, {"sc-ttl", seconds(o.TTL)}, {"sc-subnet", o.ServiceSubnet},
		{"sc-suspended-nodes", items(o.SuspendedNodes)}, {"sc-auto-unsuspend-delay", seconds(o.AutoUnsuspendDelay)},
		{"on-none", string(o.OnNone)}, {"max-answers", o.MaxAnswers}, {"client-affinity", string(o.ClientAffinity)},
	}
}

func ruleView(r *cluster.Rule) object {
	return object{{"name", r.Name}, {"interface", r.Interface}, {"class", r.Class}}
}

func checkView(c *cluster.Check) object {
	return object{
		{"name", c.Name}, {"kind", string(c.Kind)}, {"port", int(c.Port)}, {"path", c.Path}, {"status", items(c.Status)}, {"query", c.Query},
		{"program", int64(c.Program)}, {"version", int64(c.Version)}, {"command", items(c.Command)},
		{"interval-ms", c.Interval.Milliseconds()}, {"timeout-ms", c.Timeout.Milliseconds()}, {"rise", c.Rise}, {"fall", c.Fall},
	}
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// items is a list of values: numbers stay numbers, all else is text.
func items[T any](values []T) list {
	out := list{}
	for _, v := range values {
		switch v := any(v).(type) {
		case int:
			out = append(out, v)
		case uint16:
			out = append(out, int(v))
		default:
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func weights(m map[int]int) object {
	out := object{}
	for _, lnn := range slices.Sorted(maps.Keys(m)) {
		out = append(out, member{strconv.Itoa(lnn), m[lnn]})
	}
	return out
}

func pins(m map[netip.Addr]cluster.Member) object {
	out := object{}
	for _, address := range slices.SortedFunc(maps.Keys(m), netip.Addr.Compare) {
		out = append(out, member{address.String(), m[address].String()})
	}
	return out
}

func routes(all []cluster.Route) list {
	out := list{}
	for _, r := range all {
		out = append(out, r.Destination.String()+"-"+addressText(r.Gateway))
	}
	return out
}

// snake writes the names of a view as JSON and YAML have them: lower_snake, with the dotted id in front.
func snake(id string, view object) object {
	out := object{{"id", id}}
	for _, m := range view {
		out = append(out, member{strings.NewReplacer("-", "_", ".", "_").Replace(m.name), m.value})
	}
	return out
}

// flat writes a value on one line, as a flag would take it.
func flat(value any) string {
	switch t := value.(type) {
	case list:
		words := make([]string, len(t))
		for i, v := range t {
			words[i] = flat(v)
		}
		return strings.Join(words, ",")
	case object:
		words := make([]string, len(t))
		for i, m := range t {
			words[i] = m.name + "=" + flat(m.value)
		}
		return strings.Join(words, ",")
	default:
		return fmt.Sprint(t)
	}
}
