package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	peer "github.com/miekg/dns"
)

// front is a resolver that asks the product's servers on behalf of clients.
type front struct {
	name    string
	program string
	debian  string                // package that has it
	version []string              // arguments that make it say its version
	at      netip.Addr            // where it listens; port 53
	zones   func(z *steered) bool // which zones it is asked for
	site    bool                  // the site's BIND is there: the parent of the delegated zones, and a resolver
	// arguments writes the configuration into dir and gives the arguments for the foreground.
	arguments func(t *testing.T, dir string, zones []*steered) []string
}

var (
	frontAddress = netip.MustParseAddr("127.0.0.1")
	siteAddress  = netip.MustParseAddr("10.20.0.2")
)

func everyZone(*steered) bool { return true }

// few are enough to see what another setting changes.
func few(z *steered) bool          { return z.family == "ipv4" }
func fewForwarded(z *steered) bool { return few(z) && z.path == forwarded }

// fronts are the resolvers, each with what the product prints, literally, inside what a site's configuration has around it.
var fronts = []front{
	{name: "BIND", program: "named", debian: "bind9", version: []string{"-v"}, at: frontAddress, zones: everyZone, arguments: siteBIND(frontAddress, "")},
	{name: "unbound", program: "unbound", debian: "unbound", version: []string{"-V"}, at: frontAddress, zones: everyZone, site: true, arguments: unbound},
	{name: "Knot Resolver", program: "kresd", debian: "knot-resolver", version: []string{"--version"}, at: frontAddress, zones: everyZone, site: true, arguments: kresd},
	{name: "PowerDNS Recursor", program: "pdns_recursor", debian: "pdns-recursor", version: []string{"--version"}, at: frontAddress, zones: everyZone, site: true, arguments: recursor("")},
	{name: "dnsmasq", program: "dnsmasq", debian: "dnsmasq-base", version: []string{"--version"}, at: frontAddress, zones: everyZone, site: true, arguments: dnsmasq("")},
	{name: "CoreDNS", program: "coredns", version: []string{"-version"}, at: frontAddress, zones: onlyForwarded, arguments: coredns},
	{name: "systemd-resolved", program: "unshare", version: []string{"--version"}, at: netip.MustParseAddr("127.0.0.53"), zones: onlyDelegated, site: true, arguments: resolved(siteServer)},
	{name: "systemd-resolved, service addresses", program: "unshare", version: []string{"--version"}, at: netip.MustParseAddr("127.0.0.53"), zones: lonely, arguments: resolved(onlyServers)},
	{name: "dnsmasq, fast-dns-retry", program: "dnsmasq", debian: "dnsmasq-base", version: []string{"--version"}, at: frontAddress, zones: fewForwarded, arguments: dnsmasq("fast-dns-retry\n")},
	{name: "BIND, clients-per-query 0", program: "named", debian: "bind9", version: []string{"-v"}, at: frontAddress, zones: few, arguments: siteBIND(frontAddress, "clients-per-query 0;")},
	{name: "PowerDNS Recursor, network-timeout 300", program: "pdns_recursor", debian: "pdns-recursor", version: []string{"--version"}, at: frontAddress, zones: few, site: true, arguments: recursor("network-timeout=300\n")},
}

// rootHints lead to the site's BIND.
const rootHints = ". 3600 IN NS ns.company.com.\nns.company.com. 3600 IN A 10.20.0.2\n"

// siteBIND has the zone above the delegated ones, and static-stub zones for the others. It also has the root: none of the
// resolvers may look at the world outside.
func siteBIND(at netip.Addr, more string) func(t *testing.T, dir string, zones []*steered) []string {
	return func(t *testing.T, dir string, zones []*steered) []string {
		write(t, dir, "root.zone", "$TTL 3600\n. IN SOA ns.company.com. hostmaster.company.com. 1 3600 600 86400 60\n. IN NS ns.company.com.\n"+
			"company.com. IN NS ns.company.com.\nns.company.com. IN A 10.20.0.2\n")
		write(t, dir, "company.com.zone", "$ORIGIN company.com.\n@ 60 IN SOA ns hostmaster 1 3600 600 86400 60\n@ 60 IN NS ns\nns 60 IN A 10.20.0.2\n"+
			printed(t, "bind", through(zones, delegated)))
		return named(t, dir, netip.AddrPortFrom(at, 53), more, `zone "." { type primary; file "root.zone"; };
zone "company.com" { type primary; file "company.com.zone"; };
`+printed(t, "bind-forward", through(zones, forwarded)))
	}
}

// named writes named.conf with more options and something after them, and gives the arguments for the foreground.
func named(t *testing.T, dir string, at netip.AddrPort, more, inside string) []string {
	file := write(t, dir, "named.conf", fmt.Sprintf(`options {
	directory %[1]q; managed-keys-directory %[1]q; pid-file none; session-keyfile none;
	listen-on port %[2]d { %[3]v; }; listen-on-v6 { none; }; recursion yes; dnssec-validation no; empty-zones-enable no; notify no; max-cache-size 16M; %[4]s
};
controls { };
%[5]s
`, dir, at.Port(), at.Addr(), more, inside))
	return []string{"-g", "-n", "1", "-c", file}
}

// configure writes the configuration of a resolver with what is printed for it, by its program.
var configure = map[string]func(t *testing.T, dir, printed string) []string{
	"unbound": configureUnbound, "kresd": configureKresd,
	"pdns_recursor": func(t *testing.T, dir, printed string) []string { return configureRecursor(t, dir, "", printed) },
	"dnsmasq":       func(t *testing.T, dir, printed string) []string { return configureDnsmasq(t, dir, "", printed) },
}

func unbound(t *testing.T, dir string, zones []*steered) []string {
	return configureUnbound(t, dir, printed(t, "unbound", through(zones, forwarded)))
}

func configureUnbound(t *testing.T, dir, printed string) []string {
	write(t, dir, "root.hints", rootHints)
	file := write(t, dir, "unbound.conf", "server:\n    interface: 127.0.0.1\n    do-daemonize: no\n    chroot: \"\"\n    username: \"\"\n"+
		"    pidfile: \"\"\n    use-syslog: no\n    directory: \""+dir+"\"\n    module-config: \"iterator\"\n    num-threads: 1\n"+
		"    root-hints: root.hints\n"+printed)
	return []string{"-d", "-c", file}
}

func kresd(t *testing.T, dir string, zones []*steered) []string {
	return configureKresd(t, dir, printed(t, "knot", through(zones, forwarded)))
}

func configureKresd(t *testing.T, dir, printed string) []string {
	write(t, dir, "root.hints", rootHints)
	file := write(t, dir, "kresd.conf", "net.listen('127.0.0.1', 53, { kind = 'dns' })\ncache.size = 10 * MB\ntrust_anchors.remove('.')\n"+
		"modules = { 'hints > iterate' }\nhints.root_file('"+dir+"/root.hints')\n"+printed)
	return []string{"--noninteractive", "--config=" + file, dir}
}

func recursor(more string) func(t *testing.T, dir string, zones []*steered) []string {
	return func(t *testing.T, dir string, zones []*steered) []string {
		return configureRecursor(t, dir, more, printed(t, "powerdns", through(zones, forwarded)))
	}
}

// configureRecursor has the lines for PowerDNS Recursor before 5, which are printed as comments beside the newer form.
func configureRecursor(t *testing.T, dir, more, printed string) []string {
	write(t, dir, "root.hints", rootHints)
	var older strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^#   (.*\n)`).FindAllStringSubmatch(printed, -1) {
		older.WriteString(line[1])
	}
	write(t, dir, "recursor.conf", "local-address=127.0.0.1\nsocket-dir="+dir+"\ndaemon=no\nwrite-pid=no\nthreads=1\nhint-file="+dir+"/root.hints\n"+
		"dont-query=\nforward-zones=\ndnssec=off\nsecurity-poll-suffix=\nsetuid=root\nsetgid=root\n"+more+older.String())
	return []string{"--config-dir=" + dir}
}

func dnsmasq(more string) func(t *testing.T, dir string, zones []*steered) []string {
	return func(t *testing.T, dir string, zones []*steered) []string {
		return configureDnsmasq(t, dir, more, printed(t, "dnsmasq", through(zones, forwarded)))
	}
}

func configureDnsmasq(t *testing.T, dir, more, printed string) []string {
	file := write(t, dir, "dnsmasq.conf", "no-resolv\nno-hosts\nlisten-address=127.0.0.1\nbind-interfaces\nstop-dns-rebind\nuser=root\nserver=10.20.0.2\nrebind-domain-ok=/company.com/\n"+
		more+printed)
	return []string{"--keep-in-foreground", "--pid-file=", "--conf-file=" + file}
}

// coredns listens everywhere by itself, where the servers that it asks listen here too; each block says where instead.
func coredns(t *testing.T, dir string, zones []*steered) []string {
	blocks := strings.ReplaceAll(printed(t, "coredns", through(zones, forwarded)), " {\n    errors\n", " {\n    bind 127.0.0.1\n    errors\n")
	return []string{"-conf", write(t, dir, "Corefile", blocks)}
}

func lonely(z *steered) bool        { return z.path == forwarded && z.kind() == "3-ipv4" }
func onlyDelegated(z *steered) bool { return z.path == delegated }
func onlyForwarded(z *steered) bool { return z.path == forwarded }

// find is where the resolver's program is, to ask it its version.
func (f front) find() (string, error) {
	if f.program == "unshare" {
		return findResolved()
	}
	file, err := exec.LookPath(f.program)
	switch {
	case err != nil && f.debian == "":
		return "", fmt.Errorf("%s is not installed; Debian has no package of it", f.program)
	case err != nil:
		return "", fmt.Errorf("%s is not installed (Debian package %s)", f.program, f.debian)
	}
	return file, nil
}

func write(t *testing.T, dir, name, content string) string {
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// start runs the resolver until the test ends, and returns when it answers something.
func (f front) start(t *testing.T, zones []*steered) {
	probe := zones[0]
	for _, z := range zones {
		if f.zones != nil && f.zones(z) {
			probe = z
		}
	}
	dir := t.TempDir()
	runResolver(t, dir, f.program, f.arguments(t, dir, zones), netip.AddrPortFrom(f.at, 53), probe.name())
}

// runResolver runs a program until the test ends, and returns when it answers about a name.
func runResolver(t *testing.T, dir, program string, arguments []string, at netip.AddrPort, name string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(program, arguments...)
	child.Stdout, child.Stderr, child.Dir = log, log, dir
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- child.Wait() }()
	t.Cleanup(func() {
		if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("ending %s: %v", program, err)
		}
		<-exited // how a killed child ended says nothing
		log.Close()
	})
	client := peer.Client{Timeout: 200 * time.Millisecond}
	for began := time.Now(); ; {
		if _, _, err := client.Exchange(question(name+".", peer.TypeSOA), at.String()); err == nil {
			return
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("%s ended: %v\n%s", program, err, readLog(log.Name()))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%s does not answer\n%s", program, readLog(log.Name()))
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

// release is the version that a program says it has, at most three numbers.
func release(t *testing.T, program string, arguments ...string) string {
	out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
	if found := regexp.MustCompile(`\d+\.\d+(\.\d+)?|systemd \d+`).FindString(string(out)); found != "" {
		return strings.TrimPrefix(found, "systemd ")
	}
	t.Errorf("%s does not say its version: %v: %s", program, err, out)
	return "?"
}
