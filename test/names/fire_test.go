package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/dns"
)

// TestMain lets the test's own program be the server and the attackers, as the real one is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		main()
		return
	}
	os.Exit(m.Run())
}

// What the server promises while it is attacked.
const (
	mostMemory        = 128 << 20 // the program itself, the rate limit's table, 1,024 connections, batches
	mostAmplification = 4         // over UDP, of this view; what a prefix gets at most is bounded by the rate limit besides
	leastAnswered     = 0.5       // of the honest queries at a rate that any machine keeps up with
)

// TestUnderFire: while forged queries come from 65,536 sources, and while 1,024 connections send an octet a second, honest clients have
// their answers, over UDP with a cookie and over TCP; attackers get little more than they sent, and memory is bounded.
func TestUnderFire(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace and raw sockets need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip is not installed (Debian package iproute2)")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{"4", "6"} {
		t.Run("IPv"+family, func(t *testing.T) { underFire(t, self, family) })
	}
}

func underFire(t *testing.T, self, family string) {
	command := exec.CommandContext(t.Context(), self, "fire", "-attacks", "many,forged,slow", "-seconds", "2", "-rate", "10000", "-family", family)
	var said, fault bytes.Buffer
	command.Stdout, command.Stderr = &said, &fault
	if err := command.Run(); err != nil {
		if strings.Contains(fault.String(), "operation not permitted") {
			t.Skipf("a network namespace may not be made here: %s", &fault)
		}
		t.Fatalf("%v: %s", err, &fault)
	}
	var r fireReport
	if err := json.Unmarshal(said.Bytes(), &r); err != nil || len(r.Attacks) != 3 {
		t.Fatalf("%d attacks, %v: %s", len(r.Attacks), err, &said)
	}
	for _, a := range r.Attacks {
		least := 1000
		if a.Fired.Octets == 0 {
			least = 100 // connections, which take a busy machine longer
		}
		if a.Fired.Sent < least {
			t.Errorf("%s: hardly an attack: %+v", a.Name, a.Fired)
		}
		for _, kind := range []string{withCookie, overTCP} {
			if h := a.During[kind]; h.Asked == 0 || float64(h.Answered) < leastAnswered*float64(h.Asked) {
				t.Errorf("%s: honest clients (%s) were not answered: %+v", a.Name, kind, h)
			}
		}
		if a.Memory == 0 || a.Memory > mostMemory {
			t.Errorf("%s: %d octets of memory", a.Name, a.Memory)
		}
		if a.amplification() > mostAmplification {
			t.Errorf("%s: %d octets for %d", a.Name, a.Octets, a.Fired.Octets)
		}
		if forged := a.Fired.Octets > 0; forged && a.Octets == 0 {
			t.Errorf("%s: no answer was seen: %+v", a.Name, a)
		}
		if a.Counters["dropped_total panic"] != 0 {
			t.Errorf("%s: %v", a.Name, a.Counters)
		}
	}
}

// TestPayloads: each attack has what it says, within what an honest packet has room for.
func TestPayloads(t *testing.T) {
	for _, a := range attacks {
		if a.payloads == nil {
			continue
		}
		all := a.payloads(rand.New(rand.NewPCG(1, 2)))
		if len(all) == 0 || len(all) > variety || a.sources < 1 || a.sources > 1<<16 {
			t.Errorf("%s: %d payloads from %d sources", a.name, len(all), a.sources)
		}
		for _, m := range all {
			if len(m) > 512 {
				t.Errorf("%s: %d octets", a.name, len(m))
			}
		}
	}
	if m := question("a.bc", typeNS, 4096, nil); !slices.Equal(m[12:], []byte("\x01a\x02bc\x00\x00\x02\x00\x01\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00")) {
		t.Errorf("%q", m)
	}
}

// TestForgedPackets: headers and checksum are what RFC 791, 768, 8200 and 9293 say, and the honest neighbour's address is nobody else's.
func TestForgedPackets(t *testing.T) {
	sums := func(p []byte, addresses int, protocol byte, length int) bool {
		return checksum(p, addresses, protocol, length) == 0
	}
	from, to := netip.MustParseAddrPort("192.0.2.1:1024"), netip.MustParseAddrPort("198.51.100.2:53")
	p := udpPacket(nil, from, to, []byte("abcd"), 0x4142)
	if len(p) != 32 || p[9] != unix.IPPROTO_UDP || string(p[28:]) != "ABcd" || binary.BigEndian.Uint16(p[24:]) != 12 || binary.BigEndian.Uint16(p[22:]) != 53 {
		t.Errorf("% x", p)
	}
	p = synPacket(nil, from, to, 0x01020304)
	if len(p) != 40 || p[33] != 2 || !sums(p, addresses4, unix.IPPROTO_TCP, tcpHeader) {
		t.Errorf("% x", p)
	}
	from, to = netip.MustParseAddrPort("[2001:db8::1]:1024"), netip.MustParseAddrPort("[2001:db8:1::2]:53")
	for _, payload := range []string{"abcd", "abcde", "a", ""} {
		p = udpPacket(nil, from, to, []byte(payload), 0x4142)
		if len(p) != 48+len(payload) || p[0] != 0x60 || int(binary.BigEndian.Uint16(p[4:])) != 8+len(payload) || p[6] != unix.IPPROTO_UDP ||
			binary.BigEndian.Uint16(p[42:]) != 53 || !sums(p, addresses6, unix.IPPROTO_UDP, 8+len(payload)) {
			t.Errorf("%q: % x", payload, p)
		}
	}
	p = synPacket(nil, from, to, 0x01020304)
	if len(p) != 60 || p[6] != unix.IPPROTO_TCP || p[53] != 2 || !sums(p, addresses6, unix.IPPROTO_TCP, tcpHeader) {
		t.Errorf("% x", p)
	}
	for family, g := range grounds {
		prefixes := map[netip.Prefix]int{}
		for i := range 1 << 16 {
			a := g.source(i)
			if a == g.neighbour || !g.forged.Contains(a) {
				t.Fatalf("source %d is %v", i, a)
			}
			counted, err := a.Prefix(map[int]int{4: 24, 6: 56}[family])
			if err != nil {
				t.Fatal(err)
			}
			prefixes[counted]++
		}
		if len(prefixes) != 256 {
			t.Errorf("%d prefixes", len(prefixes))
		}
	}
	if _, err := groundOf(5); err == nil {
		t.Error("there is a family 5")
	}
}

// TestKernelTables: what is read from /proc.
func TestKernelTables(t *testing.T) {
	dev := "Inter-| Receive | Transmit\n  lo: 1 2 3 4 5 6 7 8 9 10 0\n fire0:11 12 13 14 15 16 17 18 1900 20 0 0 0\n"
	if packets, octets := parseLeft(dev, "fire0"); packets != 20 || octets != 1900 {
		t.Errorf("%d packets, %d octets", packets, octets)
	}
	if packets, octets := parseLeft(dev, "fire1"); packets != 0 || octets != 0 {
		t.Errorf("of no interface: %d packets, %d octets", packets, octets)
	}
	if got := parseKernel("Udp: InDatagrams RcvbufErrors\nUdp: 3 7\nUdpLite: X\n"); got["Udp: RcvbufErrors"] != 7 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := risen(map[string]float64{"a": 1, "b": 2}, map[string]float64{"a": 1, "b": 5, "c": 1}); len(got) != 2 || got["b"] != 3 || got["c"] != 1 {
		t.Errorf("%v", got)
	}
}

// TestFirePage: what was measured, and what could not be.
func TestFirePage(t *testing.T) {
	seen := map[string]honest{withCookie: {Asked: 300, Answered: 270, P50: 120, P99: 1500}, neighbour: {Asked: 100, Answered: 50, Led: 25}}
	r := fireReport{Machine: "some processor", Seconds: 3, Attacks: []fireResult{
		{Name: "many", Title: "a flood", Seconds: 3, Fired: fired{Sent: 300000, Octets: 1000}, Answers: 150000, Octets: 1500, Before: seen, During: seen, After: seen,
			Memory: 20e6, Used: 1.5e9, Counters: map[string]float64{"queries_total udp": 300000}},
		{Name: "slow", Title: "a crowd", Seconds: 3, Fired: fired{Sent: 2048, Connected: 1024}, During: seen, Memory: 30e6},
	}}
	got := firePage(r)
	for _, want := range []string{"| a flood | 100k/s | 50k/s | 1.50 | 50% | 5.0 µs | 20 MB |", "| a crowd | 683 connections/s, 1024 open | - | - |",
		"| 120 µs | 120 µs | 120 µs | 1.5 ms | 1.5 ms | 1.5 ms | 10.0% | 0.0% |", "| 25.0% | 25.0% |", "`queries_total udp` 300k"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	r.Family = 6
	if got := firePage(r); !strings.HasPrefix(got, "The same over IPv6") || !strings.Contains(got, "| a flood | 100k/s |") {
		t.Errorf("over IPv6:\n%s", got)
	}
}

// TestAmplificationOfEachAnswer: no answer to what the attackers ask is longer than the bound allows, whatever the mixture of a flood.
func TestAmplificationOfEachAnswer(t *testing.T) {
	answerer := dns.NewAnswerer(dns.AnswererOptions{RateLimit: dns.RateLimit{Off: true}})
	g := grounds[4]
	answerer.SetView(poolView(g.service.Addr(), 7))
	for _, a := range attacks {
		if a.payloads == nil {
			continue
		}
		most := 0.0
		for _, m := range a.payloads(rand.New(rand.NewPCG(1, 2))) {
			out, _ := answerer.Answer(nil, dns.Request{Message: m, Client: g.source(0), Service: g.service.Addr()})
			if len(m) >= 12 {
				most = max(most, float64(len(out))/float64(len(m)))
			}
		}
		t.Logf("%s: %.2f at the most", a.name, most)
		if most == 0 || most > mostAmplification {
			t.Errorf("%s: an answer of %.2f times its query", a.name, most)
		}
	}
}
