package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// moved waits until the nodes hold every address and all clients are served, shows what moved, and records what the
// clients saw of it.
func (t *tour) moved(ctx context.Context, nodes []string, what string) error {
	holders, err := t.settled(ctx, nodes)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, address := range slices.Sorted(maps.Keys(holders)) {
		if from, to := t.holders[address], holders[address]; from != to {
			rows = append(rows, []string{address, from, to})
		}
	}
	t.holders = holders
	if len(rows) > 0 {
		t.out.table([]string{"ADDRESS", "FROM", "TO"}, rows)
	}
	t.out.say("%s", holdings(holders))
	return t.measure(ctx, nodes, what)
}

// forget makes the clients count anew.
func (t *tour) forget() error {
	for _, client := range t.clients {
		var report clientReport
		if err := client.ask("reset", &report); err != nil {
			return err
		}
	}
	if t.reader != nil {
		t.reader.take()
	}
	var report probeReport
	return t.probe.ask("reset", &report)
}

// measure waits until all clients are served by nodes that are up, and records what they saw since they last forgot.
func (t *tour) measure(ctx context.Context, nodes []string, what string) error {
	m := measurement{What: what}
	for _, client := range t.clients {
		report, err := t.reconnected(ctx, client, tourClients, nodes)
		if err != nil {
			return err
		}
		m.Requests += report.Requests
		m.Repeated += report.Repeated
		m.Lost += report.Lost
		m.Longest = max(m.Longest, report.LongestMS)
	}
	if t.reader != nil {
		m.NFS = t.reader.take()
		m.Lost += m.NFS.Lost
	}
	var err error
	if m.GapMS, err = t.gap(ctx, t.probe); err != nil {
		return err
	}
	t.result.Measured = append(t.result.Measured, m)
	t.check(m.Lost == 0, "what the clients saw: %s", m)
	return t.forget()
}

// String says what the clients saw.
func (m measurement) String() string {
	text := fmt.Sprintf("no address was silent for more than %.0f ms; of %d requests %d had to be repeated, %d lost; the slowest took %.0f ms",
		m.GapMS, m.Requests, m.Repeated, m.Lost-m.NFS.Lost, m.Longest)
	if m.NFS.Reads > 0 {
		text += fmt.Sprintf("; of %d reads by NFS %d repeated, %d lost", m.NFS.Reads, m.NFS.Repeated, m.NFS.Lost)
	}
	return text
}

// askEvenEvery is after how many looks at addresses that are not spread evenly the cluster is asked again to spread them.
const askEvenEvery = 5

// even waits until the nodes hold equally many addresses, give or take one. It asks for that now and then: a node that
// has only just come is given nothing for a moment, and on a busy machine a node may have been taken for dead.
func (s *stage) even(ctx context.Context, nodes []string) (holders map[string]string, err error) {
	polls := 0
	err = s.wait(ctx, "the addresses are spread evenly", func() (bool, error) {
		holders, err = s.pool(ctx, nodes[0])
		if err != nil || evenly(holders, nodes) {
			return err == nil, err
		}
		if polls++; polls%askEvenEvery == 0 {
			err = s.holdfast(ctx, nodes[0], "network", "pools", "rebalance-ips", labPool)
		}
		return false, err
	})
	return holders, err
}

// evenly reports whether every address is held, and by the nodes equally, give or take one.
func evenly(holders map[string]string, nodes []string) bool {
	counts := countHolders(holders)
	least, most, sum := len(holders), 0, 0
	for _, node := range nodes {
		least, most, sum = min(least, counts[node]), max(most, counts[node]), sum+counts[node]
	}
	return sum == len(holders) && sum > 0 && most-least <= 1
}

// showHolders prints who holds which service and pool addresses.
func (t *tour) showHolders(ctx context.Context) error {
	all, err := held(ctx, t.Directory, tourAsked)
	if err != nil {
		return err
	}
	service, pool := make(map[string][]string), make(map[string][]string)
	for _, a := range all {
		into := pool
		if a.Kind == "service" {
			into = service
		}
		into[a.Node] = append(into[a.Node], a.Address)
	}
	var rows [][]string
	for _, node := range t.plan.Names(KindNode) {
		rows = append(rows, []string{node, strings.Join(service[node], " "), strings.Join(pool[node], " ")})
	}
	t.out.table([]string{"NODE", "ANSWERS DNS ON", "SERVES CLIENTS ON"}, rows)
	return nil
}

// holdings says how many addresses each node holds.
func holdings(holders map[string]string) string {
	return "Addresses now: " + byNode(countHolders(holders))
}

func byNode(counts map[string]int) string {
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", node, counts[node]))
	}
	return strings.Join(parts, ", ")
}

// summary ends the tour with everything that was measured.
func (t *tour) summary(took time.Duration) {
	t.out.title("What the clients saw, measured from their own packets")
	var rows [][]string
	for _, m := range t.result.Measured {
		rows = append(rows, []string{m.What, fmt.Sprintf("%.0f ms", m.GapMS), fmt.Sprintf("%.0f ms", m.Longest),
			strconv.Itoa(m.Requests + m.NFS.Reads), strconv.Itoa(m.Repeated + m.NFS.Repeated), strconv.Itoa(m.Lost)})
	}
	t.out.table([]string{"WHEN", "LONGEST GAP", "SLOWEST REQUEST", "REQUESTS", "REPEATED", "LOST"}, rows)
	t.out.verdict(t.result.Pass, "the tour took %.0f seconds; nothing of it is left on this machine", took.Seconds())
}
