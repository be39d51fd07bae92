package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a server that runs, or something that asks one.
type process struct {
	command *exec.Cmd
	output  strings.Builder
}

// start starts a program that may use some processors only, in a process group of its own.
func start(ctx context.Context, argv []string, processors []int, environment ...string) (*process, error) {
	p := &process{command: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	p.command.Env = append(os.Environ(), environment...)
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	return p, p.startOn(processors)
}

// startOn starts the command from a thread that is kept to the processors, which the program inherits.
func (p *process) startOn(processors []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, wanted unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, processor := range processors {
		wanted.Set(processor)
	}
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return fmt.Errorf("keeping it to processors %v: %w", processors, err)
	}
	return errors.Join(p.command.Start(), unix.SchedSetaffinity(0, &before))
}

// stop ends the program and what it started.
func (p *process) stop() {
	group := -p.command.Process.Pid
	_ = unix.Kill(group, unix.SIGTERM)
	ended := make(chan struct{})
	go func() {
		_ = p.command.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
	}
	_ = unix.Kill(group, unix.SIGKILL)
	<-ended
}

// family are the processes of the program.
func (p *process) family() (pids []int) {
	group := p.command.Process.Pid
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, _ := strconv.Atoi(filepath.Base(entry))
		if of, err := unix.Getpgid(pid); err == nil && of == group {
			pids = append(pids, pid)
		}
	}
	return pids
}

// used is how long the program's threads have run so far.
func (p *process) used() (sum time.Duration) {
	for _, pid := range p.family() {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			if first, _, ok := strings.Cut(string(text), " "); ok {
				nanoseconds, _ := strconv.ParseInt(first, 10, 64)
				sum += time.Duration(nanoseconds)
			}
		}
	}
	return sum
}

// resident is how much memory the program has, in bytes.
func (p *process) resident() (sum int) {
	for _, pid := range p.family() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.Atoi(fields[1])
			sum += pages * os.Getpagesize()
		}
	}
	return sum
}
