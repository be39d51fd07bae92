package dns

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// resolved runs without systemd, in a mount namespace of its own: it reads /etc/systemd, writes /run/systemd and becomes a user
// that only its package makes.
func resolved(servers func(zones []*steered) []netip.Addr) func(t *testing.T, dir string, zones []*steered) []string {
	return func(t *testing.T, dir string, zones []*steered) []string {
		program, err := findResolved()
		if err != nil {
			t.Fatal(err)
		}
		list := ""
		for _, a := range servers(zones) {
			list += " " + a.String()
		}
		write(t, dir, "resolved.conf", "[Resolve]\nDNS="+list+"\nFallbackDNS=\nDomains=~company.com\nDNSSEC=no\nLLMNR=no\nMulticastDNS=no\n")
		script := `cd "$1" && cp /etc/passwd /etc/group . &&
			if ! grep -q ^systemd-resolve: passwd; then echo systemd-resolve:x:981:981::/:/usr/sbin/nologin >>passwd; echo systemd-resolve:x:981: >>group; fi &&
			mount --bind passwd /etc/passwd && mount --bind group /etc/group && mount -t tmpfs none /run && mkdir -p /run/systemd/netif/links &&
			mkdir -p /etc/systemd && mount -t tmpfs none /etc/systemd && cp resolved.conf /etc/systemd && exec "$2"`
		return []string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", dir, program}
	}
}

func siteServer([]*steered) []netip.Addr { return []netip.Addr{siteAddress} }

// onlyServers are the service addresses of the one zone that is asked for.
func onlyServers(zones []*steered) (all []netip.Addr) {
	for _, z := range zones {
		if lonely(z) {
			all = append(all, slices.Concat(z.services...)...)
		}
	}
	return all
}

// findResolved finds the program, installed or unpacked by scripts/packages: its package cannot be installed where the
// machine's own resolv.conf has to stay as it is.
func findResolved() (string, error) {
	for _, file := range []string{"/lib/systemd/systemd-resolved", "../../build/unpacked/systemd-resolved/lib/systemd/systemd-resolved"} {
		if whole, err := filepath.Abs(file); err == nil {
			if _, err := os.Stat(whole); err == nil {
				return whole, nil
			}
		}
	}
	return "", errors.New("systemd-resolved is neither installed nor unpacked (scripts/packages test)")
}
