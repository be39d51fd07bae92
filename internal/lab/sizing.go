package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// sizingResult is what `lab run sizing --output json` prints.
type sizingResult struct {
	Scenario string       `json:"scenario"`
	Pass     bool         `json:"pass"`
	Cases    []sizingCase `json:"cases"`
}

// sizingCase is one of the sizing examples, played.
type sizingCase struct {
	Nodes     int                 `json:"nodes"`
	Addresses int                 `json:"addresses"`
	Clients   int                 `json:"clients"`
	Down      string              `json:"down"`
	Before    map[string]nodeLoad `json:"before"`
	After     map[string]nodeLoad `json:"after"`
	GapMS     float64             `json:"gap_ms"`     // the longest that any of the dead node's addresses did not answer a client
	LongestMS float64             `json:"longest_ms"` // the longest that any request took, with all its repetitions
	Lost      int                 `json:"lost"`       // requests that were never answered
	Pass      bool                `json:"pass"`
	Why       string              `json:"why,omitempty"` // why it did not pass
}

// nodeLoad is what one node carries.
type nodeLoad struct {
	Addresses int `json:"addresses"`
	Clients   int `json:"clients"`
}

// clientSlack is how far a node's clients may be from the even number for each address that it holds. The answers of
// three service addresses are as even as those of one only once the holders have heard of each other's.
const clientSlack = 3

// runSizing plays the two examples: twelve and four addresses on four nodes, 600 clients.
func runSizing(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
	result := sizingResult{Scenario: "sizing", Pass: true, Cases: []sizingCase{}}
	for _, addresses := range []int{12, 4} {
		played, err := playSizing(ctx, out, sizingCase{Nodes: 4, Addresses: addresses, Clients: 600, Down: "node4"}, o.keep)
		result.Pass = result.Pass && played.Pass && err == nil
		result.Cases = append(result.Cases, played)
		if err != nil {
			return result, false, err
		}
	}
	return result, result.Pass, nil
}

func playSizing(ctx context.Context, out *transcript, c sizingCase, keep bool) (played sizingCase, err error) {
	out.title("%d nodes, %d addresses, %d clients", c.Nodes, c.Addresses, c.Clients)
	s, err := newStage(ctx, sizingFile(c), out, keep)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	nodes := s.plan.Names(KindNode)
	holders, err := s.even(ctx, nodes)
	if err != nil {
		return c, err
	}
	clients, first, err := s.startClients(ctx, "client1", c.Clients)
	if err != nil {
		return c, err
	}
	c.Before = loads(nodes, holders, first)
	probe, err := s.startProbe(ctx, "client1", slices.Sorted(maps.Keys(holders)))
	if err != nil {
		return c, err
	}
	if err := s.tell(request{Op: "kill", Member: c.Down}); err != nil {
		return c, err
	}
	left := without(nodes, c.Down)
	if holders, err = s.settled(ctx, left); err != nil {
		return c, err
	}
	last, err := s.reconnected(ctx, clients, c.Clients, left)
	if err != nil {
		return c, err
	}
	c.After = loads(left, holders, last)
	c.LongestMS, c.Lost = last.LongestMS, last.Lost
	if c.GapMS, err = s.gap(ctx, probe); err != nil {
		return c, err
	}
	c.judge(out)
	return c, nil
}

// sizingFile is the lab of one example.
func sizingFile(c sizingCase) File {
	file := File{Nodes: c.Nodes, Clients: 1, Resolver: ResolverBIND}
	members := ""
	for i := 1; i <= c.Nodes; i++ {
		members += fmt.Sprintf("%q, ", fmt.Sprintf("%d:eth0", i))
	}
	file.Cluster = poolYAML("", fmt.Sprintf("10.10.0.100-10.10.0.%d", 99+c.Addresses), members[:len(members)-2], "")
	return file
}

// loads puts together who holds how many addresses and has how many clients.
func loads(nodes []string, holders map[string]string, clients clientReport) map[string]nodeLoad {
	counts := countHolders(holders)
	all := make(map[string]nodeLoad)
	for _, node := range nodes {
		all[node] = nodeLoad{Addresses: counts[node], Clients: clients.ByNode[node]}
	}
	return all
}

// judge compares with what the examples say: addresses exactly, clients within what uneven answers can cost.
func (c *sizingCase) judge(out *transcript) {
	var rows [][]string
	for _, node := range slices.Sorted(maps.Keys(c.Before)) {
		before, after := c.Before[node], c.After[node]
		row := []string{node, strconv.Itoa(before.Addresses), strconv.Itoa(before.Clients), strconv.Itoa(after.Addresses), strconv.Itoa(after.Clients)}
		if node == c.Down {
			row[3], row[4] = "down", "-"
		}
		rows = append(rows, row)
	}
	out.table([]string{"NODE", "ADDRESSES", "CLIENTS", "AFTER", "CLIENTS"}, rows)
	c.Pass = true
	for _, side := range []struct {
		when  string
		loads map[string]nodeLoad
	}{{"before", c.Before}, {"after", c.After}} {
		if why := uneven(side.loads, c.Addresses, c.Clients); why != "" {
			c.Pass, c.Why = false, firstOf(c.Why, side.when+" "+c.Down+" died: "+why)
		}
	}
	if c.Lost > 0 {
		c.Pass, c.Why = false, firstOf(c.Why, fmt.Sprintf("%d requests were lost", c.Lost))
	}
	out.verdict(c.Pass, "%s", firstOf(c.Why, fmt.Sprintf("as the example says; an address of %s did not answer for %.0f ms at most", c.Down, c.GapMS)))
}

// uneven says how the loads differ from an even spread of addresses, and of clients over the addresses; "" if they do
// not.
func uneven(loads map[string]nodeLoad, addresses, clients int) string {
	least, most, sum, connected := math.MaxInt, 0, 0, 0
	for _, node := range slices.Sorted(maps.Keys(loads)) {
		load := loads[node]
		least, most = min(least, load.Addresses), max(most, load.Addresses)
		sum, connected = sum+load.Addresses, connected+load.Clients
		want := float64(clients*load.Addresses) / float64(addresses)
		if off := math.Abs(float64(load.Clients) - want); off > float64(clientSlack*load.Addresses) {
			return fmt.Sprintf("%s has %d clients on %d addresses; %.0f would be even", node, load.Clients, load.Addresses, want)
		}
	}
	switch {
	case most-least > 1:
		return fmt.Sprintf("one node holds %d addresses and another %d", most, least)
	case sum != addresses:
		return fmt.Sprintf("%d of %d addresses are held", sum, addresses)
	case connected != clients:
		return fmt.Sprintf("%d of %d clients are connected", connected, clients)
	}
	return ""
}
