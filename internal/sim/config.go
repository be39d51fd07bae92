package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// dynamicPool is in every scenario's configuration.
var dynamicPool = cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "pool0"}

// interfaceName is the interface of each node that addresses are on.
const interfaceName = "eth0"

// configOf is the configuration with which a scenario begins.
func configOf(s Scenario) *cluster.Config {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: {name: sim, heartbeat-interval-ms: %d, heartbeat-multiplier: %d, no-witness: %t}\nnodes:\n", s.Interval/time.Millisecond, s.Multiplier, s.NoWitness)
	var members []string
	for lnn := 1; lnn <= s.Nodes; lnn++ {
		fmt.Fprintf(&b, "  - {name: node%d, lnn: %d, interfaces: [%s], addresses: [10.0.0.%d]}\n", lnn, lnn, interfaceName, 10+lnn)
		members = append(members, fmt.Sprintf("%q", fmt.Sprintf("%d:%s", lnn, interfaceName)))
	}
	b.WriteString("groupnets:\n  - name: groupnet0\n    subnets:\n      - name: subnet0\n        cidr: 10.0.0.0/24\n")
	if s.NoWitness {
		b.WriteString("        gateway: 10.0.0.1\n")
	}
	if s.Services > 0 {
		fmt.Fprintf(&b, "        sc-service-name: ssip.sim\n        sc-service-addrs: [10.0.0.2-10.0.0.%d]\n", 1+s.Services)
	}
	ifaces := strings.Join(members, ", ")
	fmt.Fprintf(&b, "        pools:\n          - {name: pool0, ranges: [10.0.0.100-10.0.0.%d], ifaces: [%s], alloc-method: dynamic, sc-dns-zone: cluster.sim}\n", 99+s.Addresses, ifaces)
	if s.Static {
		fmt.Fprintf(&b, "          - {name: pool1, ranges: [10.0.0.200-10.0.0.%d], ifaces: [%s], alloc-method: static}\n", 199+s.Nodes, ifaces)
	}
	config, err := cluster.Parse("the scenario's configuration", []byte(b.String()))
	if err != nil {
		panic("sim: " + err.Error()) // the bounds of a scenario are within those of a configuration
	}
	return config
}

// movingOf are all addresses of a configuration, sorted.
func movingOf(config *cluster.Config) []netip.Addr {
	var all []netip.Addr
	for _, id := range config.Pools() {
		all = append(all, config.Addresses(id)...)
	}
	for _, id := range config.Subnets() {
		all = append(all, config.ServiceAddresses(id)...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// isStatic reports whether an address is of the static pool: those end in 200 and more.
func isStatic(a netip.Addr) bool { return a.As4()[3] >= 200 }

// edited is a configuration as operators have made it by now.
type edited struct {
	interval time.Duration     // 0: as it was
	lacking  int               // addresses that the dynamic pool lacks
	left     [MaxNodes + 1]int // by node: why it is no member of the dynamic pool
}

// apply is the configuration of the beginning with the edits.
func (e edited) apply(base *cluster.Config) *cluster.Config {
	config := base.Clone()
	if e.interval > 0 {
		config.Settings.HeartbeatInterval = e.interval
	}
	for g := range config.Groupnets {
		for n := range config.Groupnets[g].Subnets {
			pools := config.Groupnets[g].Subnets[n].Pools
			for i := range pools {
				if pools[i].Name != dynamicPool.Pool {
					continue
				}
				last := &pools[i].Ranges[len(pools[i].Ranges)-1]
				for range e.lacking {
					if last.High.Compare(last.Low) > 0 {
						last.High = last.High.Prev()
					}
				}
				pools[i].Interfaces = slices.DeleteFunc(slices.Clone(pools[i].Interfaces), func(m cluster.Member) bool { return e.left[m.LNN] > 0 })
			}
		}
	}
	return config
}
