package agent

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// services says on which node each service address is, by the kernels.
func (c *testCluster) services() map[string]string {
	on := map[string]string{}
	for lnn := range c.nodes {
		for _, addr := range c.onKernel(lnn) {
			if addr.As4()[3] < 10 {
				on[addr.String()] = c.nodes[lnn].agent.self.Name
			}
		}
	}
	return on
}

// holder is a node that has a service address, and that address.
func (c *testCluster) holder() (lnn int, address string) {
	on := c.services()
	address = slices.Min(slices.Collect(maps.Keys(on)))
	for lnn, n := range c.nodes {
		if n.agent.self.Name == on[address] {
			return lnn, address
		}
	}
	c.t.Fatal("nobody has a service address")
	return 0, ""
}

// What --dry-run and plan say of service addresses is what then happens: the same addresses, from the same nodes, and to the node that
// is named where it is not a race.
func TestServiceAddressesMoveAsWasForeseen(t *testing.T) {
	dry := &holdfastv1.ChangeOptions{DryRun: true}
	edit := func(op holdfastv1.Edit_Op, setting, value string) []*holdfastv1.Edit {
		return []*holdfastv1.Edit{{Setting: setting, Op: op, Value: value}}
	}
	modify := func(kind holdfastv1.ModifyRequest_ObjectKind, id string, edits []*holdfastv1.Edit) func(*testing.T, *testCluster, int, *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error) {
		return func(t *testing.T, c *testCluster, _ int, o *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error) {
			result, err := c.ask(1).Modify(t.Context(), &holdfastv1.ModifyRequest{ObjectKind: kind, Id: id, Edits: edits, Options: o})
			return result.GetMoves(), err
		}
	}
	for name, change := range map[string]func(t *testing.T, c *testCluster, lnn int, o *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error){
		"drain": func(t *testing.T, c *testCluster, lnn int, o *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error) {
			result, err := c.ask(1).DrainNode(t.Context(), &holdfastv1.DrainNodeRequest{Node: c.nodes[lnn].agent.self.Name, Options: o})
			return result.GetMoves(), err
		},
		"death": func(t *testing.T, c *testCluster, lnn int, o *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error) {
			if !o.GetDryRun() {
				c.kill(lnn)
				return nil, nil
			}
			plan, err := c.ask(1).PlanDown(t.Context(), &holdfastv1.PlanDownRequest{Nodes: []string{c.nodes[lnn].agent.self.Name}})
			return plan.GetMoves(), err
		},
		"node delete": func(t *testing.T, c *testCluster, lnn int, o *holdfastv1.ChangeOptions) ([]*holdfastv1.Move, error) {
			name := c.nodes[lnn].agent.self.Name
			if o.GetDryRun() { // it has to leave the pool first
				c.modify(holdfastv1.ModifyRequest_pool, holdfastv1.ModifyRequest_modify, pool0, "ifaces="+strings.Join(slices.DeleteFunc(
					[]string{"1:eth0", "2:eth0", "3:eth0", "4:eth0"}, func(m string) bool { return m[:1] == name[4:] }), ","))
			}
			result, err := c.ask(1).Modify(t.Context(), &holdfastv1.ModifyRequest{ObjectKind: holdfastv1.ModifyRequest_node, Verb: holdfastv1.ModifyRequest_delete, Id: name, Options: o})
			return result.GetMoves(), err
		},
		"more of them":  modify(holdfastv1.ModifyRequest_subnet, "groupnet0.subnet0", edit(holdfastv1.Edit_add, "sc-service-addrs", "10.0.0.7")),
		"fewer of them": modify(holdfastv1.ModifyRequest_subnet, "groupnet0.subnet0", edit(holdfastv1.Edit_remove, "sc-service-addrs", "10.0.0.4")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				c.pass(time.Second) // successors are on record
				lnn, _ := c.holder()
				before := c.services()
				moves, err := change(t, c, lnn, dry)
				if err != nil {
					t.Fatal(err)
				}
				want, certain := maps.Clone(before), map[string]bool{}
				for _, m := range moves {
					if m.Pool != "groupnet0.subnet0" {
						continue
					}
					if m.FromNode != before[m.Address] && (m.From != "nobody" || before[m.Address] != "") {
						t.Errorf("%s is said to be with %q and is with %q", m.Address, m.FromNode, before[m.Address])
					}
					want[m.Address], certain[m.Address] = m.ToNode, !strings.Contains(m.Reason, "probably")
					if m.To == "nobody" {
						delete(want, m.Address)
					}
				}
				if maps.Equal(want, before) {
					t.Errorf("no service address is said to move: %v", moves)
				}
				if _, err := change(t, c, lnn, nil); err != nil {
					t.Fatal(err)
				}
				c.eventually("it is as foreseen", func() bool {
					now := c.services()
					for address, node := range want {
						if now[address] == "" || certain[address] && now[address] != node || !certain[address] && before[address] != "" && now[address] != before[address] && !strings.Contains(name, "death") {
							return false
						}
					}
					return len(now) == len(want)
				})
			})
		})
	}
}

// Of nodes that die together with every other one, the plan says which service addresses nobody would have.
func TestThePlanNamesServiceAddressesThatNobodyWouldHave(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		plan, err := c.ask(1).PlanDown(t.Context(), &holdfastv1.PlanDownRequest{Nodes: []string{"1-4"}})
		if err != nil {
			t.Fatal(err)
		}
		var unassigned []string
		for _, a := range plan.Unassigned {
			unassigned = append(unassigned, a.Address)
		}
		if !slices.Contains(unassigned, "10.0.0.4") || !slices.Contains(unassigned, "10.0.0.100") || len(unassigned) != 3+12 {
			t.Errorf("unassigned: %q", unassigned)
		}
	})
}
