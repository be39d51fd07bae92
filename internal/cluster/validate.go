package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Validate reports everything that is wrong with a configuration: values out of bounds and values that contradict each
// other. A configuration is refused when one of the faults is not a warning. The faults have no lines; those of Parse do.
func (c *Config) Validate() Faults {
	v := &validator{isBroken: func(string) bool { return false }}
	v.config(c)
	return v.faults.capped()
}

// validator collects what is wrong with the values of a configuration.
type validator struct {
	c        *Config
	faults   Faults
	isBroken func(index string) bool
	idle     map[string]bool // settings of which has been said that they have no effect yet
	pools    []poolAt
	subnets  []subnetAt
}

// poolAt and subnetAt are objects together with where they stand.
type poolAt struct {
	place
	groupnet *Groupnet
	subnet   *Subnet
	pool     *Pool
	id       PoolID
}

type subnetAt struct {
	place
	groupnet *Groupnet
	subnet   *Subnet
	id       SubnetID
}

// broken reports whether the value at a place, or something in it, could not be read; then nothing follows from it.
func (v *validator) broken(at place) bool { return v.isBroken(at.index) }

func (v *validator) fault(at place, format string, args ...any) {
	v.report(Fault{Path: at.name, at: at.index, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) warn(at place, format string, args ...any) {
	v.report(Fault{Path: at.name, at: at.index, Message: fmt.Sprintf(format, args...), Warning: true})
}

// collision reports a value that contradicts another one; with a file, the other's line is added to the message.
func (v *validator) collision(at, other place, format string, args ...any) {
	v.report(Fault{Path: at.name, at: at.index, other: other.index, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) report(f Fault) {
	if !v.isBroken(f.at) {
		v.faults = append(v.faults, f)
	}
}

func (v *validator) config(c *Config) {
	v.c, v.idle = c, map[string]bool{}
	v.collect()
	configTable.check(v, place{}, c)
	v.counts()
	v.settings()
	v.nodes()
	v.voters()
	v.noWitness()
	v.searchLists()
	claims := v.addressClaims()
	for _, s := range v.subnets {
		v.subnet(s)
	}
	for _, p := range v.pools {
		v.pool(p)
	}
	v.overlaps(claims)
	v.names()
	v.dropIdle()
}

// dropIdle removes the warnings about values that are refused anyway.
func (v *validator) dropIdle() {
	refused := map[string]bool{}
	for _, f := range v.faults.Errors() {
		refused[f.at] = true
	}
	v.faults = slices.DeleteFunc(v.faults, func(f Fault) bool { return f.Warning && refused[f.at] })
}

// collect lists all subnets and pools with their places.
func (v *validator) collect() {
	groupnets := place{"groupnets", "groupnets"}
	for gi := range v.c.Groupnets {
		g := &v.c.Groupnets[gi]
		gAt := groupnets.object(place{}, gi, g.Name, true)
		for si := range g.Subnets {
			s := &g.Subnets[si]
			sAt := gAt.field("subnets").object(gAt, si, s.Name, true)
			v.subnets = append(v.subnets, subnetAt{sAt, g, s, SubnetID{g.Name, s.Name}})
			for pi := range s.Pools {
				p := &s.Pools[pi]
				pAt := sAt.field("pools").object(sAt, pi, p.Name, true)
				v.pools = append(v.pools, poolAt{pAt, g, s, p, PoolID{g.Name, s.Name, p.Name}})
			}
		}
	}
}

// searchLists warns of search domains that nothing uses: the service addresses complete names with them, and nothing else here
// looks names up.
func (v *validator) searchLists() {
	groupnets := place{"groupnets", "groupnets"}
	for i := range v.c.Groupnets {
		if g := &v.c.Groupnets[i]; len(g.DNSSearch) > 0 && !g.ServerSideDNSSearch {
			v.warn(groupnets.object(place{}, i, g.Name, true).field("dns-search"),
				"has no effect while server-side-dns-search is false: Holdfast does not write /etc/resolv.conf")
		}
	}
}

func (v *validator) counts() {
	at := place{"groupnets", "groupnets"}
	if n := len(v.subnets); n > MaxSubnets {
		v.fault(at, "there are %d subnets; at most %d are taken", n, MaxSubnets)
	}
	if n := len(v.pools); n > MaxPools {
		v.fault(at, "there are %d pools; at most %d are taken", n, MaxPools)
	}
}

func (v *validator) settings() {
	at := place{"cluster", "cluster"}
	for i, h := range v.c.Settings.Hooks {
		v.program(at.field("hooks").item(i).field("command"), h.Command)
	}
}

// program checks that a command begins with a whole path: an agent's PATH is not the operator's.
func (v *validator) program(at place, command []string) {
	if len(command) > 0 && !strings.HasPrefix(command[0], "/") {
		v.fault(at.item(0), "%s is not a whole path; write for example /usr/local/bin/%s", shown(command[0]), strings.TrimLeft(command[0], "./"))
	}
}
