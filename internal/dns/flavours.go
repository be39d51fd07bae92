package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/cluster"
)

// delegateBIND prints records for the master file of the parent zone (RFC 1035 section 5), which most servers read.
func delegateBIND(d *delegation) string {
	var b strings.Builder
	b.WriteString("; Records for the zone file above each delegated zone, for BIND and every server that reads master files.\n")
	b.WriteString("; Raise the serial of that zone afterwards. The address records belong to the zone that has the name.\n")
	for _, zone := range d.zones {
		for _, server := range d.servers {
			fmt.Fprintf(&b, "%s\t%d\tIN\tNS\t%s\n", zone, d.ttl, server.name)
		}
		for _, a := range d.addressesOf(zone) {
			fmt.Fprintf(&b, "%s.\t%d\tIN\tCNAME\t%s.\n", cluster.ReverseNameOf(a), d.ttl, d.reverse[zone].NameOf(a))
		}
	}
	for _, server := range d.servers {
		for _, a := range server.addresses {
			kind := "A"
			if a.Is6() {
				kind = "AAAA"
			}
			fmt.Fprintf(&b, "%s\t%d\tIN\t%s\t%v\n", server.name, d.ttl, kind, a)
		}
	}
	return b.String()
}

// forwardBIND prints named.conf zones for a resolver that is not to follow the delegation: static-stub asks the service
// addresses as authoritative servers.
func forwardBIND(d *delegation) string {
	var b strings.Builder
	b.WriteString("// For named.conf of a BIND resolver, where the zone above cannot be changed.\n")
	b.WriteString("// With DNSSEC validation on, and no delegation above, name the zones in options { validate-except { ... }; } too.\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "zone \"%s\" {\n\ttype static-stub;\n\tserver-addresses { %s };\n};\n",
			strings.TrimSuffix(zone, "."), d.list("", " ", ";"))
	}
	return b.String()
}

// delegateWindows prints PowerShell for the DNS server of Windows (module DnsServer).
func delegateWindows(d *delegation) string {
	var b strings.Builder
	b.WriteString("# PowerShell on the Windows DNS server that holds the zone above each delegated zone.\n")
	for _, zone := range d.zones {
		label, above := parent(zone)
		for _, server := range d.servers {
			texts := make([]string, len(server.addresses))
			for i, a := range server.addresses {
				texts[i] = a.String()
			}
			fmt.Fprintf(&b, "Add-DnsServerZoneDelegation -Name \"%s\" -ChildZoneName \"%s\" -NameServer \"%s\" -IPAddress %s\n",
				above, label, server.name, strings.Join(texts, ","))
		}
		if each := d.addressesOf(zone); len(each) > 0 {
			fmt.Fprintf(&b, "%d..%d | ForEach-Object { Add-DnsServerResourceRecordCName -ZoneName \"%s\" -Name $_ -HostNameAlias \"$_.%s\" }\n",
				each[0].As4()[3], each[len(each)-1].As4()[3], above, zone)
		}
	}
	b.WriteString("# Or, where the server does not hold the zone above, one conditional forwarder for each:\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "# Add-DnsServerConditionalForwarderZone -Name \"%s\" -MasterServers %s\n",
			strings.TrimSuffix(zone, "."), d.list("", ",", ""))
	}
	b.WriteString("# Windows DNS keeps an answer with TTL 0 for one second.\n")
	return b.String()
}

// stubUnbound prints stub zones: unbound asks the addresses as authoritative servers and notices which one is gone.
func stubUnbound(d *delegation) string {
	var b strings.Builder
	b.WriteString("# For unbound.conf.\nserver:\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "    domain-insecure: \"%s\"\n", zone)
		if _, reverse := d.reverse[zone]; reverse {
			fmt.Fprintf(&b, "    local-zone: \"%s\" transparent\n", zone) // of private addresses it denies every name by itself
		} else {
			fmt.Fprintf(&b, "    private-domain: \"%s\"\n", zone)
		}
	}
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "stub-zone:\n    name: \"%s\"\n    stub-first: no\n%s", zone, d.list("    stub-addr: ", "", "\n"))
	}
	return b.String()
}

// serverDnsmasq prints one server line for each address.
func serverDnsmasq(d *delegation) string {
	var b strings.Builder
	b.WriteString("# For dnsmasq.conf. dnsmasq asks the server that answered last, and all of them when a client repeats its query;\n")
	b.WriteString("# from 2.87 on, the line fast-dns-retry makes it do so by itself.\n")
	for _, zone := range d.zones {
		name := strings.TrimSuffix(zone, ".")
		b.WriteString(d.list("server=/"+name+"/", "", "\n"))
		if _, reverse := d.reverse[zone]; !reverse {
			fmt.Fprintf(&b, "rebind-domain-ok=/%s/\n", name)
		}
	}
	return b.String()
}

// stubKnot prints Lua for Knot Resolver's kresd. By default it would keep every answer for at
// least 5 s, and tell its clients to.
func stubKnot(d *delegation) string {
	var b strings.Builder
	b.WriteString("-- For kresd.conf of Knot Resolver 5, or lua/script of Knot Resolver 6.\n")
	quoted := "'" + strings.Join(d.zones, "', '") + "'"
	b.WriteString("cache.min_ttl(0)\n")
	fmt.Fprintf(&b, "trust_anchors.set_insecure({%s})\n", quoted)
	b.WriteString("policy.add(policy.suffix(policy.FLAGS({'NO_CACHE'}), policy.todnames({" + quoted + "})))\n")
	fmt.Fprintf(&b, "policy.add(policy.suffix(policy.STUB({%s}), policy.todnames({%s})))\n", d.list("'", ", ", "'"), quoted)
	return b.String()
}

// forwardPowerDNS prints YAML for PowerDNS Recursor, and the same for older ones. By default it would tell its clients to keep
// every answer for a second, keep a failure for a minute, and ask nobody over IPv6.
func forwardPowerDNS(d *delegation) string {
	var b strings.Builder
	six := slices.ContainsFunc(d.addresses, netip.Addr.Is6)
	b.WriteString("# For recursor.yml of PowerDNS Recursor 5. In recursor.conf of an older one, where += needs a line forward-zones= above it:\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "#   forward-zones+=%s=%s\n", strings.TrimSuffix(zone, "."), d.list("", ";", ""))
	}
	b.WriteString("#   minimum-ttl-override=0\n#   packetcache-servfail-ttl=1\n")
	if six {
		b.WriteString("#   query-local-address=0.0.0.0, ::\n")
	}
	b.WriteString("recursor:\n  minimum_ttl_override: 0\n  forward_zones:\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "    - zone: '%s'\n      recurse: false\n      forwarders:\n%s", strings.TrimSuffix(zone, "."), d.list("        - '", "", "'\n"))
	}
	b.WriteString("packetcache:\n  servfail_ttl: 1\n")
	if six {
		b.WriteString("outgoing:\n  source_address: ['0.0.0.0', '::']\n")
	}
	b.WriteString("dnssec:\n  negative_trustanchors:\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "    - name: '%s'\n      reason: 'answered by Holdfast, which does not sign'\n", strings.TrimSuffix(zone, "."))
	}
	return b.String()
}

// forwardCoreDNS prints server blocks for a Corefile. CoreDNS waits two seconds for a server that does not answer; in turn and with few
// failures only a share of the queries meets it before it is left out.
func forwardCoreDNS(d *delegation) string {
	var b strings.Builder
	b.WriteString("# For the Corefile. There is no cache in the blocks, so that each client gets an answer of its own.\n")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "%s {\n    errors\n    forward . %s {\n        policy round_robin\n        max_fails 1\n        health_check 200ms\n    }\n}\n", strings.TrimSuffix(zone, "."), d.list("", " ", ""))
	}
	return b.String()
}
