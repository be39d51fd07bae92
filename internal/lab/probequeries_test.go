package lab

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func TestQueries(t *testing.T) {
	query, err := queryFor("cluster.lab.")
	if err != nil {
		t.Fatal(err)
	}
	var read dnsmessage.Message
	if err := read.Unpack(numbered(query, 0x10007)); err != nil {
		t.Fatal(err)
	}
	if read.ID != 7 || len(read.Questions) != 1 || read.Questions[0].GoString() != `dnsmessage.Question{Name: dnsmessage.MustNewName("cluster.lab."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}` {
		t.Errorf("the query is %s", read.GoString())
	}
	for _, name := range []string{"", ".", "a..b", strings.Repeat("x", 64) + ".lab"} {
		if _, err := queryFor(name); err == nil {
			t.Errorf("there is a query for the name %q", name)
		}
	}
	if err := new(prober).ask([]string{"2001:db8::1"}, "cluster.lab"); err == nil {
		t.Error("an IPv6 service address is asked over IPv4")
	}
}

// TestServiceAddressesAnswerWithAnAddress: an error, an answer without a record and a query that comes back are silence. A service
// address is its own column, and does not count among the pool's.
func TestServiceAddressesAnswerWithAnAddress(t *testing.T) {
	answer := func(code dnsmessage.RCode, records int) []byte {
		name := dnsmessage.MustNewName("cluster.lab.")
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true, RCode: code}, Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		for range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{10, 10, 0, 100}}})
		}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	query, err := queryFor("cluster.lab")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		packet []byte
		good   bool
	}{
		"an address": {answer(dnsmessage.RCodeSuccess, 1), true}, "no record": {answer(dnsmessage.RCodeSuccess, 0), false},
		"an error": {answer(dnsmessage.RCodeServerFailure, 1), false}, "the query itself": {query, false}, "nothing": {nil, false},
	} {
		if got := isGoodAnswer(c.packet); got != c.good {
			t.Errorf("%s is a good answer: %v", name, got)
		}
	}
	began := time.Now().Add(-time.Second)
	from := netip.MustParseAddr("10.10.0.4")
	p := &prober{services: map[netip.Addr]*service{from: {silence: silence{last: began}, watched: true}}}
	p.answeredDatagram(from, answer(dnsmessage.RCodeServerFailure, 0), began.Add(10*time.Millisecond))
	p.answeredDatagram(from, answer(dnsmessage.RCodeSuccess, 1), began.Add(40*time.Millisecond))
	p.answeredDatagram(from, answer(dnsmessage.RCodeSuccess, 1), time.Now())
	report := p.now()
	report.LongestMS = map[string]float64{"10.10.0.100": 30 + othersInterval}
	if got := sights(report); got.gapMS != 30 || got.serviceGapMS < 900 || p.received != 2 {
		t.Errorf("seen: %+v, of %d answers", got, p.received)
	}
	if got := sights(probeReport{Services: map[string]serviceReport{"10.10.0.4": {LongestMS: 20, Watched: true}, "10.10.0.5": {LongestMS: 24}}}); got.serviceGapMS != 20 || got.gapMS != 0 {
		t.Errorf("seen: %+v", got)
	}
}
