package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestBINDOverServiceAddressFailover turns off the node that hosts a service address while a client asks BIND without pause.
// With three service addresses and with one: no answer names what is not an address of the pool, and the answers come again,
// all good. While the only service address has no holder, BIND may say SERVFAIL; it must never say NXDOMAIN, nor an empty
// answer, which clients would remember.
func TestBINDOverServiceAddressFailover(t *testing.T) {
	for name, services := range map[string]string{"three service addresses": "10.10.0.4-10.10.0.6", "one service address": "10.10.0.4"} {
		t.Run(name, func(t *testing.T) {
			l := startLab(t, 3, cast{nodes: 3, clients: 2, services: services}.file())
			w := l.watch(t)
			pool, held := l.spread(t, l.nodes, 3, 3, 3)
			victim := held["10.10.0.4"]
			asker := l.askOn(t, "client2", pool)
			asker.more(t, 20)
			w.leave(t, victim)
			l.do(t, "kill", victim)
			survivors := without(l.nodes, victim)
			l.spread(t, survivors, 5, 4)
			asker.more(t, 20)
			counted := asker.stop(t)
			if counted["good"] < 40 {
				t.Errorf("the answers were %v", counted)
			}
			if services == "10.10.0.4-10.10.0.6" && counted["none"] > counted["good"] {
				t.Errorf("with two other service addresses most questions had no answer: %v", counted)
			}
			t.Logf("answers: %v", counted)
			final, _, err := l.agreed(survivors)
			if err != nil {
				t.Fatal(err)
			}
			named, err := l.answers("client1", "cluster.lab", 40)
			if err != nil {
				t.Fatal(err)
			}
			for _, address := range named {
				if !slices.Contains(survivors, final[address]) {
					t.Errorf("an answer names %s, which is with %q", address, final[address])
				}
			}
			l.do(t, "start", victim)
			w.join(t, victim)
			l.spread(t, l.nodes, 3, 3, 3)
		})
	}
}

// asker asks BIND the same question again and again, and sorts the answers.
type asker struct {
	mu     sync.Mutex
	counts map[string]int // good, none (SERVFAIL or silence), wrong
	wrong  string
	ended  chan struct{}
	end    func() // closes ended, once
	done   chan struct{}
}

// askOn starts an asker on a client. Good answers name an address of the pool.
func (l *lab) askOn(t *testing.T, client string, pool map[string]string) *asker {
	t.Helper()
	a := &asker{counts: map[string]int{}, ended: make(chan struct{}), done: make(chan struct{})}
	a.end = sync.OnceFunc(func() { close(a.ended) })
	t.Cleanup(func() { a.end(); <-a.done })
	go func() {
		defer close(a.done)
		for {
			select {
			case <-a.ended:
				return
			default:
			}
			r, err := l.try(client, "dig", "+tries=1", "+time=1", "cluster.lab")
			kind := kindOf(r, pool)
			if err != nil {
				kind = "none"
			}
			a.mu.Lock()
			a.counts[kind]++
			if kind == "wrong" {
				a.wrong = r.out
			}
			a.mu.Unlock()
		}
	}()
	return a
}

func kindOf(r result, pool map[string]string) string {
	if r.code != 0 || strings.Contains(r.out, "status: SERVFAIL") {
		return "none"
	}
	for line := range strings.Lines(r.out) {
		fields := strings.Fields(line)
		if len(fields) == 5 && fields[0] == "cluster.lab." && fields[3] == "A" {
			if _, known := pool[fields[4]]; known && strings.Contains(r.out, "status: NOERROR") {
				return "good"
			}
		}
	}
	return "wrong"
}

// more waits for some more good answers.
func (a *asker) more(t *testing.T, count int) {
	t.Helper()
	a.mu.Lock()
	before := a.counts["good"]
	a.mu.Unlock()
	eventually(t, "the client has more good answers", func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.counts["good"] < before+count {
			return fmt.Errorf("they are %v", a.counts)
		}
		return nil
	})
}

func (a *asker) stop(t *testing.T) map[string]int {
	t.Helper()
	a.end()
	<-a.done
	if a.counts["wrong"] > 0 {
		t.Errorf("%d answers were wrong; the last:\n%s", a.counts["wrong"], a.wrong)
	}
	return maps.Clone(a.counts)
}
