package dns

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	peer "github.com/miekg/dns"
)

// A client of the load asks again after clientRepeats, and gives up after clientPatience; its answer is late after clientLate.
const (
	clientRepeats  = 2 * time.Second
	clientPatience = 9 * time.Second
	clientLate     = 100 * time.Millisecond
	loadPause      = 20 * time.Millisecond // between two clients: 50 a second
)

// tally is how the clients of a load fared.
type tally struct {
	asked, failed, late int
	longest             time.Duration // of those that got an answer
	fault               string        // of one that failed
}

func (a tally) String() string {
	text := fmt.Sprintf("%d late, %d failed of %d; longest %v", a.late, a.failed, a.asked, a.longest.Round(time.Millisecond))
	if a.fault != "" {
		text += " (" + a.fault + ")"
	}
	return text
}

// add puts two tallies together.
func (a tally) add(b tally) tally {
	fault := a.fault
	if fault == "" {
		fault = b.fault
	}
	return tally{asked: a.asked + b.asked, failed: a.failed + b.failed, late: a.late + b.late, longest: max(a.longest, b.longest), fault: fault}
}

// qtypeOf is the type of address that a zone has.
func qtypeOf(z *steered) uint16 {
	if z.has4() {
		return peer.TypeA
	}
	return peer.TypeAAAA
}

// load has 50 clients a second ask for the address of each zone, each from a socket of its own, for as long as said. What has
// to happen meanwhile happens in the place of the client of that number. It has to be called in the test's namespace, for
// that is where sockets are made.
func load(t *testing.T, at netip.AddrPort, zones []*steered, clients int, events map[int]func()) map[*steered]tally {
	var mu sync.Mutex
	var waiting sync.WaitGroup
	tallies := map[*steered]tally{}
	pace := time.NewTicker(loadPause)
	defer pace.Stop()
	for i := range clients {
		if event := events[i]; event != nil {
			event()
		}
		for _, z := range zones {
			c, err := net.Dial("udp", at.String())
			if err != nil {
				t.Errorf("a socket for a client: %v", err)
				return tallies
			}
			waiting.Go(func() {
				defer c.Close()
				one := askPatiently(c, question(z.name()+".", qtypeOf(z)))
				mu.Lock()
				tallies[z] = tallies[z].add(one)
				mu.Unlock()
			})
		}
		<-pace.C
	}
	waiting.Wait()
	return tallies
}

// askPatiently is one client.
func askPatiently(c net.Conn, m *peer.Msg) tally {
	began := time.Now()
	failed := func(why string) tally { return tally{asked: 1, failed: 1, fault: why} }
	wire, err := m.Pack()
	if err != nil {
		return failed(err.Error())
	}
	answer := make([]byte, 4096)
	fault := "no answer"
	for time.Since(began) < clientPatience {
		if _, err := c.Write(wire); err != nil {
			fault = err.Error()
		}
		if err := c.SetReadDeadline(time.Now().Add(clientRepeats)); err != nil {
			return failed(err.Error())
		}
		n, err := c.Read(answer)
		if err != nil {
			continue
		}
		took := time.Since(began)
		r := new(peer.Msg)
		if err := r.Unpack(answer[:n]); err != nil || r.Id != m.Id {
			return failed(fmt.Sprintf("not understood: %v", err))
		}
		if r.Rcode != peer.RcodeSuccess || len(r.Answer) != 1 {
			return failed(peer.RcodeToString[r.Rcode])
		}
		one := tally{asked: 1, longest: took}
		if took > clientLate {
			one.late = 1
		}
		return one
	}
	return failed(fault)
}
