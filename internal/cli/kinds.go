package cli

import (
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

func groupnetKind() kind {
	return kind{
		noun: "groupnet", plural: "groupnets", argument: "GROUPNET", example: "groupnet0", object: pb.ModifyRequest_groupnet,
		settings: cluster.GroupnetSettings(), columns: []string{"dns-servers", "dns-search", "allow-wildcard-subdomains"},
		all: func(c *cluster.Config) (out []entry) {
			for i := range c.Groupnets {
				out = append(out, entry{c.Groupnets[i].Name, groupnetView(&c.Groupnets[i])})
			}
			return out
		},
	}
}

func subnetKind() kind {
	return kind{
		noun: "subnet", plural: "subnets", argument: "SUBNET", example: "groupnet0.subnet0", object: pb.ModifyRequest_subnet, whole: wholeSubnet,
		settings: cluster.SubnetSettings(), columns: []string{"cidr", "gateway", "sc-service-name", "sc-service-addrs"},
		all: func(c *cluster.Config) (out []entry) {
			for _, id := range c.Subnets() {
				if subnet, ok := c.Subnet(id); ok {
					out = append(out, entry{id.String(), subnetView(subnet)})
				}
			}
			return out
		},
	}
}

func poolKind() kind {
	return kind{
		noun: "pool", plural: "pools", argument: "POOL", example: "groupnet0.subnet0.pool0", object: pb.ModifyRequest_pool, whole: wholePool,
		settings: cluster.PoolSettings(),
		columns:  []string{"ranges", "ifaces", "alloc-method", "sc-connect-policy", "sc-dns-zone"},
		all: func(c *cluster.Config) (out []entry) {
			for _, id := range c.Pools() {
				if pool, _, _, ok := c.Pool(id); ok {
					out = append(out, entry{id.String(), poolView(pool)})
				}
			}
			return out
		},
	}
}

func ruleKind() kind {
	return kind{
		noun: "rule", plural: "rules", argument: "RULE", example: "groupnet0.subnet0.pool0.rule0", object: pb.ModifyRequest_rule, whole: wholePart,
		settings: cluster.RuleSettings(), columns: []string{"interface", "class"},
		all: func(c *cluster.Config) (out []entry) {
			for _, id := range c.Pools() {
				if pool, _, _, ok := c.Pool(id); ok {
					for i := range pool.Rules {
						out = append(out, entry{id.String() + "." + pool.Rules[i].Name, ruleView(&pool.Rules[i])})
					}
				}
			}
			return out
		},
	}
}

func checkKind() kind {
	return kind{
		noun: "check", plural: "checks", argument: "CHECK", example: "groupnet0.subnet0.pool0.web", object: pb.ModifyRequest_check, whole: wholePart,
		settings: cluster.CheckSettings(), columns: []string{"kind", "port", "interval-ms", "timeout-ms", "rise", "fall"},
		all: func(c *cluster.Config) (out []entry) {
			for _, id := range c.Pools() {
				if pool, _, _, ok := c.Pool(id); ok {
					for i := range pool.Checks {
						out = append(out, entry{id.String() + "." + pool.Checks[i].Name, checkView(&pool.Checks[i])})
					}
				}
			}
			return out
		},
	}
}

func nodeKind() kind {
	return kind{
		noun: "node", plural: "nodes", argument: "NODE", example: "node3", object: pb.ModifyRequest_node,
		settings: cluster.NodeSettings(),
		all: func(c *cluster.Config) (out []entry) {
			for i := range c.Nodes {
				out = append(out, entry{c.Nodes[i].Name, nodeView(&c.Nodes[i])})
			}
			return out
		},
	}
}

func clusterKind() kind {
	return kind{
		noun: "cluster", plural: "cluster", object: pb.ModifyRequest_cluster, settings: cluster.ClusterSettings(),
		all: func(c *cluster.Config) []entry { return []entry{{c.Settings.Name, clusterView(&c.Settings)}} },
	}
}
