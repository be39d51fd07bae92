package lab

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestLabShell types into a shell that is left open, and sees it end.
func TestLabShell(t *testing.T) {
	lab := startLab(t, smallLab(1, 1), launchOptions{})
	s := &sessions{stage: &stage{Directory: lab.dir, plan: lab.plan}}
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("script is not installed: install the Debian package bsdutils")
	}
	sh, err := s.openShell(t.Context(), "client1", script, "-qec", "sh", "/dev/null") // a shell with a terminal
	if err != nil {
		t.Fatal(err)
	}
	defer sh.close()
	if shown, err := sh.do(t.Context(), "hostname; printf without-an-end"); err != nil || shown != "client1 without-an-end" {
		t.Errorf("the shell shows %q, %v", shown, err)
	}
	if sh.gone(t.Context(), time.Millisecond) {
		t.Error("the shell is taken for gone")
	}
	lab.must(request{Op: "kill", Member: "client1"})
	if !sh.gone(t.Context(), shellPatience) {
		t.Error("the machine is off, and the shell is not gone")
	}
	if _, err := sh.do(t.Context(), "hostname"); err == nil || !strings.Contains(err.Error(), "the shell has ended") {
		t.Errorf("a shell that is gone: %v", err)
	}
}

func TestTyped(t *testing.T) {
	if got, want := typed([]string{"ssh", "ops@db2", "hostname; echo $HOME"}), "ssh ops@db2 'hostname; echo $HOME'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
