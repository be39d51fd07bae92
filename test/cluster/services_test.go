package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDrainLosesNoRequest drains a node while clients get pages by the cluster's name, one connection for each request as
// curl does. Suspending a node in its pool ends its place in the answers, and its addresses stay for who is connected: not one
// request is lost. `holdfast node drain` moves the addresses too.
func TestDrainLosesNoRequest(t *testing.T) {
	need(t, "nginx:nginx-light", "curl:curl")
	l := startLab(t, 3, cast{nodes: 3, clients: 1}.file())
	w := l.watch(t)
	before, _ := l.spread(t, l.nodes, 3, 3, 3)
	for _, node := range l.nodes {
		l.serveHTTP(t, node)
	}
	// Each line of the loop is the page and curl's exit code. It ends when its input does.
	loop := `while :; do page=$(curl -sS --max-time 10 http://cluster.lab/ 2>&1); echo "$? $page"; done`
	t.Run("out of the answers", func(t *testing.T) {
		log := startLoop(t, l, "client1", loop)
		log.more(t, 30)
		l.must(t, "node1", "holdfast", "network", "pools", "sc-suspend-nodes", pool0, "node2")
		mark := log.lines()
		log.more(t, 40)
		l.must(t, "node1", "holdfast", "network", "pools", "sc-resume-nodes", pool0, "node2")
		log.more(t, 30)
		log.good(t, l.nodes)
		// One request may have resolved the name before the change.
		if named := strings.Count(strings.Join(log.between(mark+1, mark+40), "\n"), "node2"); named > 0 {
			t.Errorf("%d requests of 39 went to the suspended node", named)
		}
		if after, _ := l.spread(t, l.nodes, 3, 3, 3); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("suspending moved addresses from %v to %v", before, after)
		}
	})
	t.Run("everything off the node", func(t *testing.T) {
		log := startLoop(t, l, "client1", loop)
		log.more(t, 30)
		l.must(t, "node1", "holdfast", "node", "drain", "node2")
		l.spread(t, []string{"node1", "node3"}, 5, 4)
		log.more(t, 40)
		if held, err := l.kernel("node2"); err != nil || len(held) > 0 {
			t.Errorf("the drained node's kernel has %v %v", held, err)
		}
		l.must(t, "node1", "holdfast", "node", "undrain", "node2")
		l.spread(t, l.nodes, 3, 3, 3)
		log.more(t, 30)
		log.good(t, l.nodes)
	})
	w.check(t)
}

// loopLog is what a loop in a client printed so far.
type loopLog struct {
	program *program
	file    string
}

// startLoop runs a shell loop in a client, whose lines go to a file.
func startLoop(t *testing.T, l *lab, client, script string) *loopLog {
	t.Helper()
	log := &loopLog{file: filepath.Join(t.TempDir(), "log")}
	log.program = l.start(t, client, "sh", "-c", "exec >'"+log.file+"'; "+script)
	return log
}

func (l *loopLog) all() []string {
	text, err := os.ReadFile(l.file)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1]
}

func (l *loopLog) lines() int { return len(l.all()) }

func (l *loopLog) between(from, to int) []string { return l.all()[from:to] }

// more waits for some more lines.
func (l *loopLog) more(t *testing.T, count int) {
	t.Helper()
	before := l.lines()
	eventually(t, fmt.Sprintf("the loop has gone round %d more times", count), func() error {
		if now := l.lines(); now < before+count {
			return fmt.Errorf("it has %d lines after %d", now, before)
		}
		return nil
	})
}

// good stops the loop and fails the test if any request did not get a node's page.
func (l *loopLog) good(t *testing.T, nodes []string) {
	t.Helper()
	lines := l.all()
	l.program.stop()
	failed := 0
	for i, line := range lines {
		code, page, _ := strings.Cut(line, " ")
		if code == "0" && slices.Contains(nodes, page) {
			continue
		}
		if failed++; failed < 5 {
			t.Errorf("request %d of %d ended with %s: %s", i+1, len(lines), code, page)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d requests were lost", failed, len(lines))
	}
	t.Logf("%d requests", len(lines))
}

const ganeshaConfig = `NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Graceless = true; Lease_Lifetime = 5; Grace_Period = 5; RecoveryBackend = fs; Minor_Versions = 0, 1, 2; }
MEM { Inode_Size = 4096; }
EXPORT { Export_Id = 1; Path = /export; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; FSAL { Name = MEM; } }
LOG { Default_Log_Level = EVENT; }
`

// TestNFSThroughPoolAddresses serves a file by NFS-Ganesha on every node and reads it with libnfs through every address of the
// pool, and again after a node has died.
func TestNFSThroughPoolAddresses(t *testing.T) {
	need(t, "ganesha.nfsd:nfs-ganesha", "nfs-cat:libnfs-utils", "nfs-cp:libnfs-utils", "nfs-ls:libnfs-utils")
	if found, _ := filepath.Glob("/usr/lib/*/ganesha/libfsalmem.so"); len(found) == 0 {
		t.Skip("NFS-Ganesha has no file system in memory (Debian package nfs-ganesha-mem)")
	}
	l := startLab(t, 3, cast{nodes: 3, clients: 1}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3)
	config := writeFile(t, "ganesha.conf", ganeshaConfig)
	for _, node := range l.nodes {
		server := l.start(t, node, "sh", "-c", `mkdir -p /run/ganesha /var/lib/nfs/ganesha; exec ganesha.nfsd -F -f "$0" -L /run/ganesha.log -p /run/ganesha.pid`, config)
		file := writeFile(t, "whoami", node)
		eventually(t, "NFS-Ganesha serves on "+node, func() error {
			if !server.running() {
				log, _ := l.get(node, "tail", "-5", "/run/ganesha.log")
				t.Skipf("NFS-Ganesha does not run here: %s%s", server.output, log)
			}
			_, err := l.get(node, "timeout", "5", "nfs-cp", file, "nfs://127.0.0.1/export/whoami?version=4")
			return err
		})
	}
	read := func(pool map[string]string) {
		t.Helper()
		for address, node := range pool {
			out, err := l.get("client1", "timeout", "30", "nfs-cat", "nfs://"+address+"/export/whoami?version=4")
			if err != nil || strings.TrimSpace(out) != node {
				t.Errorf("through %s, which is with %s, the file says %q %v", address, node, out, err)
			}
		}
	}
	pool, _ := l.spread(t, l.nodes, 3, 3, 3)
	read(pool)
	victim := "node2"
	w.leave(t, victim)
	l.do(t, "kill", victim)
	pool, _ = l.spread(t, without(l.nodes, victim), 5, 4)
	read(pool)
	listing := l.must(t, "client1", "timeout", "30", "nfs-ls", "nfs://cluster.lab/export?version=4")
	if !strings.Contains(listing, "whoami") {
		t.Errorf("by the cluster's name the directory shows:\n%s", listing)
	}
}
