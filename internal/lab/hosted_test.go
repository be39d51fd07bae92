package lab

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLabHosted runs a service on a machine through its death, the machine's, and what is refused.
func TestLabHosted(t *testing.T) {
	file := smallLab(1, 1)
	file.Machines = []string{"gw1"}
	lab := startLab(t, file, launchOptions{})
	shell, err := findProgram("sh")
	if err != nil {
		t.Skip(err)
	}
	// It takes one connection after another, as nobody but the account of a machine.
	holdfast := lab.dir.path(binDir, "holdfast")
	run := request{Op: "run", Member: "gw1", Service: "web", Argv: []string{shell, "-c", `id -un >"$0"; exec "$1" lab serve-http`, filepath.Join(lab.dir.node("gw1"), "who"), holdfast}}
	run.Argv = append(asAccount(), run.Argv...)
	if run.Argv[0], err = findProgram(run.Argv[0]); err != nil {
		t.Skip(err)
	}
	lab.must(run)
	answers := func() bool {
		out, err := lab.run("client1", "bash", "-c", `exec 3<>/dev/tcp/gw1/80 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`)
		return err == nil && strings.Contains(out, "gw1")
	}
	until(t, "the service answers", answers)
	if who, err := lab.run("gw1", "cat", filepath.Join(lab.dir.node("gw1"), "who")); err != nil || who != machineAccount {
		t.Errorf("the service ran as %q (%v), want %s", who, err, machineAccount)
	}
	if got := lab.member("gw1"); got.Service != "web running" || got.Kind != KindMachine {
		t.Errorf("a service that runs: %+v", got)
	}
	lab.must(request{Op: "kill", Member: "gw1", Service: "web"})
	if got := lab.member("gw1"); got.Service != "web killed by signal SIGKILL" {
		t.Errorf("a service that was killed: %+v", got)
	}
	lab.must(request{Op: "kill", Member: "gw1"})
	lab.must(request{Op: "start", Member: "gw1"})
	until(t, "the service answers again once the machine is on", answers)
	lab.fails(request{Op: "start", Member: "gw1", Service: "web"}, "already running")
	lab.fails(request{Op: "kill", Member: "gw1", Service: "mail"}, "gw1 runs no mail")
	lab.fails(request{Op: "run", Member: "node1", Service: "web", Argv: run.Argv}, "node1 is a node")
	lab.fails(request{Op: "run", Member: "gw1", Service: "x", Argv: []string{"sh"}}, "the path of its program")
}

// TestLabCutOneWay drops the frames of one direction.
func TestLabCutOneWay(t *testing.T) {
	lab := startLab(t, smallLab(2, 1), launchOptions{})
	for _, direction := range []Direction{DirectionIn, DirectionOut} {
		lab.wantReach(true, "client1>node1")
		lab.must(request{Op: "cut", Member: "node1", Direction: direction})
		lab.wantReach(false, "client1>node1", "node1>client1")
		lab.wantReach(true, "client1>node2")
		if got := lab.member("node1"); got.Link != "cut "+string(direction) {
			t.Errorf("after a cut %s: %+v", direction, got)
		}
		lab.must(request{Op: "heal", Member: "node1"})
	}
	lab.wantReach(true, "client1>node1")
}
