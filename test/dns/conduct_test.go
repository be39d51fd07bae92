package dns

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// kept is how long an answer with TTL 0 is given to other clients too.
type kept struct {
	nodes  int           // given to 20 clients in a row
	lasted time.Duration // until there was another, if it was one
	ttl    uint32        // the highest that clients were told
}

// conduct is what a resolver does with zones that it reaches in one way.
type conduct struct {
	fewest   int // nodes given to 20 clients in a row
	lasted   time.Duration
	ttl      uint32
	shares   [3]int   // of the questions for zones with three service addresses, by service address, from the highest down
	takeover [4]tally // by the number of service addresses
	dead     tally
}

func newConducts(zones []*steered) map[path]*conduct {
	conducts := map[path]*conduct{}
	for _, z := range zones {
		conducts[z.path] = &conduct{fewest: steeredNodes}
	}
	return conducts
}

func (c *conduct) note(_ *steered, k kept) {
	c.fewest, c.lasted, c.ttl = min(c.fewest, k.nodes), max(c.lasted, k.lasted), max(c.ttl, k.ttl)
}

// rows are those of the table in docs/dns.md.
func rows(name string, conducts map[path]*conduct) (all []string) {
	for _, p := range []path{delegated, forwarded} {
		if c := conducts[p]; c != nil {
			cells := []string{name, string(p), c.freshness(), c.preference(), c.takeover[3].cell(), c.dead.cell(), c.takeover[1].cell()}
			all = append(all, "| "+strings.Join(cells, " | ")+" |")
		}
	}
	return all
}

// freshness is what is done with TTL 0.
func (c *conduct) freshness() string {
	if c.fewest > steeredNodes/2 && c.ttl == 0 {
		return "every client its own"
	}
	return fmt.Sprintf("kept up to %d s, TTL %d", (c.lasted+999*time.Millisecond)/time.Second, c.ttl)
}

// preference is how the questions spread over three service addresses.
func (c *conduct) preference() string {
	sum := max(c.shares[0]+c.shares[1]+c.shares[2], 1)
	return fmt.Sprintf("%d, %d, %d %%", c.shares[0]*100/sum, c.shares[1]*100/sum, c.shares[2]*100/sum)
}

// cell is a tally in a table.
func (a tally) cell() string {
	switch {
	case a.asked == 0:
		return "-"
	case a.failed == 0 && a.late == 0:
		return "nobody waits"
	}
	share := func(n int) string { return fmt.Sprintf("%d %%", (n*100+a.asked/2)/a.asked) }
	text := ""
	if a.late > 0 {
		text = fmt.Sprintf("%s wait, up to %.1f s", share(a.late), a.longest.Seconds())
	}
	if a.failed > 0 {
		text += fmt.Sprintf("%s%s fail", map[bool]string{true: ", "}[text != ""], share(a.failed))
	}
	return text
}

// loader has clients ask for each of some zones, 50 a second, and in the place of some of them things happen.
type loader func(zones []*steered, clients int, events map[int]func()) map[*steered]tally

// failures lets service addresses die under load. Zones that are alike but for their path are asked at once, the others one
// after the other, so that nothing has to bear more than 100 questions a second.
func failures(t *testing.T, h *holders, zones []*steered, conducts map[path]*conduct, load loader) {
	alike := map[string][]*steered{}
	for _, z := range zones {
		h.forget(z) // what was asked before does not count
	}
	for _, z := range zones {
		alike[z.kind()] = append(alike[z.kind()], z)
	}
	delete(alike, "1-both") // what that does is seen in 1-ipv4 and 1-ipv6, and each kind takes seconds
	for _, kind := range slices.Sorted(maps.Keys(alike)) {
		for z, result := range takenOver(h, alike[kind], load) {
			t.Logf("%v, an address is taken over: %v", z, result)
			c := conducts[z.path]
			c.takeover[z.count] = c.takeover[z.count].add(result)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(alike)) {
		if alike[kind][0].count == 1 || kind == "3-ipv6" {
			continue
		}
		for z, result := range oneDead(h, alike[kind], conducts, load) {
			t.Logf("%v, one of three is dead: %v", z, result)
			conducts[z.path].dead = conducts[z.path].dead.add(result)
		}
	}
	// How many wait for the two addresses that are left, and how long, is the resolver's doing, and differs from run to run: some
	// need as long as a client has patience.
	for p, c := range conducts {
		if r := c.takeover[3]; r.failed > r.asked/3 {
			t.Errorf("%s: %d of %d clients fail while one of three service addresses is taken over: %s", p, r.failed, r.asked, r.fault)
		}
		if r := c.dead; r.failed > r.asked*2/3 {
			t.Errorf("%s: %d of %d clients fail while one of three service addresses is dead: %s", p, r.failed, r.asked, r.fault)
		}
	}
}

// takenOver: while clients ask, an address of each zone, the one that is asked most, is gone for 300 ms and then with another
// holder. That is about twice what it takes a cluster with the defaults.
func takenOver(h *holders, zones []*steered, load loader) map[*steered]tally {
	var gone [3][]netip.Addr
	return load(zones, 80, map[int]func(){
		15: func() {
			gone = h.favourites(zones)
			h.vanish(slices.Concat(gone[:]...))
		},
		30: func() {
			for k, moved := range gone {
				h.move(moved, (k+1)%3)
			}
			h.appear(slices.Concat(gone[:]...))
		},
	})
}

// oneDead: while clients ask, an address of each zone dies, the one that is asked most, and stays dead.
func oneDead(h *holders, zones []*steered, conducts map[path]*conduct, load loader) map[*steered]tally {
	var gone [3][]netip.Addr
	for _, z := range zones {
		h.forget(z)
	}
	defer func() { h.appear(slices.Concat(gone[:]...)) }()
	return load(zones, 155, map[int]func(){30: func() {
		for _, z := range zones {
			for i, count := range h.counts(z) {
				conducts[z.path].shares[i] += count
			}
		}
		gone = h.favourites(zones)
		h.vanish(slices.Concat(gone[:]...))
	}})
}
