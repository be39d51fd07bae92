package lab

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// resolverPrograms are the programs and the Debian packages that they come in.
var resolverPrograms = map[Resolver]struct{ program, packageName string }{
	ResolverBIND:    {"named", "bind9"},
	ResolverUnbound: {"unbound", "unbound"},
	ResolverDnsmasq: {"dnsmasq", "dnsmasq-base"},
	ResolverKnot:    {"kresd", "knot-resolver"},
}

// checkResolver says what to install when the resolver of a lab is missing.
func checkResolver(kind Resolver) error {
	wanted, ok := resolverPrograms[kind]
	if !ok {
		return nil
	}
	if _, err := findProgram(wanted.program); err != nil {
		return fmt.Errorf("the lab's resolver is %s, but the program %s is not installed: install the Debian package %s, or set `resolver:` in the lab file to another one or none", kind, wanted.program, wanted.packageName)
	}
	return nil
}

// findProgram looks for a program in PATH and in the directories for administrators, which PATH may lack.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, directory := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// resolverCommand writes the resolver's configuration into its directory and returns the command that runs it in the
// foreground. None of them is told to change its user: root in a user namespace has no other to change to.
func resolverCommand(plan ResolverPlan, directory string) ([]string, error) {
	source, err := findProgram(resolverPrograms[plan.Kind].program)
	if err != nil {
		return nil, err
	}
	// AppArmor profiles are bound to a program's path and forbid it to read a configuration that lies elsewhere.
	program := filepath.Join(directory, filepath.Base(source))
	data, err := os.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("reading the resolver's program: %w", err)
	}
	if err := os.RemoveAll(program); err != nil {
		return nil, err
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		return nil, fmt.Errorf("copying the resolver's program: %w", err)
	}
	files, argv := resolverFiles(plan, directory, program)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("writing the resolver's configuration: %w", err)
		}
	}
	return argv, nil
}

// resolverFiles gives the files of a resolver's directory and the command that uses them. It is pure.
func resolverFiles(plan ResolverPlan, directory, program string) (files map[string]string, argv []string) {
	switch plan.Kind {
	case ResolverBIND:
		return bindFiles(plan, directory), []string{program, "-g", "-n", "1", "-c", directory + "/named.conf"}
	case ResolverUnbound:
		return map[string]string{"unbound.conf": unboundConfig(plan, directory)},
			[]string{program, "-d", "-c", directory + "/unbound.conf"}
	case ResolverDnsmasq:
		return map[string]string{"dnsmasq.conf": dnsmasqConfig(plan)},
			[]string{program, "--no-daemon", "--conf-file=" + directory + "/dnsmasq.conf"}
	case ResolverKnot:
		return map[string]string{"kresd.conf": knotConfig(plan)},
			[]string{program, "-n", "-q", "-c", directory + "/kresd.conf", directory}
	}
	return nil, nil
}

// bindFiles make BIND the authority for the parents of the delegated zones, with real delegations in them.
func bindFiles(plan ResolverPlan, directory string) map[string]string {
	files := make(map[string]string)
	var conf strings.Builder
	fmt.Fprintf(&conf, `options {
	directory %q;
	pid-file none;
	session-keyfile none;
	listen-on { 127.0.0.1; %s; };
	listen-on-v6 { none; };
	recursion yes;
	allow-query { any; };
	allow-recursion { any; };
	dnssec-validation no;
	empty-zones-enable no;
};
controls { };
logging { category lame-servers { null; }; };
`, directory, plan.Address)
	for i, parent := range parentZones(plan.Delegations) {
		file := fmt.Sprintf("parent%d.zone", i+1)
		fmt.Fprintf(&conf, "zone %q { type primary; file %q; };\n", parent, file)
		files[file] = parentZone(parent, plan)
	}
	for _, d := range plan.Delegations {
		if !strings.Contains(d.Zone, ".") { // its parent is the root, which the lab does not play
			fmt.Fprintf(&conf, "zone %q { type forward; forward only; forwarders { %s; }; };\n", d.Zone, joinAddresses(d.Addresses, "; "))
		}
	}
	files["named.conf"] = conf.String()
	return files
}

// parentZones lists the zones that must exist so that every delegated zone and service name hangs in one, without a
// zone that lies in another of them.
func parentZones(delegations []Delegation) []string {
	var parents []string
	add := func(name string) {
		_, parent, found := strings.Cut(strings.ToLower(name), ".")
		if found && !slices.Contains(parents, parent) {
			parents = append(parents, parent)
		}
	}
	for _, d := range delegations {
		add(d.Zone)
	}
	for _, d := range delegations {
		if !slices.ContainsFunc(delegations, func(other Delegation) bool { return within(d.ServiceName, other.Zone) }) {
			add(d.ServiceName)
		}
	}
	slices.Sort(parents)
	return slices.DeleteFunc(slices.Clone(parents), func(zone string) bool {
		return slices.ContainsFunc(parents, func(other string) bool { return other != zone && within(zone, other) })
	})
}

// parentZone writes the zone file of one parent.
func parentZone(parent string, plan ResolverPlan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "$TTL 60\n%s. IN SOA resolver.lab. hostmaster.%s. 1 3600 600 86400 5\n%s. IN NS resolver.lab.\n", parent, parent, parent)
	if within("resolver.lab", parent) {
		fmt.Fprintf(&out, "resolver.lab. IN A %s\n", plan.Address)
	}
	written := make(map[string]bool)
	line := func(text string) {
		if !written[text] {
			written[text] = true
			out.WriteString(text)
		}
	}
	for _, d := range plan.Delegations {
		if within(d.Zone, parent) {
			line(fmt.Sprintf("%s. IN NS %s.\n", d.Zone, d.ServiceName))
		}
		if !within(d.ServiceName, parent) {
			continue
		}
		for _, address := range d.Addresses {
			line(fmt.Sprintf("%s. IN %s %s\n", d.ServiceName, recordType(address), address))
		}
	}
	return out.String()
}

// within reports whether name is zone or lies under it.
func within(name, zone string) bool {
	name, zone = strings.ToLower(name), strings.ToLower(zone)
	return name == zone || strings.HasSuffix(name, "."+zone)
}

func recordType(address netip.Addr) string {
	if address.Is4() {
		return "A"
	}
	return "AAAA"
}

func joinAddresses(addresses []netip.Addr, separator string) string {
	text := make([]string, len(addresses))
	for i, address := range addresses {
		text[i] = address.String()
	}
	return strings.Join(text, separator)
}

func unboundConfig(plan ResolverPlan, directory string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `server:
	directory: %q
	username: ""
	chroot: ""
	pidfile: ""
	use-syslog: no
	num-threads: 1
	interface: 127.0.0.1
	interface: %s
	access-control: 0.0.0.0/0 allow
	module-config: "iterator"
	do-not-query-localhost: no
`, directory, plan.Address)
	for _, d := range plan.Delegations {
		fmt.Fprintf(&out, "\tlocal-zone: %q nodefault\n", d.Zone)
		for _, address := range d.Addresses {
			fmt.Fprintf(&out, "\tlocal-data: \"%s. 60 IN %s %s\"\n", d.ServiceName, recordType(address), address)
		}
	}
	for _, d := range plan.Delegations {
		fmt.Fprintf(&out, "stub-zone:\n\tname: %q\n\tstub-prime: no\n", d.Zone)
		for _, address := range d.Addresses {
			fmt.Fprintf(&out, "\tstub-addr: %s\n", address)
		}
	}
	return out.String() + "remote-control:\n\tcontrol-enable: no\n"
}

func dnsmasqConfig(plan ResolverPlan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "no-resolv\nno-hosts\nno-negcache\nbind-interfaces\nlisten-address=127.0.0.1,%s\npid-file=\n", plan.Address)
	for _, d := range plan.Delegations {
		for _, address := range d.Addresses {
			fmt.Fprintf(&out, "server=/%s/%s\nhost-record=%s,%s\n", d.Zone, address, d.ServiceName, address)
		}
	}
	return out.String()
}

func knotConfig(plan ResolverPlan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "net.listen({'127.0.0.1', '%s'}, 53, { kind = 'dns' })\ncache.size = 10 * MB\ntrust_anchors.remove('.')\n", plan.Address)
	out.WriteString("modules = { 'hints > iterate' }\n")
	for _, d := range plan.Delegations {
		for _, address := range d.Addresses {
			fmt.Fprintf(&out, "hints['%s'] = '%s'\n", d.ServiceName, address)
		}
		fmt.Fprintf(&out, "policy.add(policy.suffix(policy.FLAGS({'NO_CACHE'}), policy.todnames({'%s'})))\n", d.Zone)
		fmt.Fprintf(&out, "policy.add(policy.suffix(policy.STUB({'%s'}), policy.todnames({'%s'})))\n", joinAddresses(d.Addresses, "', '"), d.Zone)
	}
	return out.String()
}
