package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What Ganesha's answers are as numbers (RFC 7530, section 13.1).
const (
	nfsOK     = "0"
	nfsDenied = "10010" // another has the lock
	nfsGrace  = "10013" // nobody gets a new one now
)

// lockConfig is a Ganesha that serves a directory of this machine, so that two of them serve the same files and find each other's locks
// in its kernel. The grace period is as long as a busy machine may need to reclaim.
const lockConfig = `NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Lease_Lifetime = 20; Grace_Period = 20; RecoveryBackend = fs; Minor_Versions = 0; Delegations = false; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 4; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
`

// lockBus is a message bus that lets everybody do everything; each node has its own.
const lockBus = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
`

// lockServer runs Ganesha and its bus on a node, with the node's recovery directory where Ganesha looks for it.
const lockServer = `mkdir -p /run/ganesha /run/dbus /var/lib/nfs/ganesha && mount --bind "$1" /var/lib/nfs/ganesha || exit
dbus-daemon --config-file="$2" --nofork --nopidfile &
n=0; until test -S /run/dbus/system_bus_socket; do n=$((n + 1)); [ $n -lt 300 ] || exit; sleep 0.1; done
exec ganesha.nfsd -F -f "$3" -L "$4" -p /run/ganesha.pid`

// TestNFSLockOutlastsAMove: a client holds a lock through a pool address, the address moves to another node, and with the hook for
// Ganesha the client reclaims its lock there and goes on with it. Another client is refused the lock before, meanwhile and afterwards,
// and has it as soon as the first gives it up.
func TestNFSLockOutlastsAMove(t *testing.T) {
	need(t, "ganesha.nfsd:nfs-ganesha", "dbus-daemon:dbus-daemon", "dbus-send:dbus-bin")
	files := lockFiles(t)
	helper := buildNFSLock(t)
	hook, err := filepath.Abs("../../packaging/hooks/ganesha-grace")
	if err != nil {
		t.Fatal(err)
	}
	l := startLab(t, 3, cast{nodes: 3, clients: 2, resolver: "none", addresses: "10.10.0.100-10.10.0.103", members: `"1:eth0", "2:eth0"`,
		cluster: fmt.Sprintf("hooks:\n  - {phase: release, command: [%q], timeout-ms: 10000}\n  - {phase: take, command: [%q], timeout-ms: 10000}\n", hook, hook)}.file())
	w := l.watch(t)
	pool, _ := l.spread(t, l.nodes, 2, 2, 0)
	var here, there string // an address of node1, which moves, and one of node2
	for address, node := range pool {
		if node == "node1" {
			here = address
		} else {
			there = address
		}
	}
	for i, node := range []string{"node1", "node2"} {
		l.serveLocks(t, files, node, fmt.Sprintf("10.10.0.1%d", i+1), helper)
	}
	first, second := l.lockClient(t, "client1", helper, "first/"+here), l.lockClient(t, "client2", helper, "second/"+there)
	first.want(t, nfsOK, "connect "+here, "open export file", "lock", "write")
	second.want(t, nfsOK, "connect "+there, "open export file")
	second.want(t, nfsDenied, "lock")

	l.must(t, "node1", "holdfast", "node", "drain", "node1")
	if got := second.ask(t, "lock"); got != nfsGrace && got != nfsDenied {
		t.Fatalf("while the first has not reclaimed its lock the second asks for it: %s", got)
	}
	l.spread(t, l.nodes, 4, 0, 0)
	eventually(t, "the first client is connected again", func() error { return first.says(t, nfsOK, "connect "+here) })
	first.want(t, nfsOK, "reclaim", "write")
	eventually(t, "the grace period is over", func() error {
		first.want(t, nfsOK, "write")
		got := second.ask(t, "lock")
		if got == nfsOK {
			t.Fatal("the second client has the lock that the first goes on to write with")
		}
		if got != nfsDenied {
			return fmt.Errorf("the second is told %s", got)
		}
		return nil
	})
	first.want(t, nfsOK, "write", "unlock")
	second.want(t, nfsOK, "lock", "write")
	w.check(t)
}

// lockFiles makes what the servers share: the exported directory, and a recovery directory for each node, in which Ganesha finds under
// each address the clients of the node from which the address comes, here the other one.
func lockFiles(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("Ganesha reads files by their handles, which needs root")
	}
	if found, _ := filepath.Glob("/usr/lib/*/ganesha/libfsalvfs.so"); len(found) == 0 {
		t.Skip("NFS-Ganesha cannot serve directories (Debian package nfs-ganesha-vfs)")
	}
	shared := t.TempDir()
	if _, _, err := unix.NameToHandleAt(unix.AT_FDCWD, shared, 0); err != nil {
		t.Skipf("the file system of %s has no file handles: %v", shared, err)
	}
	err := os.MkdirAll(shared+"/export", 0o777)
	for i, node := range []string{"node1", "node2"} {
		other := []string{"node2", "node1"}[i]
		for last := 100; last <= 103; last++ {
			directory := fmt.Sprintf("%s/%s/10.10.0.%d", shared, node, last)
			err = errors.Join(err, os.MkdirAll(directory, 0o755), os.Symlink(shared+"/"+other+"/v4recov/node0", directory+"/v4recov"))
		}
	}
	if err := errors.Join(err, os.WriteFile(shared+"/ganesha.conf", fmt.Appendf(nil, lockConfig, shared+"/export"), 0o644), os.WriteFile(shared+"/bus.conf", []byte(lockBus), 0o644)); err != nil {
		t.Fatal(err)
	}
	return shared
}

// buildNFSLock compiles the client (testdata/nfslock.c).
func buildNFSLock(t *testing.T) string {
	t.Helper()
	compiler := "cc"
	if missing(compiler) {
		compiler = "gcc"
	}
	need(t, compiler+":gcc")
	if _, err := os.Stat("/usr/include/nfsc/libnfs-raw-nfs4.h"); err != nil {
		t.Skip("there is no libnfs to compile with (Debian package libnfs-dev)")
	}
	program := filepath.Join(t.TempDir(), "nfslock")
	if out, err := exec.Command(compiler, "-Wall", "-Wextra", "-O1", "-o", program, "testdata/nfslock.c", "-lnfs").CombinedOutput(); err != nil {
		t.Fatalf("compiling the client: %v\n%s", err, out)
	}
	return program
}

// serveLocks runs Ganesha on a node and returns when a client can open a file there.
func (l *lab) serveLocks(t *testing.T, files, node, address, helper string) {
	t.Helper()
	log := filepath.Join(files, node+".log")
	server := l.start(t, node, "sh", "-c", lockServer, "serve", filepath.Join(files, node), files+"/bus.conf", files+"/ganesha.conf", log)
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("Ganesha on %s:\n%s", node, text[max(0, len(text)-6000):])
		}
	})
	probe := l.lockClient(t, "client1", helper, "probe/"+address)
	eventually(t, "NFS-Ganesha serves on "+node, func() error {
		if !server.running() {
			t.Fatalf("NFS-Ganesha on %s ended: %s", node, server.output)
		}
		return errors.Join(probe.says(t, nfsOK, "connect "+address), probe.says(t, nfsOK, "open export probe"))
	})
}

// lockClient is a client of the file service.
type lockClient struct {
	name string
	*dialogue
}

func (l *lab) lockClient(t *testing.T, member, helper, name string) *lockClient {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := converse(t, l.command(ctx, member, helper, name))
	t.Cleanup(cancel) // it may wait for a server that is gone
	return &lockClient{name, d}
}

func (c *lockClient) ask(t *testing.T, line string) string {
	t.Helper()
	answer, err := c.dialogue.ask(line)
	if err != nil {
		t.Fatalf("the client %s, asked to %s: %v", c.name, line, err)
	}
	return answer
}

// says is an error unless the answer is the one that is wanted.
func (c *lockClient) says(t *testing.T, want, line string) error {
	t.Helper()
	if got := c.ask(t, line); got != want {
		return fmt.Errorf("%s of %s: %s, want %s", line, c.name, got, want)
	}
	return nil
}

// want asks for one thing after another, all with the same answer.
func (c *lockClient) want(t *testing.T, want string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if err := c.says(t, want, line); err != nil {
			t.Fatal(err)
		}
	}
}
