package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What TestMain finds out once.
var (
	holdfast   string // the binary under test
	skipReason string // why no lab can run here; "" if one can
)

func TestMain(m *testing.M) {
	if os.Getenv(watcherVariable) != "" {
		os.Exit(watcherLife())
	}
	if role := os.Getenv(connectionVariable); role != "" {
		os.Exit(connectionLife(role, os.Args[1:]))
	}
	os.Exit(runAll(m))
}

// runAll builds the binary once, runs the tests, and makes sure that nothing is left of them.
func runAll(m *testing.M) int {
	directory, err := os.MkdirTemp("", "holdfast-cluster-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(directory)
	if skipReason = whyNoLab(); skipReason == "" {
		holdfast = filepath.Join(directory, "holdfast")
		build := exec.Command("go", "build", "-trimpath", "-o", holdfast, "./cmd/holdfast") // as make build does it, which has compiled it then
		build.Dir = "../.."
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the binary: %v\n%s", err, out)
			return 1
		}
	}
	code := m.Run()
	for _, left := range processesOf(directory) {
		fmt.Fprintf(os.Stderr, "a lab left the process %s behind\n", left)
		code = 1
	}
	return code
}

// whyNoLab says what this machine lacks for a lab.
func whyNoLab() string {
	for program, packageName := range map[string]string{"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "named": "bind9", "dig": "bind9-dnsutils"} {
		if missing(program) {
			return fmt.Sprintf("%s is not installed (Debian package %s)", program, packageName)
		}
	}
	namespaces := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	attributes := &syscall.SysProcAttr{Cloneflags: namespaces}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	try := exec.Command("true")
	try.SysProcAttr = attributes
	if err := try.Run(); err != nil {
		return fmt.Sprintf("this machine does not permit namespaces: %v", err)
	}
	return ""
}

// missing says whether a program is neither in PATH nor among the daemons.
func missing(program string) bool {
	if _, err := exec.LookPath(program); err == nil {
		return false
	}
	for _, directory := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if _, err := os.Stat(filepath.Join(directory, program)); err == nil {
			return false
		}
	}
	return true
}

// need skips a test whose programs this machine does not have. Programs are given as program:package.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if skipReason != "" {
		t.Skip(skipReason)
	}
	for _, entry := range programs {
		program, packageName, _ := strings.Cut(entry, ":")
		if missing(program) {
			t.Skipf("%s is not installed (Debian package %s)", program, packageName)
		}
	}
}

// processesOf lists the processes whose program or arguments lie in a directory.
func processesOf(directory string) []string {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, file := range lines {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		line, readErr := os.ReadFile(file)
		if errors.Join(err, readErr) != nil || pid == os.Getpid() || !strings.Contains(string(line), directory) {
			continue
		}
		found = append(found, fmt.Sprintf("%d %q", pid, strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return found
}
