package cluster

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDigAtServiceAddresses asks every service address of a running cluster, from a client, what section 3 of the public
// reports names. The rows say which.
func TestDigAtServiceAddresses(t *testing.T) {
	l := startLab(t, 3, cast{
		nodes: 3, clients: 1, resolver: "none", groupnet: "allow-wildcard-subdomains: false",
		pool: "sc-dns-zone-aliases: [a.deep.cluster.lab, files.lab]",
	}.file())
	pool, services := l.spread(t, l.nodes, 3, 3, 3)
	soa := `(?m)^cluster\.lab\.\s+5\s+IN\s+SOA\s+ssip\.lab\.`
	rows := []struct {
		name, args string
		want       []string // regular expressions
		not        []string
	}{
		{"the zone", "cluster.lab A", []string{"status: NOERROR", "flags: qr aa;", `(?m)^cluster\.lab\.\s+0\s+IN\s+A\s+10\.10\.0\.1\d\d`, "ANSWER: 1, AUTHORITY: 0"}, nil},
		{"Report13 a type that is absent", "cluster.lab AAAA", []string{"status: NOERROR", "flags: qr aa;", "ANSWER: 0, AUTHORITY: 1", soa}, nil},
		{"Report13 another absent type", "cluster.lab MX", []string{"status: NOERROR", "ANSWER: 0, AUTHORITY: 1", soa}, nil},
		{"Report13 an unknown name", "nobody.cluster.lab A", []string{"status: NXDOMAIN", "flags: qr aa;", "ANSWER: 0, AUTHORITY: 1", soa}, nil},
		{"Report13 an empty non-terminal", "deep.cluster.lab A", []string{"status: NOERROR", "ANSWER: 0, AUTHORITY: 1", soa}, nil},
		{"an alias", "files.lab A", []string{"status: NOERROR", `(?m)^files\.lab\.\s+0\s+IN\s+A\s+10\.10\.0\.1\d\d`}, nil},
		{"Report13 below an alias", "x.files.lab A", []string{"status: NXDOMAIN", `(?m)^files\.lab\.\s+5\s+IN\s+SOA`}, nil},
		{"Report13 outside every zone", "example.com A", []string{"status: REFUSED", "ANSWER: 0, AUTHORITY: 0"}, []string{"flags: qr aa"}},
		{"Report13 the parent", "lab SOA", []string{"status: REFUSED"}, []string{"flags: qr aa"}},
		{"Report13 ANY is minimal", "cluster.lab ANY", []string{"status: NOERROR", "ANSWER: 1", "HINFO"}, nil},
		{"Report13 NS and its addresses", "cluster.lab NS", []string{`IN\s+NS\s+ssip\.lab\.`, `ssip\.lab\.\s+900\s+IN\s+A\s+10\.10\.0\.4`, `ssip\.lab\.\s+900\s+IN\s+A\s+10\.10\.0\.5`, `ssip\.lab\.\s+900\s+IN\s+A\s+10\.10\.0\.6`}, nil},
		{"the start of authority", "cluster.lab SOA", []string{`cluster\.lab\.\s+900\s+IN\s+SOA\s+ssip\.lab\.`, "ANSWER: 1"}, nil},
		{"the service name", "ssip.lab A", []string{"status: NOERROR", "ANSWER: 3"}, nil},
		{"Report13 the service name has no IPv6", "ssip.lab AAAA", []string{"status: NOERROR", "ANSWER: 0"}, nil},
		{"another class", "-c CH cluster.lab TXT", []string{"status: REFUSED"}, nil},
		{"Report14 case", "cLuStEr.LaB A", []string{"status: NOERROR", `(?m)^;cLuStEr\.LaB\.\s+IN\s+A`, `(?m)^cLuStEr\.LaB\.\s+0\s+IN\s+A`}, nil},
		{"Report15 without EDNS", "cluster.lab A +noedns", []string{"status: NOERROR", "ANSWER: 1"}, []string{"OPT PSEUDOSECTION"}},
		{"Report15 payload", "cluster.lab A", []string{"EDNS: version: 0, flags:; udp: 1232", `COOKIE: [0-9a-f]{48} \(good\)`}, nil},
		{"Report15 version 1", "cluster.lab A +edns=1 +noednsneg", []string{"status: BADVERS"}, []string{"ANSWER SECTION"}},
		{"Report15 an unknown option", "cluster.lab A +ednsopt=65001:abcd", []string{"status: NOERROR", "ANSWER: 1"}, []string{"OPT=65001"}},
		{"Report15 bufsize 512", "cluster.lab NS +bufsize=512", []string{"status: NOERROR", "ANSWER: 1", "ADDITIONAL: 4"}, []string{"flags: qr aa tc"}},
		{"Report15 TCP", "cluster.lab A +tcp", []string{"status: NOERROR", `\(TCP\)`, "ANSWER: 1"}, nil},
		{"no transfer", "cluster.lab AXFR +onesoa", []string{"Transfer failed"}, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for server := range services {
				argv := append([]string{"dig", "@" + server, "+norecurse", "+tries=2", "+time=5"}, strings.Fields(row.args)...)
				r, err := l.try("client1", argv...)
				if err != nil {
					t.Fatal(err)
				}
				for _, pattern := range row.want {
					if !regexp.MustCompile(pattern).MatchString(r.out) {
						t.Errorf("dig @%s %s shows no %q:\n%s", server, row.args, pattern, r.out)
					}
				}
				for _, pattern := range row.not {
					if regexp.MustCompile(pattern).MatchString(r.out) {
						t.Errorf("dig @%s %s shows %q:\n%s", server, row.args, pattern, r.out)
					}
				}
			}
		})
	}
	t.Run("nothing but service addresses answers", func(t *testing.T) {
		for _, other := range []string{"10.10.0.11", slices.Sorted(maps.Keys(pool))[0]} {
			r, err := l.try("client1", "dig", "@"+other, "+tries=1", "+time=1", "cluster.lab")
			if err == nil && r.code == 0 {
				t.Errorf("%s answers DNS:\n%s", other, r.out)
			}
		}
	})
	t.Run("garbage", func(t *testing.T) { l.garbage(t, services) })
}

// garbage sends every service address what is no question while others ask; the questions are all answered, and the agents
// live on.
func (l *lab) garbage(t *testing.T, services map[string]string) {
	before, err := l.status("node1")
	if err != nil {
		t.Fatal(err)
	}
	script := writeFile(t, "garbage.py", `
import os, random, socket, sys
random.seed(7)
for address in sys.argv[1:]:
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07cluster\x03lab\x00\x00\x01\x00\x01"
    for i in range(600):
        broken = bytearray(question)
        for _ in range(random.randrange(1, 6)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        u.sendto(bytes(broken[:random.randrange(len(broken) + 1)]), (address, 53))
        u.sendto(os.urandom(random.randrange(1400)), (address, 53))
    for i in range(20):
        c = socket.create_connection((address, 53), 10)
        c.sendall(os.urandom(random.randrange(1, 3000)))
        c.close()
print("done")
`)
	need(t, "python3:python3")
	sender := l.start(t, "client1", "python3", script, "10.10.0.4", "10.10.0.5", "10.10.0.6")
	for sender.running() {
		for server := range services {
			r, err := l.try("client1", "dig", "+short", "+tcp", "@"+server, "cluster.lab")
			if err != nil || !strings.HasPrefix(r.out, "10.10.0.1") {
				t.Errorf("amid garbage %s answers %q %v", server, r.out, err)
			}
		}
	}
	if out := sender.stop(); !strings.Contains(out, "done") {
		t.Errorf("the garbage was not sent: %s", out)
	}
	after, err := l.status("node1")
	if err != nil || fmt.Sprint(before.Nodes) != fmt.Sprint(after.Nodes) {
		t.Errorf("garbage changed the nodes from %v to %v %v", before.Nodes, after.Nodes, err)
	}
}

// TestReport16EvenOverServiceAddresses asks three service addresses in turn and counts the nodes named: a resolver that uses
// them all sees one rotation (https://github.com/weaveworks/weave/issues/1245, https://github.com/NLnetLabs/unbound/issues/215).
func TestReport16EvenOverServiceAddresses(t *testing.T) {
	l := startLab(t, 4, cast{nodes: 4, clients: 1}.file())
	pool, services := l.spread(t, l.nodes, 3, 3, 3, 3)
	servers := slices.Sorted(maps.Keys(services))
	t.Run("in turn", func(t *testing.T) {
		const rounds = 40
		named := map[string]int{}
		for range rounds {
			for _, server := range servers {
				out := strings.TrimSpace(l.must(t, "client1", "dig", "+short", "@"+server, "cluster.lab"))
				named[pool[out]]++
			}
		}
		even(t, named, l.nodes, 1)
	})
	t.Run("one after the other", func(t *testing.T) {
		named := map[string]int{}
		for i, server := range servers {
			argv := []string{"dig", "+short", "@" + server}
			for range 10 + i {
				argv = append(argv, "cluster.lab", "A")
			}
			for _, address := range strings.Fields(l.must(t, "client1", argv...)) {
				named[pool[address]]++
			}
		}
		even(t, named, l.nodes, 3)
	})
	t.Run("through BIND", func(t *testing.T) {
		addresses, err := l.answers("client1", "cluster.lab", 600)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]int{}
		for _, address := range addresses {
			named[pool[address]]++
		}
		even(t, named, l.nodes, 3)
	})
}

// even fails the test unless the nodes were named about equally often, and nobody else at all.
func even(t *testing.T, named map[string]int, nodes []string, within int) {
	t.Helper()
	least, most := -1, 0
	for _, node := range nodes {
		if most = max(most, named[node]); least < 0 || named[node] < least {
			least = named[node]
		}
	}
	if most-least > within || len(named) != len(nodes) {
		t.Errorf("the nodes were named %v; the difference may be %d", named, within)
	}
}
