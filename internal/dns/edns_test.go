package dns

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// TestOptionsCostWhatCame: options that claim to be long, and records that do, cost no more memory than came, and FORMERR is the answer.
func TestOptionsCostWhatCame(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	query := asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
		options: []dnsmessage.Option{{Code: 65001, Data: make([]byte, 20)}}}.pack(t)
	option := len(query) - 24
	longOption, longRecord := append([]byte(nil), query...), append([]byte(nil), query...)
	binary.BigEndian.PutUint16(longOption[option+2:], 65535)
	binary.BigEndian.PutUint16(longRecord[option-2:], 65535)
	for name, c := range map[string]struct {
		message []byte
		rcode   dnsmessage.RCode
	}{"sound": {query, dnsmessage.RCodeSuccess}, "option": {longOption, dnsmessage.RCodeFormatError}, "record": {longRecord, dnsmessage.RCodeFormatError}} {
		const times = 1000
		out := make([]byte, 0, ourUDPLimit)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if _, outcome := a.Answer(out, udp(c.message)); outcome.RCode != c.rcode {
				t.Fatalf("%s: %v", name, outcome)
			}
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 1000 {
			t.Errorf("%s: %d octets of memory for a query of %d", name, each, len(c.message))
		}
	}
}
