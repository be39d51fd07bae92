package dns

import (
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	peer "github.com/miekg/dns"
)

// TestResolvers configures each resolver with exactly what the product prints for it and asks through it for zones with one
// and with three service addresses, IPv4, IPv6 and both, by delegation and by forwarding. It logs the rows of the table in
// docs/dns.md. The resolvers are asked beside each other, each in a network of its own: nearly all of the time somebody waits.
func TestResolvers(t *testing.T) {
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			program, err := f.find()
			if err != nil {
				t.Skip(err)
			}
			if _, err := exec.LookPath("named"); f.site && err != nil {
				t.Skip("named, which has the zone above, is not installed (Debian package bind9)")
			}
			t.Parallel()
			inNamespace(t, steeredLink, func(t *testing.T) {
				zones := allSteered()
				h := startHolders(t, zones)
				if f.site {
					front{name: "the site's BIND", program: "named", at: siteAddress, arguments: siteBIND(siteAddress, "")}.start(t, zones)
				}
				f.start(t, zones)
				zones = slices.DeleteFunc(zones, func(z *steered) bool { return !f.zones(z) })
				name := f.name + " " + release(t, program, f.version...)
				if base, setting, found := strings.Cut(f.name, ", "); found {
					name = base + " " + release(t, program, f.version...) + ", " + setting
				}
				for _, row := range rows(name, f.observe(t, h, zones)) {
					t.Log("\n" + row)
					documented(t, row)
				}
			})
		})
	}
}

// observe asks through a resolver.
func (f front) observe(t *testing.T, h *holders, zones []*steered) map[path]*conduct {
	at := netip.AddrPortFrom(f.at, 53)
	conducts := newConducts(zones)
	for _, z := range zones {
		rightAnswers(t, at, z)
		noPoisoning(t, at, z)
		conducts[z.path].note(z, keeps(t, at, z))
	}
	failures(t, h, zones, conducts, func(zones []*steered, clients int, events map[int]func()) map[*steered]tally {
		return load(t, at, zones, clients, events)
	})
	for _, z := range zones {
		answersAgain(t, at, z)
	}
	return conducts
}

// askAsStub asks the resolver as the C library of a client does: when nothing comes it sends the query again from the
// same socket.
func askAsStub(t *testing.T, at netip.AddrPort, m *peer.Msg) *peer.Msg {
	c, err := peer.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 20 {
		if err = c.WriteMsg(m); err != nil {
			continue
		}
		if err = c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			break
		}
		var r *peer.Msg
		if r, err = c.ReadMsg(); err == nil && r.Id == m.Id {
			return r
		}
	}
	t.Fatalf("asking %s through the resolver: %v", m.Question[0].Name, err)
	return nil
}

// rightAnswers asks for everything that a client could: what exists has an answer, what does not is told apart.
func rightAnswers(t *testing.T, at netip.AddrPort, z *steered) {
	has4, has6 := z.has4(), z.has6()
	below := peer.RcodeNameError
	if z.wildcard() {
		below = peer.RcodeSuccess
	}
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		found bool
	}{
		{z.name(), peer.TypeA, peer.RcodeSuccess, has4},
		{z.name(), peer.TypeAAAA, peer.RcodeSuccess, has6},
		{strings.ToUpper(z.name()), qtypeOf(z), peer.RcodeSuccess, true},
		{z.alias(), peer.TypeA, peer.RcodeSuccess, has4},
		{z.alias(), peer.TypeAAAA, peer.RcodeSuccess, has6},
		{"bucket." + z.name(), peer.TypeA, below, has4 && z.wildcard()},
		{"bucket." + z.name(), peer.TypeAAAA, below, has6 && z.wildcard()},
		{z.name(), peer.TypeTXT, peer.RcodeSuccess, false},
		{z.name(), peer.TypeHTTPS, peer.RcodeSuccess, false},
	} {
		r := askAsStub(t, at, question(c.name+".", c.qtype))
		if r.Rcode != c.rcode || (len(r.Answer) > 0) != c.found {
			t.Errorf("%s %s through the resolver: %v", c.name, peer.TypeToString[c.qtype], r)
			continue
		}
		if c.found {
			nodeOf(t, r)
		}
	}
}

// noPoisoning: that a zone of one family has no address of the other does not make a resolver deny the one that it has,
// whichever is asked first (RFC 4074).
func noPoisoning(t *testing.T, at netip.AddrPort, z *steered) {
	there, missing := peer.TypeA, peer.TypeAAAA
	if z.family == "both" {
		return
	}
	if z.family == "ipv6" {
		there, missing = missing, there
	}
	names := []string{z.name(), z.alias()}
	if z.wildcard() {
		names = append(names, "first."+z.name(), "second."+z.name())
	}
	for _, name := range names {
		for range 3 {
			if r := askAsStub(t, at, question(name+".", missing)); r.Rcode != peer.RcodeSuccess || len(r.Answer) != 0 {
				t.Errorf("%s %s: %v", name, peer.TypeToString[missing], r)
			}
			nodeOf(t, askAsStub(t, at, question(name+".", there)))
		}
	}
}

// nodeOf is the node whose address an answer gives; it has to be one address of a pool.
func nodeOf(t *testing.T, r *peer.Msg) int {
	t.Helper()
	if r.Rcode == peer.RcodeSuccess && len(r.Answer) == 1 {
		switch record := r.Answer[0].(type) {
		case *peer.A:
			if four := record.A.To4(); four[0] == 10 && four[1] == 30 {
				return int(four[2])
			}
		case *peer.AAAA:
			if six := record.AAAA; six[0] == 0xfd && six[3] == 0x30 {
				return int(six[5])
			}
		}
	}
	t.Errorf("not an answer with one address of a pool: %v", r)
	return 0
}

// keeps asks 20 times as fast as it goes, and if one node was given all the time, until it is another.
func keeps(t *testing.T, at netip.AddrPort, z *steered) kept {
	nodes := map[int]int{}
	var found kept
	began := time.Now()
	ask := func() {
		r := askAsStub(t, at, question(z.name()+".", qtypeOf(z)))
		nodes[nodeOf(t, r)]++
		if len(r.Answer) > 0 {
			found.ttl = max(found.ttl, r.Answer[0].Header().Ttl)
		}
	}
	for range 20 {
		ask()
	}
	for len(nodes) == 1 && time.Since(began) < 10*time.Second {
		ask()
		found.lasted = time.Since(began)
	}
	found.nodes = len(nodes)
	if found.nodes == 1 {
		t.Errorf("%v: the same node for %v, at a TTL of 0", z, found.lasted)
	}
	return found
}

// answersAgain: whatever happened to a zone's service addresses, it is answered within a while of the resolver's own.
func answersAgain(t *testing.T, at netip.AddrPort, z *steered) {
	var last tally
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("udp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		last = askPatiently(c, question(z.name()+".", qtypeOf(z)))
		c.Close()
		if last.failed == 0 {
			if waited := time.Since(began); waited > time.Second {
				t.Logf("%v is answered again %v after the last failure", z, waited.Round(100*time.Millisecond))
			}
			return
		}
	}
	t.Errorf("%v is not answered again: %s", z, last.fault)
}
