package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	peer "github.com/miekg/dns"

	"github.com/holdfast/holdfast/internal/dns"
)

// resolverAddress is where the resolvers of the tests listen.
var resolverAddress = netip.MustParseAddrPort("127.0.0.1:53")

// resolver is a program that asks the product's servers on behalf of clients.
type resolver struct {
	name    string
	program string
	debian  string // package that has it
	flavour string // of the delegation that it is configured with
	// arguments writes the configuration, with the printed delegation in it, into dir.
	arguments func(t *testing.T, dir, printed string) []string
}

// site configuration around what is printed, for each resolver. None of them may look at the world outside.
var resolvers = []resolver{
	{name: "BIND that has the zone above", program: "named", debian: "bind9", flavour: "bind", arguments: func(t *testing.T, dir, printed string) []string {
		write(t, dir, "company.com.zone", "$ORIGIN company.com.\n@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 127.0.0.1\n"+printed)
		return named(t, dir, `zone "company.com" { type primary; file "`+dir+`/company.com.zone"; };`)
	}},
	{name: "BIND with static-stub", program: "named", debian: "bind9", flavour: "bind-forward", arguments: named},
	{name: "unbound", program: "unbound", debian: "unbound", flavour: "unbound", arguments: func(t *testing.T, dir, printed string) []string {
		file := write(t, dir, "unbound.conf", "server:\n    interface: 127.0.0.1\n    do-ip6: no\n    do-daemonize: no\n    chroot: \"\"\n    username: \"\"\n"+
			"    pidfile: \"\"\n    use-syslog: no\n    directory: \""+dir+"\"\n    module-config: \"iterator\"\n    num-threads: 1\n"+printed)
		return []string{"-d", "-c", file}
	}},
	{name: "dnsmasq", program: "dnsmasq", debian: "dnsmasq", flavour: "dnsmasq", arguments: func(t *testing.T, dir, printed string) []string {
		file := write(t, dir, "dnsmasq.conf", "no-resolv\nno-hosts\nlisten-address=127.0.0.1\nbind-interfaces\nstop-dns-rebind\nuser=root\n"+printed)
		return []string{"--keep-in-foreground", "--pid-file=", "--conf-file=" + file}
	}},
	{name: "Knot Resolver", program: "kresd", debian: "knot-resolver", flavour: "knot", arguments: func(t *testing.T, dir, printed string) []string {
		file := write(t, dir, "kresd.conf", "net.listen('127.0.0.1', 53, { kind = 'dns' })\nnet.ipv6 = false\ncache.size = 10 * MB\ntrust_anchors.remove('.')\n"+printed)
		return []string{"--noninteractive", "--config=" + file, dir}
	}},
}

// named writes named.conf with something in it and gives the arguments for the foreground.
func named(t *testing.T, dir, inside string) []string {
	return namedOn(t, dir, inside, resolverAddress)
}

func namedOn(t *testing.T, dir, inside string, at netip.AddrPort) []string {
	file := write(t, dir, "named.conf", fmt.Sprintf(`options {
	directory "%s"; managed-keys-directory "%s"; pid-file none; session-keyfile none;
	listen-on port %d { %s; }; listen-on-v6 { none; }; recursion yes; dnssec-validation no; empty-zones-enable no; notify no; max-cache-size 16M;
};
controls { };
%s
`, dir, dir, at.Port(), at.Addr(), inside))
	return []string{"-g", "-n", "1", "-c", file}
}

func write(t *testing.T, dir, name, content string) string {
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs the resolver until the test ends, and returns when it answers something.
func (r resolver) start(t *testing.T, printed string, at netip.AddrPort) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(r.program, r.arguments(t, dir, printed)...)
	child.Stdout, child.Stderr, child.Dir = log, log, dir
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- child.Wait() }()
	t.Cleanup(func() {
		if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("ending %s: %v", r.program, err)
		}
		<-exited // how a killed child ended says nothing
		log.Close()
	})
	client := peer.Client{Timeout: 200 * time.Millisecond}
	for began := time.Now(); ; {
		if _, _, err := client.Exchange(question("cluster.company.com.", peer.TypeSOA), at.String()); err == nil {
			return
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("%s ended: %v\n%s", r.program, err, readLog(log.Name()))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%s does not answer\n%s", r.program, readLog(log.Name()))
		}
	}
}

func readLog(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// TestResolversInFront configures each resolver with exactly what the product prints for it and asks through it: the
// answers are spread over the nodes and not kept, names that do not exist or have no AAAA are told apart, the alias and
// the wildcard work, and when all but one service address fall silent every query is still answered.
func TestResolversInFront(t *testing.T) {
	for _, r := range resolvers {
		for _, separate := range []bool{false, true} {
			if separate && r.flavour != "bind" {
				continue // the others print addresses only
			}
			name := r.name
			if separate {
				name += ", separate names"
			}
			t.Run(name, func(t *testing.T) {
				if _, err := exec.LookPath(r.program); err != nil {
					t.Skipf("%s is not installed (Debian package %s)", r.program, r.debian)
				}
				inNamespace(t, []string{"10.10.0.4/32", "10.10.0.5/32", "10.10.0.6/32"}, func(t *testing.T) {
					server := startServer(t, 0, serviceAddresses)
					printed, err := dns.Delegation(site(separate), r.flavour)
					if err != nil {
						t.Error(err)
						return
					}
					r.start(t, printed, resolverAddress)
					askThrough(t, server)
				})
			})
		}
	}
}

// askAsStub asks the resolver as the C library of a client does: when nothing comes it sends the query again from the
// same socket, which is what makes dnsmasq turn to another server.
func askAsStub(t *testing.T, m *peer.Msg) *peer.Msg {
	c, err := peer.Dial("udp", resolverAddress.String())
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
	t.Fatalf("asking through the resolver: %v", err)
	return nil
}

// askThrough asks the resolver in front of the server.
func askThrough(t *testing.T, server *dns.Server) {
	spread := func(queries, allowed int) {
		counts := map[int]int{}
		for range queries {
			r := askAsStub(t, question("cluster.company.com.", peer.TypeA))
			counts[nodeIn(t, r)]++
			if ttl := r.Answer[0].Header().Ttl; ttl != 0 {
				t.Fatalf("TTL %d through the resolver", ttl)
			}
		}
		assertEven(t, counts, 4, allowed)
	}
	spread(200, 2) // a resolver may ask once or twice more than its clients
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		found bool
	}{
		{"files.company.com.", peer.TypeA, peer.RcodeSuccess, true},
		{"bucket.cluster.company.com.", peer.TypeA, peer.RcodeSuccess, true},
		{"CLUSTER.company.com.", peer.TypeA, peer.RcodeSuccess, true},
		{"cluster.company.com.", peer.TypeAAAA, peer.RcodeSuccess, false},
		{"cluster.company.com.", peer.TypeTXT, peer.RcodeSuccess, false},
	} {
		r := askAsStub(t, question(c.name, c.qtype))
		if r.Rcode != c.rcode || (len(r.Answer) > 0) != c.found {
			t.Errorf("%s %s through the resolver: %v", c.name, peer.TypeToString[c.qtype], r)
		}
	}
	if err := server.Serve(t.Context(), serviceAddresses[1:2]); err != nil {
		t.Error(err)
	}
	spread(40, 4)
}

// TestBINDForwardsToHighPorts needs no privilege: BIND asks two service addresses on loopback at a port of the test's.
func TestBINDForwardsToHighPorts(t *testing.T) {
	if _, err := exec.LookPath("named"); err != nil {
		t.Skip("named is not installed (Debian package bind9)")
	}
	on, port := addresses("127.0.0.33", "127.0.0.34"), freePort(t)
	startServer(t, port, on)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	var zones strings.Builder
	for _, zone := range []string{"cluster.company.com", "large.company.com"} {
		fmt.Fprintf(&zones, "zone \"%s\" { type forward; forward only; forwarders { %v port %d; %v port %d; }; };\n", zone, on[0], port, on[1], port)
	}
	// BIND listens on addresses of interfaces only, which of the loopback ones is 127.0.0.1.
	bind := resolver{program: "named", arguments: func(t *testing.T, dir, inside string) []string { return namedOn(t, dir, inside, at) }}
	bind.start(t, zones.String(), at)
	counts := map[int]int{}
	for range 200 {
		counts[nodeIn(t, exchange(t, "udp", at, question("cluster.company.com.", peer.TypeA)))]++
	}
	assertEven(t, counts, 4, 2)
	if r := exchange(t, "tcp", at, question("large.company.com.", peer.TypeA)); len(r.Answer) != 60 {
		t.Errorf("the large answer through BIND: %v", r)
	}
	if r := exchange(t, "udp", at, question("x.large.company.com.", peer.TypeA)); r.Rcode != peer.RcodeNameError {
		t.Errorf("a missing name through BIND: %v", r)
	}
}
