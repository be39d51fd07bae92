package dns

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/bubble"
)

// TestLongestConnection: a client that never stops asking is sent away in the end, between two queries, so that those who wait
// for a connection get one (RFC 9210 section 4.2: limits on the resources of connections). Shortly before that it learns
// that it may not be idle for as long as ever (RFC 7828 section 3.4).
func TestLongestConnection(t *testing.T) {
	for _, c := range []struct {
		why   string
		every time.Duration
		taken int // other connections that are open
		after time.Duration
		first int // how long it may be idle, in 100 ms
		last  int
	}{
		{"a query every 7 s", 7 * time.Second, 0, 2 * time.Minute, 100, 10},
		{"a query every 700 ms while connections are short", 700 * time.Millisecond, 600, 12 * time.Second, 10, 1},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := newTestStreams(t, TCPLimits{})
				s.open = c.taken
				began := time.Now()
				conn, ended := connect(s)
				var took time.Duration
				var end sync.WaitGroup
				end.Go(func() { <-ended; took = time.Since(began) })
				query := framed(asked{name: "cluster.example.com.", qtype: tA, edns: true, options: []dnsmessage.Option{{Code: optionKeepalive}}}.pack(t))
				var told []int
				for len(told) < 100 { // which is far beyond the end
					if _, err := conn.Write(query); err != nil {
						break
					}
					told = append(told, keepaliveOf(t, readFramed(t, conn)))
					time.Sleep(c.every)
				}
				end.Wait()
				if took != c.after {
					t.Errorf("ends after %v, want %v", took, c.after)
				}
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("after the end: %v", err)
				}
				if told[0] != c.first || told[len(told)-1] != c.last {
					t.Errorf("told %v, want %d first and %d last", told, c.first, c.last)
				}
			})
		})
	}
}
