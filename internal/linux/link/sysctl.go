package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Finding is a kernel setting that does not suit, and what follows from it.
type Finding struct {
	Setting     string // name as sysctl(8) writes it, for example net.ipv4.conf.eth0.rp_filter
	Value       string // as it is
	Want        string // as it should be
	Consequence string // what goes wrong as it is, in one sentence
	Harmful     bool   // clients may be affected; otherwise it is only worth knowing
}

// String writes the finding as one line, with the command that mends it.
func (f Finding) String() string {
	return fmt.Sprintf("%s is %s: %s; set it with `sysctl -w %s=%s`", f.Setting, f.Value, f.Consequence, f.Setting, f.Want)
}

// Uses says what an interface is used for, as far as settings depend on it.
type Uses struct {
	Interface string
	IPv4      bool
	IPv6      bool
	Shared    bool // another interface of this node is in the same subnet
}

// Findings reads the kernel settings that bear on moving addresses. Nothing of them is assumed and nothing is changed.
// A setting that cannot be read (no such interface, no IPv6) yields no finding.
func (k *Kernel) Findings(uses []Uses) ([]Finding, error) {
	var found []Finding
	err := k.In(func() error {
		var failed error
		found = judgeSettings(uses, func(setting string) (string, bool) {
			value, err := readSetting(setting)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				failed = errors.Join(failed, fmt.Errorf("reading %s: %w", setting, err))
			}
			return value, err == nil
		})
		return failed
	})
	return found, err
}

// settingPath is where a setting is found. Interface names may contain dots (eth0.5), so a setting is written here
// with slashes and shown with dots.
func readSetting(setting string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", setting))
	return strings.TrimSpace(string(b)), err
}

// judgeSettings decides on settings that read gives. Pure.
func judgeSettings(uses []Uses, read func(setting string) (string, bool)) []Finding {
	var found []Finding
	check := func(setting string, bad []string, want, consequence string, harmful bool) {
		value, ok := read(setting)
		for _, b := range bad {
			if ok && value == b {
				found = append(found, Finding{showSetting(setting), value, want, consequence, harmful})
			}
		}
	}
	check("net/ipv4/ip_nonlocal_bind", []string{"0"}, "1",
		"a service that binds to a moving address cannot start on a node that does not hold it", false)
	check("net/ipv6/ip_nonlocal_bind", []string{"0"}, "1",
		"a service that binds to a moving IPv6 address cannot start on a node that does not hold it", false)
	for _, u := range uses {
		if u.IPv4 {
			judgeIPv4(u, read, check)
		}
		if u.IPv6 {
			check("net/ipv6/conf/"+u.Interface+"/disable_ipv6", []string{"1"}, "0",
				"no IPv6 address can be taken on "+u.Interface, true)
			check("net/ipv6/conf/"+u.Interface+"/ndisc_notify", []string{"0"}, "1",
				"the kernel does not announce a new MAC of "+u.Interface+" by itself; Holdfast announces on carrier-up", false)
		}
	}
	return found
}

func judgeIPv4(u Uses, read func(string) (string, bool), check func(string, []string, string, string, bool)) {
	check("net/ipv4/conf/"+u.Interface+"/arp_notify", []string{"0"}, "1",
		"the kernel does not announce a new MAC of "+u.Interface+" by itself; Holdfast announces on carrier-up", false)
	// The kernel takes the larger or the logical or of the value for all and of that for the interface.
	if all, ok := read("net/ipv4/conf/all/promote_secondaries"); !ok || all == "0" {
		check("net/ipv4/conf/"+u.Interface+"/promote_secondaries", []string{"0"}, "1",
			"removing the first address of a subnet from "+u.Interface+" removes the node's others in it; "+
				"Holdfast's own are host prefixes and stay", false)
	}
	if !u.Shared {
		return
	}
	setting := "net/ipv4/conf/" + u.Interface + "/rp_filter"
	if all, ok := read("net/ipv4/conf/all/rp_filter"); ok && all == "1" {
		if own, _ := read(setting); own != "2" {
			setting = "net/ipv4/conf/all/rp_filter"
		}
	}
	check(setting, []string{"1"}, "2",
		"packets that arrive on "+u.Interface+" are dropped while another interface in its subnet carries the replies", true)
	if all, ok := read("net/ipv4/conf/all/arp_ignore"); !ok || all == "0" {
		check("net/ipv4/conf/"+u.Interface+"/arp_ignore", []string{"0"}, "1",
			u.Interface+" answers ARP for addresses of the other interfaces in its subnet", true)
	}
}

// showSetting writes a setting as sysctl(8) does: slashes become dots, and dots within an interface name slashes.
func showSetting(setting string) string {
	return strings.NewReplacer("/", ".", ".", "/").Replace(setting)
}
