package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// startedVariable is set while these tests run: a command that is not refused may start this binary anew, which must not begin them again.
const startedVariable = "HOLDFAST_TEST_MISUSE"

func TestMain(m *testing.M) {
	if os.Getenv(startedVariable) != "" {
		os.Exit(3)
	}
	if err := os.Setenv(startedVariable, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestMisuse: a wrong command line ends with exit code 2 and says what is wrong, in the program as it is: all rooms' commands together.
func TestMisuse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"agent", "foo"}, `holdfast agent takes no argument, and "foo" was given`},
		{[]string{"guard", "foo"}, `holdfast guard takes no argument, and "foo" was given`},
		{[]string{"status", "foo"}, `holdfast status takes no argument, and "foo" was given`},
		{[]string{"lab", "down", "foo"}, `holdfast lab down takes no argument, and "foo" was given`},
		{[]string{"agent", "--log-level", "x"}, `--log-level "x": write debug, info, warn or error`},
		{[]string{"agent", "--log-format", "x"}, `--log-format "x": write text or json`},
		{[]string{"agent", "--output", "json"}, `--output "json": this command writes no result`},
		{[]string{"guard", "-o", "json"}, `--output "json": this command writes no result`},
		{[]string{"lab", "cut", "node1", "-o", "json"}, `--output "json": this command writes no result`},
		{[]string{"explain", "--event", ""}, "--event is empty"},
		{[]string{"explain", "--event", " "}, "--event is empty"},
		{[]string{"explain", "--event", "2.17", "node1"}, `takes no argument, and "node1" was given`},
		{[]string{"node", "declare-dead", "node3"}, "say why with --reason"},
		{[]string{"node", "declare-dead", "node3", "--reason", " "}, "say why with --reason"},
		{[]string{"node", "declare-dead", "--reason", "fire"}, "needs NODE"},
		{[]string{"lab", "run", "frob"}, `there is no scenario "frob"`},
		{[]string{"lab", "run", "tour", "-o", "x"}, `--output "x"`},
		{[]string{"lab", "status", "-o", "x"}, `--output "x"`},
		{[]string{"lab", "switch", "sideways"}, `not "sideways"`},
		{[]string{"lab", "partition", "node1", "/"}, "a group of the partition is empty"},
		{[]string{"lab", "run", "failover", "--runs", "0"}, "--runs 0: write 1 to 1000"},
		{[]string{"lab", "run", "failover", "--faults", "foo"}, `--faults: there is no fault "foo"`},
		{[]string{"lab", "run", "failover", "--faults", ""}, "--faults is empty"},
		{[]string{"lab", "run", "failover", "--interval-ms", "3"}, "--interval-ms 3: write 10 to"},
		{[]string{"lab", "run", "failover", "--multiplier", "1"}, "--multiplier 1: write 2 to"},
	} {
		var out, errs bytes.Buffer
		code := execute(&out, &errs, c.args)
		if code != 2 || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("holdfast %q: exit code %d, %q; want %q", c.args, code, errs.String()+out.String(), c.want)
		}
	}
}

// TestNoOutputWithoutResult: --output is offered where it has an effect, and only there.
func TestNoOutputWithoutResult(t *testing.T) {
	for command, offered := range map[string]bool{"agent": false, "guard": false, "lab cut": false, "lab up": false, "lab status": true, "lab run": true, "status": true} {
		var out, errs bytes.Buffer
		if code := execute(&out, &errs, append(strings.Fields(command), "--help")); code != 0 || strings.Contains(out.String(), "--output") != offered {
			t.Errorf("%s --help: exit code %d, with --output: %t, want %t\n%s%s", command, code, !offered, offered, out.String(), errs.String())
		}
	}
}
