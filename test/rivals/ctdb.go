package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ctdb makes addresses move as the "public addresses" of Samba's clustered database (ctdb(7)). It has its usual event scripts
// and a cluster lock in a file that all nodes reach at all times: as if on a storage network that no fault of these meets.
//
// The victim starts last, so that it is not the leader. Of a leader that is cut off but still has the lock nobody takes anything.
type ctdb struct {
	name            string
	interval, limit int // KeepaliveInterval in seconds, KeepaliveLimit; 0: the defaults, 5 and 5
	tickle          int // TickleUpdateInterval in seconds; 0: the default, 20
}

func (c ctdb) about() about {
	a := about{
		name: c.name, settings: fmt.Sprintf("KeepaliveInterval %d, KeepaliveLimit %d, TickleUpdateInterval %d", c.interval, c.limit, c.tickle),
		program: "ctdbd", debian: "ctdb", version: []string{"ctdb", "version"},
		processes: []string{"ctdb"}, period: time.Second, slow: true,
	}
	if c.interval == 0 {
		a.settings = "its defaults: KeepaliveInterval 5, KeepaliveLimit 5, TickleUpdateInterval 20"
		a.period = 5 * time.Second
	}
	return a
}

// tunables is the file ctdb.tunables (ctdb-tunables(7)).
func (c ctdb) tunables() string {
	if c.interval == 0 {
		return ""
	}
	return fmt.Sprintf("KeepaliveInterval=%d\nKeepaliveLimit=%d\nTickleUpdateInterval=%d\n", c.interval, c.limit, c.tickle)
}

// script makes a node's files anew and runs the daemon over them. ctdbd takes an address for its own that it may bind, so a
// node here must not let it bind what it does not have.
func (c ctdb) script(directory string) string {
	return fmt.Sprintf(`set -e
echo 0 > /proc/sys/net/ipv4/ip_nonlocal_bind
here='%[1]s'/$HOLDFAST_LAB_NODE
rm -rf "$here"
mkdir -p "$here/var/persistent" "$here/var/state" "$here/var/volatile" /run/ctdb
cp -a /etc/ctdb "$here/etc"
cp '%[1]s/nodes' '%[1]s/public_addresses' '%[1]s/ctdb.conf' '%[1]s/ctdb.tunables' "$here/etc/"
mount --bind "$here/etc" /etc/ctdb
mount --bind "$here/var" /var/lib/ctdb
if [ "$HOLDFAST_LAB_NODE" = %[2]s ]; then sleep 3; fi
exec ctdbd -i
`, directory, victim)
}

func (c ctdb) files(directory string) (file string, more []string, err error) {
	var public, private strings.Builder
	for _, address := range addresses() {
		fmt.Fprintf(&public, "%s/24 eth0\n", address)
	}
	for i := range nodes {
		fmt.Fprintf(&private, "10.10.0.%d\n", 11+i)
	}
	config := fmt.Sprintf("[logging]\n\tlocation = file:/run/ctdb/log\n\tlog level = NOTICE\n[cluster]\n\tcluster lock = %s\n", filepath.Join(directory, "lock"))
	script := filepath.Join(directory, "run.sh")
	for name, text := range map[string]string{
		"run.sh": c.script(directory), "ctdb.conf": config, "ctdb.tunables": c.tunables(), "nodes": private.String(), "public_addresses": public.String(),
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	file, more = scriptLab(script)
	return file, more, nil
}

func (c ctdb) healthy(ctx context.Context, l *lab) error {
	out, err := l.in(ctx, nodes[0], "ctdb", "-X", "status")
	if err != nil {
		return err
	}
	if err := statusFault(out); err != nil {
		return err
	}
	leader, err := l.in(ctx, nodes[0], "ctdb", "leader")
	if err == nil && strings.TrimSpace(leader) == number(victim) {
		err = fmt.Errorf("%s is the leader", victim)
	}
	return err
}

// statusFault reads `ctdb -X status`: a heading and a line for each node, with number, address, and a 1 for each thing that is
// wrong with it; the last column names the node that was asked.
func statusFault(text string) error {
	var seen int
	for line := range strings.Lines(text) {
		columns := strings.Split(strings.TrimSpace(line), "|")
		if len(columns) < 6 || columns[1] == "Node" {
			continue
		}
		seen++
		if i := slices.Index(columns[3:len(columns)-2], "1"); i >= 0 {
			return fmt.Errorf("ctdb says that node %s is not well: %s", columns[1], strings.TrimSpace(line))
		}
	}
	if seen != len(nodes) {
		return fmt.Errorf("ctdb knows of %d nodes, not %d", seen, len(nodes))
	}
	return nil
}

// number is what ctdb calls a node.
func number(node string) string { return fmt.Sprint(slices.Index(nodes, node)) }

// even needs nothing: a node that returns is given its share.
func (c ctdb) even(context.Context, *lab) error { return nil }

func (c ctdb) stop(ctx context.Context, l *lab) error {
	_, err := l.in(ctx, victim, "ctdb", "shutdown")
	return err
}

// move moves the addresses one by one, each to another node: ctdb has a command for one.
func (c ctdb) move(ctx context.Context, l *lab, held []string) error {
	var faults []error
	for i, address := range held {
		_, err := l.in(ctx, nodes[0], "ctdb", "moveip", address, fmt.Sprint(i%(len(nodes)-1)))
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (c ctdb) back(ctx context.Context, l *lab, held []string) error {
	var faults []error
	for _, address := range held {
		_, err := l.in(ctx, nodes[0], "ctdb", "moveip", address, number(victim))
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// connected tells ctdb of the connection, as the event scripts of NFS do, and waits until another node knows of it too.
func (c ctdb) connected(ctx context.Context, l *lab, far, near string) error {
	if _, err := l.in(ctx, victim, "ctdb", "addtickle", far, near); err != nil {
		return err
	}
	address, _, _ := strings.Cut(near, ":")
	return until(ctx, "another node of ctdb knows of the connection", func() error {
		out, err := l.in(ctx, nodes[0], "ctdb", "gettickles", address)
		if err == nil && !strings.Contains(out, far) {
			err = fmt.Errorf("it knows of %q", out)
		}
		return err
	})
}
