// Package clustertest makes configurations that the tests and benchmarks of several packages play with. It guarantees that a configuration is
// valid and the same each time. It keeps nothing, and may be used by several tests at once. It does not decide anything about them.
package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Large is the largest cluster of docs/benchmarks.md, "Decisions of the largest cluster": 256 nodes, 64 pools, 4,096 addresses.
func Large(tb testing.TB) *cluster.Config {
	tb.Helper()
	var text strings.Builder
	text.WriteString("cluster: {name: large}\nnodes:\n")
	var ifaces []string
	for lnn := 1; lnn <= 256; lnn++ {
		fmt.Fprintf(&text, "  - {name: node%d, lnn: %d, interfaces: [eth0], addresses: [10.0.%d.%d], voter: %v}\n", lnn, lnn, lnn/250, 1+lnn%250, lnn <= 5)
		ifaces = append(ifaces, fmt.Sprintf("%q", fmt.Sprintf("%d:eth0", lnn)))
	}
	text.WriteString("groupnets:\n  - name: groupnet0\n    subnets:\n      - name: subnet0\n        cidr: 10.0.0.0/16\n        sc-service-name: ssip.large\n        sc-service-addrs: [10.0.250.4-10.0.250.6]\n        pools:\n")
	for pool := range 64 {
		fmt.Fprintf(&text, "          - {name: pool%d, ranges: [10.0.%d.1-10.0.%d.64], ifaces: [%s], alloc-method: dynamic, sc-dns-zone: pool%d.large}\n",
			pool, 100+pool, 100+pool, strings.Join(ifaces, ", "), pool)
	}
	config, err := cluster.Parse("large", []byte(text.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return config
}
