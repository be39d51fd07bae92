package placement

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"pgregory.net/rapid"
)

// addressAt is 10.0.0.1 for 0 and so on.
func addressAt(i int) netip.Addr {
	i++
	return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
}

func addresses(count int) []netip.Addr {
	list := make([]netip.Addr, count)
	for i := range list {
		list[i] = addressAt(i)
	}
	return list
}

func member(lnn int) cluster.Member { return cluster.Member{LNN: lnn, Interface: "ext-1"} }

// evenPool is a pool of nodes with one interface each and weight 1, freshly allocated.
func evenPool(nodes, count int) Request {
	req := Request{
		Pool:      cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "pool0"},
		Addresses: addresses(count),
	}
	for lnn := 1; lnn <= nodes; lnn++ {
		req.Candidates = append(req.Candidates, Candidate{Member: member(lnn), Node: fmt.Sprintf("n%d", lnn), Weight: 1, Fit: true})
	}
	req.Current = Allocate(req).Statements
	return req
}

// setFit makes all members of a node fit or not.
func setFit(req *Request, lnn int, fit bool, why string) {
	req.Candidates = slices.Clone(req.Candidates)
	for i := range req.Candidates {
		if c := &req.Candidates[i]; c.Member.LNN == lnn {
			c.Fit, c.Why = fit, why
		}
	}
}

// counts are the addresses that each node holds, by LNN.
func counts(statements []Statement) map[int]int {
	held := map[int]int{}
	for _, s := range statements {
		held[s.Owner.LNN]++
	}
	return held
}

// heldBy is counts as a sorted list with zeros for fit nodes that hold nothing, most first.
func heldBy(req Request, statements []Statement) []int {
	held := counts(statements)
	var list []int
	seen := map[int]bool{}
	for _, c := range req.Candidates {
		if c.Fit && !seen[c.Member.LNN] {
			seen[c.Member.LNN] = true
			list = append(list, held[c.Member.LNN])
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list
}

// drawRequest makes small requests with everything that a request may hold, also what no sane caller would send.
func drawRequest(t *rapid.T) Request {
	req := Request{
		Pool:           cluster.PoolID{Groupnet: "g", Subnet: "s", Pool: rapid.StringMatching(`p[0-9]`).Draw(t, "pool")},
		Addresses:      addresses(rapid.IntRange(0, 6).Draw(t, "addresses")),
		FailoverPolicy: rapid.SampledFrom([]cluster.Policy{cluster.RoundRobin, cluster.RoundRobin, cluster.ConnCount, cluster.Throughput, cluster.CPUUsage}).Draw(t, "policy"),
		Rebalance:      rapid.Bool().Draw(t, "rebalance"),
		Now:            time.Unix(1000, 0),
	}
	members := drawCandidates(t, &req)
	anyone := append(slices.Clone(members), cluster.Member{}, cluster.Member{LNN: 9, Interface: "gone"})
	who := rapid.SampledFrom(anyone)
	for i := range req.Addresses {
		if rapid.IntRange(0, 9).Draw(t, "recorded") > 0 {
			req.Current = append(req.Current, Statement{
				Address: addressAt(i), Owner: who.Draw(t, "owner"), Next: who.Draw(t, "next"),
			})
		}
		if rapid.IntRange(0, 9).Draw(t, "pinned") == 0 {
			if req.Pins == nil {
				req.Pins = map[netip.Addr]cluster.Member{}
			}
			req.Pins[addressAt(i)] = who.Draw(t, "pin")
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "leftover") == 0 {
		req.Current = append(req.Current, Statement{Address: addressAt(100), Owner: who.Draw(t, "owner of leftover")})
	}
	if rapid.IntRange(0, 3).Draw(t, "some movable") == 0 {
		req.Movable = map[netip.Addr]bool{}
		for _, address := range req.Addresses {
			req.Movable[address] = rapid.Bool().Draw(t, "movable")
		}
	}
	return req
}

func drawCandidates(t *rapid.T, req *Request) []cluster.Member {
	var members []cluster.Member
	for lnn := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		for i := range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "interfaces") {
			c := Candidate{
				Member:   cluster.Member{LNN: lnn + 1, Interface: fmt.Sprintf("ext-%d", i+1)},
				Node:     fmt.Sprintf("n%d", lnn+1),
				Weight:   rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "weight"),
				Fit:      rapid.IntRange(0, 3).Draw(t, "fit") > 0,
				HoldDown: rapid.IntRange(0, 7).Draw(t, "hold-down") == 0,
				Load: Load{
					Known:       rapid.IntRange(0, 5).Draw(t, "known") > 0,
					Connections: rapid.IntRange(0, 30).Draw(t, "connections"),
					Throughput:  rapid.Float64Range(0, 1).Draw(t, "throughput"),
					CPU:         rapid.Float64Range(0, 1).Draw(t, "cpu"),
					Age:         time.Second,
					Stale:       rapid.IntRange(0, 5).Draw(t, "stale") == 0,
				},
			}
			if !c.Fit {
				c.Why = "carrier lost"
			}
			req.Candidates = append(req.Candidates, c)
			members = append(members, c.Member)
		}
	}
	return members
}

// show writes statements for messages.
func show(statements []Statement) string {
	var text strings.Builder
	for _, s := range statements {
		fmt.Fprintf(&text, "%v %v next %v\n", s.Address, s.Owner, s.Next)
	}
	return text.String()
}
