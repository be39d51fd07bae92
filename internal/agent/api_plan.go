package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// defaultWithinPercent is how far over an even share the busiest survivor may be unless the caller says.
const defaultWithinPercent = 10

func (s nodeService) PoolSize(_ context.Context, r *holdfastv1.PoolSizeRequest) (*holdfastv1.PoolSizeResponse, error) {
	if r.Pool == "" {
		return Size(r)
	}
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	id, err := cluster.ParsePoolID(v.world.Config, r.Pool)
	if err != nil {
		return nil, api.NotFound("%v", err)
	}
	nodes := lnnsOf(v.world.Config.Members(id))
	return Size(&holdfastv1.PoolSizeRequest{
		Nodes: int32(len(nodes)), Addresses: int32(len(v.world.Config.Addresses(id))), Clients: r.Clients, WithinPercent: r.WithinPercent,
	})
}

// Size answers for numbers of nodes and addresses. It is pure: it needs no agent and no cluster.
func Size(r *holdfastv1.PoolSizeRequest) (*holdfastv1.PoolSizeResponse, error) {
	request := placement.SizeRequest{Nodes: int(r.Nodes), Addresses: int(r.Addresses), Clients: int(r.Clients), WithinPercent: r.WithinPercent}
	if request.WithinPercent == 0 {
		request.WithinPercent = defaultWithinPercent
	}
	if request.Nodes < 1 || request.Nodes > 256 || request.Addresses < 1 || request.Addresses > 4096 {
		return nil, api.Invalid("name a pool, or 1 to 256 nodes and 1 to 4096 addresses; not %d nodes and %d addresses", request.Nodes, request.Addresses)
	}
	return sizeMessage(request, placement.Size(request)), nil
}

func sizeMessage(r placement.SizeRequest, sizing placement.Sizing) *holdfastv1.PoolSizeResponse {
	response := &holdfastv1.PoolSizeResponse{
		Nodes: int32(r.Nodes), Addresses: int32(r.Addresses), Clients: int32(r.Clients), EvenAddresses: int32(sizing.Recommended),
		Now: sizeCase(sizing.Losses[0]), AfterOne: sizeCase(sizing.Losses[1]), AfterTwo: sizeCase(sizing.Losses[2]),
		WithinPercent: r.WithinPercent, AddressesWithinAfterOne: int32(sizing.Needed), AddressesWithinAfterTwo: int32(sizing.NeededForTwo),
	}
	text := []string{fmt.Sprintf("%d nodes with %d addresses: N*(N-1) = %d addresses spread the loss of any one node evenly.", r.Nodes, r.Addresses, sizing.Recommended)}
	if sizing.Needed > 0 {
		text = append(text, fmt.Sprintf("%d addresses keep the busiest survivor of one loss within %.0f%% of an even share.", sizing.Needed, r.WithinPercent))
	}
	response.Text = strings.Join(append(text, sizing.Notes...), " ")
	return response
}

func sizeCase(loss placement.Loss) *holdfastv1.SizeCase {
	c := &holdfastv1.SizeCase{OverPercent: loss.WorstOverPercent}
	for i, g := range loss.Groups {
		c.Nodes += int32(g.Nodes)
		if i == 0 {
			c.AddressesMost, c.ClientsMost = int32(g.Addresses), int32(g.Clients)
		}
		c.AddressesLeast, c.ClientsLeast = int32(g.Addresses), int32(g.Clients)
	}
	return c
}

// planAge is how old what the plan rests on is: the measurements where a policy looks at them, else what this node saw last.
func planAge(v *view, now time.Time) time.Duration {
	age := now.Sub(v.at)
	for _, id := range v.world.Config.Pools() {
		if pool, _, _, _ := v.world.Config.Pool(id); pool.AllocMethod == cluster.AllocDynamic && pool.FailoverPolicy != cluster.RoundRobin {
			return age + v.world.PlannedAge
		}
	}
	return age
}

func (s nodeService) PlanDown(_ context.Context, r *holdfastv1.PlanDownRequest) (*holdfastv1.PlanDownResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	down, err := findNodes(v.world.Config, r.Nodes)
	if err != nil {
		return nil, err
	}
	response := &holdfastv1.PlanDownResponse{AgeMs: planAge(v, s.now()).Milliseconds()}
	for _, id := range v.world.Config.Pools() {
		pool, _, _, _ := v.world.Config.Pool(id)
		if pool.AllocMethod == cluster.AllocStatic {
			continue
		}
		foreseen := steering.ForeseeDown(v.world, id, down, s.now())
		before, after := counts(v.world.Pools[id]), counts(foreseen.Record)
		for _, lnn := range down {
			delete(after, lnn)
		}
		response.Moves = append(response.Moves, moveMessages(v.world, id, foreseen.Moves)...)
		response.Decisions = append(response.Decisions, decisionMessages(foreseen.Decisions)...)
		plan := &holdfastv1.PlanPool{Pool: id.String()}
		for _, lnn := range lnnsOf(v.world.Config.Members(id)) {
			plan.Nodes = append(plan.Nodes, &holdfastv1.PlanNode{Name: nameOf(v.world, lnn), Lnn: int32(lnn), AddressesBefore: int32(before[lnn]), AddressesAfter: int32(after[lnn])})
		}
		response.Pools = append(response.Pools, plan)
		for _, addr := range v.world.Config.Addresses(id) {
			if st := foreseen.Record[addr]; st.Owner.IsZero() || v.world.Over(st.Owner) || slices.Contains(down, st.Owner.LNN) {
				response.Unassigned = append(response.Unassigned, &holdfastv1.PoolAddress{Address: addr.String(), Why: "no member would be left that may hold it"})
			}
		}
	}
	s.planServices(v, down, response)
	return response, nil
}

// planServices adds what becomes of the service addresses.
func (s nodeService) planServices(v *view, down []int, response *holdfastv1.PlanDownResponse) {
	foreseen := steering.ForeseeServicesDown(v.world, down, s.now())
	response.Moves = append(response.Moves, serviceMoveMessages(v.world, foreseen.Moves)...)
	for _, subnet := range v.world.Config.Subnets() {
		for _, addr := range v.world.Config.ServiceAddresses(subnet) {
			st := foreseen.Services[steering.ServiceKey{Subnet: subnet, Address: addr}]
			if st.Owner.IsZero() || v.world.Over(st.Owner) || slices.Contains(down, st.Owner.LNN) {
				response.Unassigned = append(response.Unassigned, &holdfastv1.PoolAddress{Address: addr.String(), Why: "no ready node would be left to answer on it"})
			}
		}
	}
}

// counts is how many addresses of a record each node holds or is about to hold.
func counts(record tenure.Record) map[int]int {
	n := map[int]int{}
	for _, st := range record {
		if st.State() == tenure.Moving {
			n[st.To.LNN]++
		} else {
			n[st.Owner.LNN]++
		}
	}
	return n
}

func lnnsOf(members []cluster.Member) []int {
	lnns := map[int]bool{}
	for _, m := range members {
		lnns[m.LNN] = true
	}
	return slices.Sorted(maps.Keys(lnns))
}
