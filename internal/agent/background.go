package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// tellFD is the descriptor by which an agent in the background says that it serves.
const tellFD = 3

// runInBackground starts this agent again as a process of its own, in the same unit, and returns when that serves, or failed.
func runInBackground() error {
	arguments := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(word string) bool { return strings.HasPrefix(word, "--background") })
	heard, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer heard.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		say.Close()
		return err
	}
	defer null.Close()
	arguments = append([]string{os.Args[0]}, append(arguments, fmt.Sprintf("--tell=%d", tellFD))...)
	child, err := os.StartProcess("/proc/self/exe", arguments, &os.ProcAttr{ //nolint:gosec // it is this program, with the arguments that it was given
		Env: os.Environ(), Files: []*os.File{null, os.Stderr, os.Stderr, say}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	say.Close()
	if err != nil {
		return fmt.Errorf("starting the agent in the background: %w", err)
	}
	if n, _ := heard.Read(make([]byte, 1)); n == 1 {
		return child.Release()
	}
	_, err = child.Wait()
	return errors.Join(errors.New("the agent in the background did not come to serve; its log says why"), err)
}

// tellParent says that this agent serves.
func tellParent(fd int) {
	pipe := os.NewFile(uintptr(fd), "tell")
	_, _ = pipe.Write([]byte{'1'}) // a parent that has gone does not mind
	_ = pipe.Close()
}
