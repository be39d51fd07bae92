package cluster

// exampleYAML is a small cluster that several tests start from.
const exampleYAML = `
cluster: {name: demo}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0, eth1], class: storage, addresses: [192.168.7.1]}
  - {name: node2, lnn: 2, interfaces: [eth0, eth1], class: storage, weight: 3, addresses: [192.168.7.2]}
  - {name: node3, lnn: 3, interfaces: [eth0], class: compute, addresses: [192.168.7.3]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.10.0.0/24
        gateway: 10.10.0.1
        pools:
          - name: pool0
            ranges: [10.10.0.100-10.10.0.105, 10.10.0.110]
            ifaces: ["3:eth0", "1:eth1"]
            rules: [{name: storage, interface: eth*, class: storage}]
            alloc-method: dynamic
`

var (
	exampleSubnet = SubnetID{"groupnet0", "subnet0"}
	examplePool   = PoolID{"groupnet0", "subnet0", "pool0"}
)

func example() *Config {
	c, err := Parse("example.yaml", []byte(exampleYAML))
	if err != nil {
		panic(err)
	}
	return c
}
