package dns

import (
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace runs a test in a network namespace of its own, in which the loopback interface is up and some more commands of
// ip have been run. The goroutine keeps its thread, and sockets and children begun by it are in the namespace; at the end the
// thread dies, and the namespace with it.
func inNamespace(t *testing.T, more []string, run func(t *testing.T)) {
	t.Helper()
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("ip is not installed (Debian package iproute2)")
	}
	done := make(chan struct{})
	var skip, fail string
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			if errors.Is(err, unix.EPERM) {
				skip = "making a network namespace needs CAP_SYS_ADMIN"
				return
			}
			fail = "making a network namespace: " + err.Error()
			return
		}
		for _, command := range append([]string{"link set lo up"}, more...) {
			if out, err := exec.CommandContext(t.Context(), ip, strings.Fields(command)...).CombinedOutput(); err != nil {
				fail = "ip " + command + ": " + err.Error() + ": " + string(out)
				return
			}
		}
		run(t)
	}()
	<-done
	if skip != "" {
		t.Skip(skip)
	}
	if fail != "" {
		t.Fatal(fail)
	}
}
