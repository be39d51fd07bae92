package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// moving is a holding with a lifetime, still one without.
func moving(a, iface string) Holding {
	return Holding{Address: addr(a), Interface: iface, Lifetime: true, Epoch: 1}
}
func still(a, iface string) Holding { return Holding{Address: addr(a), Interface: iface} }

func holdings(list ...Holding) Desired { return Desired{Holdings: list} }

// settle carries out the plan as it stands and returns the operations. The kernel must accept every one of them.
func settle(t interface {
	Helper()
	Errorf(string, ...any)
}, k *linktest.Fake, d Desired, mine map[netip.Addr]string) (plan, string) {
	t.Helper()
	var s state
	s.interfaces, _ = k.Interfaces()
	s.addresses, _ = k.Addresses()
	s.rules, _ = k.Rules()
	s.routes, _ = k.Routes()
	p := makePlan(situation{desired: d, mine: mine, actual: s, routing: true})
	var lines []string
	for i, err := range k.Apply(p.operations) {
		lines = append(lines, p.operations[i].String())
		if err != nil {
			t.Errorf("the kernel refused a planned operation: %v", err)
		}
		if a, ok := p.operations[i].Object.(link.Address); ok {
			if p.operations[i].Verb == link.Remove && mine[a.Prefix.Addr()] == a.Interface {
				delete(mine, a.Prefix.Addr())
			} else if p.operations[i].Verb != link.Remove {
				mine[a.Prefix.Addr()] = a.Interface
			}
		}
	}
	return p, strings.Join(lines, "\n")
}

var (
	viaOne   = SubnetRoute{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0"}
	viaOther = SubnetRoute{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.254"), Interface: "ext0"}
	onSecond = SubnetRoute{Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext1"}
	six      = SubnetRoute{Prefix: prefix("fd00::/64"), Gateway: addr("fd00::1"), Interface: "ext1"}
	static   = SubnetRoute{
		Prefix: prefix("10.0.0.0/24"), Gateway: addr("10.0.0.1"), Interface: "ext0",
		Static: []cluster.Route{{Destination: prefix("192.168.0.0/16"), Gateway: addr("10.0.0.2")}},
	}
)

// planStep is one step of a story.
type planStep struct {
	does          string
	before        func(*linktest.Fake) // what happens to the kernel first
	desired       Desired
	done, refused string // operations, and reasons
	state         string // of the kernel afterwards
}

type planStory struct {
	name  string
	steps []planStep
}

// planStories are told by TestPlan.
var planStories = []planStory{
	{"addresses come and go", []planStep{
		{does: "the first ones, those that move first, IPv6 not as a source",
			desired: holdings(still("10.0.0.5", "ext0"), moving("10.0.0.7", "ext0"), moving("fd00::7", "ext0")),
			done: `
add address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
add address fd00::7/128 dev ext0 valid 2s preferred 0s
add address 10.0.0.5/32 dev ext0 valid forever preferred forever`,
			state: `
address 10.0.0.5/32 dev ext0 valid forever preferred forever
address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
address fd00::7/128 dev ext0 valid 2s preferred 0s`},
		{does: "one goes before another comes",
			desired: holdings(still("10.0.0.5", "ext0"), moving("10.0.0.8", "ext0")),
			done: `
remove address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
remove address fd00::7/128 dev ext0 valid 2s preferred 0s
add address 10.0.0.8/32 dev ext0 valid 2s preferred 2s`,
			state: `
address 10.0.0.5/32 dev ext0 valid forever preferred forever
address 10.0.0.8/32 dev ext0 valid 2s preferred 2s`},
		{does: "one changes its interface, one from static to moving",
			desired: holdings(moving("10.0.0.5", "ext0"), moving("10.0.0.8", "ext1")),
			done: `
remove address 10.0.0.8/32 dev ext0 valid 2s preferred 2s
renew address 10.0.0.5/32 dev ext0 valid 2s preferred 2s
add address 10.0.0.8/32 dev ext1 valid 2s preferred 2s`,
			state: `
address 10.0.0.5/32 dev ext0 valid 2s preferred 2s
address 10.0.0.8/32 dev ext1 valid 2s preferred 2s`},
		{does: "everything goes", done: `
remove address 10.0.0.5/32 dev ext0 valid 2s preferred 2s
remove address 10.0.0.8/32 dev ext1 valid 2s preferred 2s`},
	}},
	{"what others put there stays", []planStep{
		{does: "addresses of the node, and one of the pool that was there: adopted if static, given a lifetime if it moves",
			before: func(k *linktest.Fake) {
				for _, a := range []string{"10.0.0.100/24", "10.0.0.5/32", "10.0.0.7/32", "10.0.0.99/32"} {
					k.Put(link.Address{Interface: "ext0", Prefix: prefix(a), Valid: link.Forever, Preferred: link.Forever})
				}
			},
			desired: holdings(still("10.0.0.5", "ext0"), moving("10.0.0.7", "ext0")),
			done: `
renew address 10.0.0.7/32 dev ext0 valid 2s preferred 2s`,
			state: `
address 10.0.0.100/24 dev ext0 valid forever preferred forever
address 10.0.0.5/32 dev ext0 valid forever preferred forever
address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
address 10.0.0.99/32 dev ext0 valid forever preferred forever`},
		{does: "an address that the system configured for itself is refused",
			desired: holdings(moving("10.0.0.100", "ext0")),
			done: `
remove address 10.0.0.7/32 dev ext0 valid 2s preferred 2s`,
			refused: `10.0.0.100 on ext0: it is on this node with another prefix, put there by something else: 10.0.0.100/24 on ext0`,
			state: `
address 10.0.0.100/24 dev ext0 valid forever preferred forever
address 10.0.0.5/32 dev ext0 valid forever preferred forever
address 10.0.0.99/32 dev ext0 valid forever preferred forever`},
	}},
	{"what cannot be held is refused and harms nothing else", []planStep{
		{does: "each with its reason",
			desired: holdings(moving("10.0.0.1", "nowhere0"), moving("10.0.0.2", "tun0"), moving("10.0.0.3", "ext0"),
				moving("10.0.0.3", "ext1"), moving("224.0.0.1", "ext0"), moving("10.0.0.4", "ext0")),
			done: `
add address 10.0.0.4/32 dev ext0 valid 2s preferred 2s`,
			refused: `10.0.0.1 on nowhere0: no such interface
10.0.0.2 on tun0: the interface is not an Ethernet device, so the address could not be announced
10.0.0.3: it is desired twice
224.0.0.1: it is not an address that a host can hold`,
			state: `
address 10.0.0.4/32 dev ext0 valid 2s preferred 2s`},
	}},
	{"replies leave by the subnet's gateway", []planStep{
		{does: "a table for each subnet, routes before addresses",
			desired: Desired{Holdings: []Holding{moving("10.0.0.7", "ext0")}, Routes: []SubnetRoute{static, six}},
			done: `
add route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
add route 10.0.0.0/24 dev ext0 table 7000 metric 10
add route 192.168.0.0/16 via 10.0.0.2 dev ext0 table 7000 metric 10
add route ::/0 via fd00::1 dev ext1 table 7001 metric 10
add route fd00::/64 dev ext1 table 7001 metric 10
add rule 7000 from 10.0.0.0/24 table 7000
add rule 7000 from fd00::/64 table 7001
add address 10.0.0.7/32 dev ext0 valid 2s preferred 2s`,
			state: `
address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
route 10.0.0.0/24 dev ext0 table 7000 metric 10
route 192.168.0.0/16 via 10.0.0.2 dev ext0 table 7000 metric 10
route ::/0 via fd00::1 dev ext1 table 7001 metric 10
route fd00::/64 dev ext1 table 7001 metric 10
rule 7000 from 10.0.0.0/24 table 7000
rule 7000 from fd00::/64 table 7001`},
		{does: "another subnet goes, and this one keeps its table",
			desired: Desired{Routes: []SubnetRoute{six}},
			done: `
remove address 10.0.0.7/32 dev ext0 valid 2s preferred 2s
remove rule 7000 from 10.0.0.0/24 table 7000
remove route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
remove route 10.0.0.0/24 dev ext0 table 7000 metric 10
remove route 192.168.0.0/16 via 10.0.0.2 dev ext0 table 7000 metric 10`,
			state: `
route ::/0 via fd00::1 dev ext1 table 7001 metric 10
route fd00::/64 dev ext1 table 7001 metric 10
rule 7000 from fd00::/64 table 7001`},
	}},
	{"two interfaces in one subnet", []planStep{
		{does: "both carry replies; a gateway that contradicts the first is reported and not used",
			desired: Desired{Routes: []SubnetRoute{viaOne, onSecond, viaOther}},
			done: `
add route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
add route 10.0.0.0/24 dev ext0 table 7000 metric 10
add route 0.0.0.0/0 via 10.0.0.1 dev ext1 table 7000 metric 11
add route 10.0.0.0/24 dev ext1 table 7000 metric 11
add rule 7000 from 10.0.0.0/24 table 7000`,
			refused: `two gateways for 0.0.0.0/0 on ext0: 10.0.0.1 is used, 10.0.0.254 is not`,
			state: `
route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
route 0.0.0.0/0 via 10.0.0.1 dev ext1 table 7000 metric 11
route 10.0.0.0/24 dev ext0 table 7000 metric 10
route 10.0.0.0/24 dev ext1 table 7000 metric 11
rule 7000 from 10.0.0.0/24 table 7000`},
		{does: "without carrier one of them carries none",
			before:  func(k *linktest.Fake) { k.SetCarrier("ext0", false) },
			desired: Desired{Routes: []SubnetRoute{viaOne, onSecond}},
			done: `
remove route 0.0.0.0/0 via 10.0.0.1 dev ext0 table 7000 metric 10
remove route 10.0.0.0/24 dev ext0 table 7000 metric 10
remove route 0.0.0.0/0 via 10.0.0.1 dev ext1 table 7000 metric 11
remove route 10.0.0.0/24 dev ext1 table 7000 metric 11
add route 0.0.0.0/0 via 10.0.0.1 dev ext1 table 7000 metric 10
add route 10.0.0.0/24 dev ext1 table 7000 metric 10`,
			state: `
route 0.0.0.0/0 via 10.0.0.1 dev ext1 table 7000 metric 10
route 10.0.0.0/24 dev ext1 table 7000 metric 10
rule 7000 from 10.0.0.0/24 table 7000`},
	}},
}

// Each step sets a desired state on the kernel that the steps before left, and shows what was done and the whole state
// of the kernel afterwards.
func TestPlan(t *testing.T) {
	for _, story := range slices.Concat(planStories, routeStories) {
		t.Run(story.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { // lifetimes stand still
				k, mine := testKernel(), map[netip.Addr]string{}
				for _, step := range story.steps {
					if step.before != nil {
						step.before(k)
					}
					p, done := settle(t, k, step.desired, mine)
					compare(t, step.does+": what was done", step.done, done)
					compare(t, step.does+": what was refused", step.refused, refusals(p))
					compare(t, step.does+": the kernel", step.state, k.Text())
					if _, again := settle(t, k, step.desired, mine); again != "" {
						t.Errorf("%s: done once more it does\n%s", step.does, again)
					}
				}
			})
		})
	}
}

func testKernel() *linktest.Fake {
	tunnel := linktest.Ethernet(4, "tun0")
	tunnel.Ethernet = false
	return linktest.New(linktest.Ethernet(2, "ext0"), linktest.Ethernet(3, "ext1"), tunnel)
}

func refusals(p plan) string {
	var lines []string
	for _, a := range sortedAddresses(p.refused) {
		lines = append(lines, p.refused[a].Error())
	}
	for _, c := range p.conflicts {
		lines = append(lines, c.detail)
	}
	return strings.Join(lines, "\n")
}

func compare(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Whatever was desired before and whatever happened to the kernel, one plan leads to what is desired now, the kernel
// accepts each of its operations, and a second one has nothing to do.
func TestPlanLeadsToDesired(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, mine := testKernel(), map[netip.Addr]string{}
		wide := map[netip.Addr]bool{} // also there with a prefix that is not ours
		interfaces := rapid.SampledFrom([]string{"ext0", "ext1"})
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			d := drawDesired(t, interfaces)
			switch rapid.IntRange(0, 3).Draw(t, "accident") {
			case 0:
				list, _ := k.Addresses()
				if len(list) > 0 {
					a := rapid.SampledFrom(list).Draw(t, "lost")
					if a.Prefix.IsSingleIP() {
						k.Take(a.Interface, a.Prefix.Addr())
					}
				}
			case 1:
				a := link.Address{Interface: "ext1", Prefix: prefix("10.0.0.3/24"), Valid: link.Forever, Preferred: link.Forever}
				if !wide[addr("10.0.0.3")] {
					k.Put(a)
				}
				wide[addr("10.0.0.3")] = true
			case 2:
				i := linktest.Ethernet(2, "ext0")
				i.Carrier = rapid.Bool().Draw(t, "carrier")
				k.SetInterface(i)
			}
			p, done := settle(t, k, d, mine)
			checkDesired(t, k, d, p, wide)
			checkDefaultRoute(t, k, d)
			if _, again := settle(t, k, d, mine); again != "" {
				t.Errorf("after\n%s\nthere is still to do\n%s", done, again)
			}
		}
	})
}

func drawDesired(t *rapid.T, interfaces *rapid.Generator[string]) Desired {
	var d Desired
	for i := range 5 {
		if rapid.Bool().Draw(t, "wanted") {
			h := moving(fmt.Sprintf("10.0.0.%d", i+1), interfaces.Draw(t, "interface"))
			h.Lifetime = rapid.Bool().Draw(t, "lifetime")
			d.Holdings = append(d.Holdings, h)
		}
	}
	for i := range 3 {
		if rapid.Bool().Draw(t, "routed") {
			r := SubnetRoute{Prefix: prefix(fmt.Sprintf("10.0.%d.0/24", i)), Interface: interfaces.Draw(t, "out")}
			r.Gateway = addr(fmt.Sprintf("10.0.%d.%d", i, rapid.IntRange(1, 2).Draw(t, "gateway")))
			r.MTU = rapid.SampledFrom([]int{0, 1400, 9000}).Draw(t, "mtu")
			r.Priority = rapid.IntRange(0, 2).Draw(t, "priority")
			d.Routes = append(d.Routes, r)
		}
	}
	return d
}

func checkDesired(t *rapid.T, k *linktest.Fake, d Desired, p plan, wide map[netip.Addr]bool) {
	want := map[string]bool{}
	for _, h := range d.Holdings {
		if wide[h.Address] {
			if p.refused[h.Address] == nil {
				t.Errorf("%v is there with another prefix, and is not refused", h.Address)
			}
			continue
		}
		want[fmt.Sprint(h.Address, h.Interface, h.Lifetime)] = true
	}
	list, _ := k.Addresses()
	for _, a := range list {
		key := fmt.Sprint(a.Prefix.Addr(), a.Interface, a.Valid != link.Forever)
		if a.Prefix.IsSingleIP() && !want[key] && p.refused[a.Prefix.Addr()] == nil {
			t.Errorf("%v is there and not desired", a)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("desired and not there: %v", want)
	}
	rules, _ := k.Rules()
	if len(rules) != len(d.Routes) {
		t.Errorf("there are %v, want one for each of %v", rules, d.Routes)
	}
}
