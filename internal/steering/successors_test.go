package steering

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

func claimOf(lnn int, incarnation tenure.Incarnation) tenure.Claim {
	return tenure.Claim{LNN: lnn, Interface: "eth0", Incarnation: incarnation}
}

func TestSuccessors(t *testing.T) {
	for _, c := range []struct {
		name string
		st   tenure.Statement
		want []int
	}{
		{"nobody's", tenure.Statement{}, nil},
		{"another's", tenure.Statement{Owner: claimOf(2, 7), Next: claimOf(1, 7)}, nil},
		{"of an earlier life", tenure.Statement{Owner: claimOf(1, 6), Next: claimOf(2, 7)}, nil},
		{"held", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(2, 7)}, []int{2}},
		{"held, without next", tenure.Statement{Owner: claimOf(1, 7)}, nil},
		{"moving", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(2, 7), To: claimOf(3, 4)}, []int{2, 3}},
		{"moving to its next", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(2, 7), To: claimOf(2, 7)}, []int{2}},
		{"moving to another interface", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(2, 7), To: claimOf(1, 7)}, []int{2}},
	} {
		if got := Successors(c.st, 1, 7); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestExpects(t *testing.T) {
	for _, c := range []struct {
		name string
		st   tenure.Statement
		want bool
	}{
		{"it is next", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(2, 3)}, true},
		{"it is the one to move to", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(3, 3), To: claimOf(2, 3)}, true},
		{"another is next", tenure.Statement{Owner: claimOf(1, 7), Next: claimOf(3, 3)}, false},
		{"the source lives on under another number", tenure.Statement{Owner: claimOf(1, 8), Next: claimOf(2, 3)}, false},
		{"it has become the owner", tenure.Statement{Owner: claimOf(2, 3), Next: claimOf(3, 3)}, true},
		{"a third has become the owner", tenure.Statement{Owner: claimOf(3, 3), Next: claimOf(2, 3)}, false},
		{"nobody has it", tenure.Statement{}, false},
	} {
		if got := Expects(c.st, 2, 1, 7); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Which clients are reset: those of addresses that go to another node, or nowhere; not those of addresses that stay on the node, that
// it had in an earlier life, or that it loses by a lapse.
func TestLeaving(t *testing.T) {
	config, err := cluster.Parse("test", []byte(`
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0, eth1], addresses: [10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.0.0.12]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        sc-service-name: ssip.test
        sc-service-addrs: [10.0.0.4-10.0.0.5]
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.109], ifaces: ["1:eth0", "1:eth1", "2:eth0"], alloc-method: dynamic}
          - {name: pool1, ranges: [10.0.0.120-10.0.0.121], ifaces: ["1:eth0", "2:eth0"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr
	pools := config.Pools()
	service := func(text string) ServiceKey { return ServiceKey{config.Subnets()[0], at(text)} }
	w := &World{
		Config: config, Self: 1,
		Pools: map[cluster.PoolID]tenure.Record{pools[0]: {
			at("10.0.0.100"): {Owner: claimOf(1, 7), Next: claimOf(2, 3)},
			at("10.0.0.101"): {Owner: claimOf(1, 7), To: claimOf(2, 3)},
			at("10.0.0.102"): {Owner: claimOf(1, 7), To: tenure.Claim{LNN: 1, Interface: "eth1", Incarnation: 7}},
			at("10.0.0.103"): {Owner: claimOf(1, 6), To: claimOf(2, 3)},
			at("10.0.0.104"): {Owner: claimOf(2, 3), To: claimOf(1, 7)},
			at("10.0.0.200"): {Owner: claimOf(1, 7)}, // no longer configured
		}, pools[1]: {
			at("10.0.0.120"): {Owner: claimOf(1, 7), Fixed: true},
		}},
		Services: map[ServiceKey]tenure.Statement{
			service("10.0.0.4"): {Owner: claimOf(1, 7), To: claimOf(2, 3)},
			service("10.0.0.5"): {Owner: claimOf(1, 7), Next: claimOf(2, 3)},
		},
	}
	var got []string
	for a := range Leaving(w, 7, true) {
		got = append(got, a.String())
	}
	slices.Sort(got)
	if want := "[10.0.0.101 10.0.0.200 10.0.0.4]"; fmt.Sprint(got) != want {
		t.Errorf("leaving are %v, want %v", got, want)
	}
	if got := Leaving(w, 7, false); len(got) > 0 {
		t.Errorf("a node that has lapsed resets the clients of %v", got)
	}
	moving := Moving(w)
	if _, static := moving[at("10.0.0.120")]; static || len(moving) != 8 || moving[at("10.0.0.5")].Next.LNN != 2 {
		t.Errorf("moving are %v", moving)
	}
}

// An address that has changed its pool may be in two records, of which one gives it to nobody any more. What moves it is the other, whichever
// comes first, and what its owner has promised of that move holds.
func TestAnAddressInTwoRecords(t *testing.T) {
	config, err := cluster.Parse("test", []byte(`
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.0.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.0.0.12]}
groupnets:
  - name: groupnet0
    subnets:
      - name: subnet0
        cidr: 10.0.0.0/24
        pools:
          - {name: pool0, ranges: [10.0.0.100-10.0.0.109], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic}
          - {name: pool1, ranges: [10.0.0.120-10.0.0.121], ifaces: ["1:eth0", "2:eth0"], alloc-method: dynamic}
          - {name: pool2, ranges: [10.0.0.130-10.0.0.131], ifaces: ["1:eth0", "2:eth0"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddr("10.0.0.100")
	moves, left := tenure.Statement{Owner: claimOf(1, 7), To: claimOf(2, 3), Epoch: 5}, tenure.Statement{Former: claimOf(2, 3), Epoch: 9}
	pools := append(config.Pools(), cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "gone"})
	for in := range pools {
		for beside := range pools {
			if in == beside {
				continue
			}
			promises := NewPromises()
			promises.Give(map[netip.Addr]tenure.Statement{address: moves})
			released := map[netip.Addr]Release{address: promises.Given[address]}
			w := &World{Config: config, Self: 1, Pools: map[cluster.PoolID]tenure.Record{pools[in]: {address: moves}, pools[beside]: {address: left}}}
			for range 20 { // a map is gone through in another order each time
				if promises.Bind(w); !w.Given[address].Of(moves) {
					t.Fatalf("it moves in %s, beside %s: the promise is forgotten", pools[in], pools[beside])
				}
				if in > 1 {
					continue // nothing moves in these pools any more
				}
				if got := Moving(w)[address]; got != moves {
					t.Fatalf("it moves in %s, beside %s: %+v", pools[in], pools[beside], got)
				}
				if Outdated(w, released); len(released) == 0 {
					t.Fatalf("it moves in %s, beside %s: the owner's word is forgotten", pools[in], pools[beside])
				}
			}
		}
	}
}
