package cluster

import (
	"fmt"
	"strings"
)

// cast is a lab file in the making: the members, and the one pool of the cluster.
type cast struct {
	nodes, clients, routers int
	resolver                string // bind unless said otherwise
	services                string // service addresses; default 10.10.0.4-10.10.0.6
	addresses               string // of the pool; default three for each node
	members                 string // of the pool; default eth0 of each node
	pool                    string // further settings of the pool, as name: value lines
	groupnet                string // of the groupnet
	gateway                 string // of the subnet; default none
	list                    string // the section nodes:
	cluster                 string // the section cluster:, as name: value lines
	multiplier              int    // of the heartbeats, that is tenths of a second of the span; default 30
}

// file writes the lab file.
func (c cast) file() string {
	if c.resolver == "" {
		c.resolver = "bind"
	}
	if c.services == "" {
		c.services = "10.10.0.4-10.10.0.6"
	}
	if c.addresses == "" {
		c.addresses = fmt.Sprintf("10.10.0.100-10.10.0.%d", 99+3*c.nodes)
	}
	var members []string
	for i := range c.nodes {
		members = append(members, fmt.Sprintf(`"%d:eth0"`, i+1))
	}
	if c.members == "" {
		c.members = strings.Join(members, ", ")
	}
	file := fmt.Sprintf("lab: {nodes: %d, clients: %d, routers: %d, resolver: %s}\ncluster:\n", c.nodes, c.clients, c.routers, c.resolver)
	if c.multiplier == 0 {
		c.multiplier = 30
	}
	// A span of three seconds: here four nodes and their peers share a few processors, and what these tests look at is not
	// how soon a death is noticed.
	file += fmt.Sprintf("  cluster:\n    name: lab\n    heartbeat-multiplier: %d\n", c.multiplier) + indent("    ", c.cluster)
	gateway := ""
	if c.gateway != "" {
		gateway = "          gateway: " + c.gateway + "\n"
	}
	if c.list != "" {
		file += "  nodes:\n" + indent("    ", c.list)
	}
	return file + fmt.Sprintf(`  groupnets:
    - name: groupnet0
%s      subnets:
        - name: subnet0
          cidr: 10.10.0.0/24
%s          sc-service-name: ssip.lab
          sc-service-addrs: [%s]
          pools:
            - name: pool0
              alloc-method: dynamic
              ranges: [%s]
              ifaces: [%s]
              sc-dns-zone: cluster.lab
`, indent("      ", c.groupnet), gateway, c.services, c.addresses, c.members) + indent("              ", c.pool)
}

func indent(by, text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(by + strings.TrimRight(line, "\n") + "\n")
	}
	return out.String()
}

// The pool and the subnet of every lab.
const (
	pool0   = "groupnet0.subnet0.pool0"
	subnet0 = "groupnet0.subnet0"
)
