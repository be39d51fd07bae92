package cluster

import (
	"errors"
	"testing"
)

// A value that cannot be read is told apart from one that this configuration refuses: the command line that brought it is wrong.
func TestAnEditSaysWhetherItsValueCannotBeRead(t *testing.T) {
	c, err := Parse("test", []byte(`
cluster: {name: example}
nodes: [{name: node1, lnn: 1, interfaces: [eth0], addresses: [10.0.0.11]}]
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-addrs: [10.0.0.4]
        pools: [{name: pool0, ranges: [10.0.0.100-10.0.0.101], ifaces: ["1:eth0"], alloc-method: dynamic}]
`))
	if err != nil {
		t.Fatal(err)
	}
	pool := c.Pools()[0]
	for _, example := range []struct {
		edit       Edit
		unreadable bool
	}{
		{Edit{"sc-connect-policy", Set, "nonsense"}, true},
		{Edit{"sc-ttl", Set, "soon"}, true},
		{Edit{"weights", Set, "1:2"}, true},
		{Edit{"weights", Set, "one=2"}, true},
		{Edit{"weights", Add, "1=two"}, true},
		{Edit{"ranges", Add, "10.0.0.300"}, true},
		{Edit{"ifaces", Remove, "eth0"}, true},
		{Edit{"ranges", Add, "10.9.0.1-10.9.0.2"}, false}, // outside the subnet
		{Edit{"ifaces", Remove, "7:eth0"}, false},         // not in it
		{Edit{"ifaces", Add, "1:eth0"}, false},            // in it already
		{Edit{"sc-ttl", Add, "5"}, false},                 // not a list
	} {
		_, err := ModifyPool(c, pool, []Edit{example.edit})
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Unreadable != example.unreadable {
			t.Errorf("%v: %v (unreadable: %v), want %v", example.edit, err, len(faults) > 0 && faults[0].Unreadable, example.unreadable)
		}
	}
}
