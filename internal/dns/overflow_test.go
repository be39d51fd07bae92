package dns

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestOverflowsAreCounted: whatever comes while nobody reads is either read afterwards or counted as lost, also by a server that takes the
// sockets over, which does not count again what was lost before, and after the sockets are closed.
func TestOverflowsAreCounted(t *testing.T) {
	const overflowed, queries = "holdfast_dns_overflowed_total", "holdfast_dns_queries_total"
	reg := prometheus.NewRegistry()
	s := startServer(t, Options{Registerer: reg}, "127.0.0.1")
	c := dial(t, s, "udp", "127.0.0.1")
	message := make([]byte, 4000) // no query, but it takes as much of the buffer as some
	fill := func(s *Server, reg *prometheus.Registry) (sent float64) {
		t.Helper()
		sockets, err := s.Suspend()
		if err != nil {
			t.Fatal(err)
		}
		for _, socket := range sockets {
			if err := socket.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for before := unlabelled(t, reg, overflowed); unlabelled(t, reg, overflowed) < before+10; sent++ {
			if sent > 1e5 {
				t.Fatal("the kernel keeps everything")
			}
			send(t, c, message)
		}
		s.Resume()
		return sent
	}
	settle := func(reg *prometheus.Registry, sent float64) {
		t.Helper()
		for began := time.Now(); counterValue(t, reg, queries, "udp")+unlabelled(t, reg, overflowed) != sent; time.Sleep(time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%v were read and %v lost, of %v", counterValue(t, reg, queries, "udp"), unlabelled(t, reg, overflowed), sent)
			}
		}
	}
	first := fill(s, reg)
	settle(reg, first)
	all := first + fill(s, reg)
	settle(reg, all)

	sockets, err := s.Suspend()
	if err != nil {
		t.Fatal(err)
	}
	lost := unlabelled(t, reg, overflowed)
	laterReg := prometheus.NewRegistry()
	later := NewServer(Options{Registerer: laterReg, Port: s.port})
	t.Cleanup(later.Close)
	later.SetView(testView())
	later.Inherit(sockets)
	if err := later.Serve(t.Context(), parseAddresses("127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	if got := unlabelled(t, laterReg, overflowed); got != 0 {
		t.Errorf("the next server begins with %v lost", got)
	}
	s.Close()
	if got := unlabelled(t, reg, overflowed); got != lost {
		t.Errorf("%v are lost after the end, %v before", got, lost)
	}
	settle(laterReg, fill(later, laterReg))
}
