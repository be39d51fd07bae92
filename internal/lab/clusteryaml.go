package lab

import (
	"fmt"
	"strings"
)

// clusterYAML completes the cluster's YAML of a lab file: each of its three top-level sections that is left out is
// the default one. Given sections keep their line numbers.
func clusterYAML(file File) string {
	given := topLevelKeys(file.Cluster)
	var out strings.Builder
	if text := strings.TrimRight(file.Cluster, " \n"); strings.TrimSpace(text) != "" {
		out.WriteString(text + "\n")
	}
	if !given["cluster"] {
		// A lab's network has no lateness worth waiting for, hence the shorter interval.
		out.WriteString("cluster:\n  name: lab\n  heartbeat-interval-ms: 50\n")
	}
	if !given["nodes"] {
		out.WriteString("nodes:\n")
		for i := 1; i <= file.Nodes; i++ {
			fmt.Fprintf(&out, "  - {name: node%d, lnn: %d, interfaces: [eth0], addresses: [%s]}\n", i, i, nodeAddress(i))
		}
	}
	if !given["groupnets"] {
		out.WriteString(defaultGroupnets(file))
	}
	return out.String()
}

// topLevelKeys lists the keys that start a line of a YAML text.
func topLevelKeys(text string) map[string]bool {
	keys := make(map[string]bool)
	for line := range strings.Lines(text) {
		if key, _, found := strings.Cut(line, ":"); found && key == strings.TrimSpace(key) {
			keys[strings.Trim(key, `"'`)] = true
		}
	}
	return keys
}

// defaultGroupnets is one subnet with three service addresses and one dynamic pool of three addresses for each node,
// as far as 10.10.0.199.
func defaultGroupnets(file File) string {
	var members []string
	for i := 1; i <= file.Nodes; i++ {
		members = append(members, fmt.Sprintf("%q", fmt.Sprintf("%d:eth0", i)))
	}
	last := min(100+3*file.Nodes-1, 199)
	gateway := ""
	if file.Routers > 0 {
		gateway = fmt.Sprintf("        gateway: %s\n", routerAddress(1))
	}
	return poolYAML(gateway, fmt.Sprintf("10.10.0.100-10.10.0.%d", last), strings.Join(members, ", "), "")
}

// labPool is the pool that poolYAML writes.
const labPool = "groupnet0.subnet0.pool0"

// labSubnet is the subnet around it.
const labSubnet = "groupnet0.subnet0"

// poolYAML writes the lab's groupnets section around one pool. gateway and extra are complete lines or empty.
func poolYAML(gateway, addresses, members, extra string) string {
	return subnetYAML(gateway, "10.10.0.4-10.10.0.6", addresses, members, extra)
}

// subnetYAML is poolYAML with other service addresses.
func subnetYAML(gateway, services, addresses, members, extra string) string {
	return `groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.10.0.0/24
` + gateway + `        sc-service-name: ssip.lab
        sc-service-addrs: [` + services + `]
        pools:
          - name: pool0
            alloc-method: dynamic
            ranges: [` + addresses + `]
            ifaces: [` + members + `]
            sc-dns-zone: cluster.lab
` + extra
}
