package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// keepalived makes addresses move by VRRP (RFC 5798, RFC 9568): four instances, each with three addresses and another node as
// its first choice. Its priorities are the most favourable that there are: the highest for the first choice, and for each
// further choice one less, since a backup waits (256 - priority) / 256 of an advertisement longer than three of them.
type keepalived struct {
	advert string // seconds between two advertisements; empty: the default of 1 s, and of VRRP version 2
}

func (k keepalived) about() about {
	a := about{
		name: "keepalived " + cmp.Or(k.advert, "1") + " s", settings: "VRRPv3, advert_int " + k.advert,
		program: "keepalived", debian: "keepalived", version: []string{"keepalived", "--version"},
		processes: []string{"keepalived"}, period: time.Second,
	}
	if k.advert == "" {
		a.settings, a.slow = "its defaults: VRRPv2, advert_int 1", true
	}
	return a
}

// demoted is the priority of a node that is to give its addresses away.
const demoted = 1

// config is the keepalived.conf (keepalived.conf(5)) of a node.
func (k keepalived) config(node int, demote bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "global_defs {\n  router_id %s\n", nodes[node])
	if k.advert != "" {
		out.WriteString("  vrrp_version 3\n")
	}
	out.WriteString("}\n")
	all := addresses()
	for first := range nodes {
		priority := 254 - (node-first+len(nodes))%len(nodes)
		if demote {
			priority = demoted
		}
		fmt.Fprintf(&out, "vrrp_instance I%d {\n  state BACKUP\n  interface eth0\n  virtual_router_id %d\n  priority %d\n", first+1, first+1, priority)
		if k.advert != "" {
			fmt.Fprintf(&out, "  advert_int %s\n", k.advert)
		}
		fmt.Fprintf(&out, "  virtual_ipaddress {\n")
		for _, address := range all[first*perNode : (first+1)*perNode] {
			fmt.Fprintf(&out, "    %s/24 dev eth0\n", address)
		}
		out.WriteString("  }\n}\n")
	}
	return out.String()
}

func (k keepalived) files(directory string) (file string, more []string, err error) {
	for i, node := range nodes {
		for name, demote := range map[string]bool{node + ".conf": false, node + ".demoted": true} {
			if err := os.WriteFile(filepath.Join(directory, name), []byte(k.config(i, demote)), 0o600); err != nil {
				return "", nil, err
			}
		}
	}
	// The node's /run is its own. The configuration is copied there, so that it can be changed and is new at each start.
	script := filepath.Join(directory, "run.sh")
	text := fmt.Sprintf("cp '%s'/$HOLDFAST_LAB_NODE.conf /run/keepalived.conf\nexec keepalived -n -l -P -f /run/keepalived.conf -p /run/keepalived.pid -r /run/vrrp.pid\n", directory)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return "", nil, err
	}
	file, more = scriptLab(script)
	return file, more, nil
}

// healthy is left to what the client sees: keepalived itself knows only of the instances of its own node.
func (k keepalived) healthy(context.Context, *lab) error { return nil }

// even needs nothing: a first choice that returns takes its addresses by itself.
func (k keepalived) even(context.Context, *lab) error { return nil }

func (k keepalived) stop(ctx context.Context, l *lab) error {
	return l.do(ctx, "stop", "--agent", victim)
}

// move gives the victim the lowest priority in every instance, by a reload.
func (k keepalived) move(ctx context.Context, l *lab, _ []string) error {
	return k.reload(ctx, l, victim+".demoted")
}

func (k keepalived) back(ctx context.Context, l *lab, _ []string) error {
	return k.reload(ctx, l, victim+".conf")
}

func (k keepalived) reload(ctx context.Context, l *lab, name string) error {
	from := filepath.Join(filesOf(l.directory), name)
	pid, err := l.in(ctx, victim, "cat", "/run/keepalived.pid")
	if err != nil {
		return err
	}
	if _, err := strconv.Atoi(strings.TrimSpace(pid)); err != nil {
		return fmt.Errorf("keepalived's pid file says %q: %w", pid, err)
	}
	_, err = l.in(ctx, victim, "sh", "-c", fmt.Sprintf("cp '%s' /run/keepalived.conf && kill -HUP %s", from, strings.TrimSpace(pid)))
	return err
}

// connected has nothing to tell: VRRP knows of no connections.
func (k keepalived) connected(context.Context, *lab, string, string) error { return nil }
