package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// freezeRounds bounds how often freeze looks for processes that were born while it stopped the others.
const freezeRounds = 500

// freeze stops all processes of the member, until a look finds none that still runs.
func (m *machine) freeze() error {
	m.frozen = true
	for range freezeRounds {
		pids, err := m.processes()
		if err != nil {
			return err
		}
		settled := true
		for _, pid := range pids {
			if state := processState(pid); state != 'T' && state != 'Z' && state != 0 {
				settled = false
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("freezing process %d of %s: %w", pid, m.Name, err)
				}
			}
		}
		if settled {
			return nil
		}
		time.Sleep(time.Millisecond) // a process in the middle of a disk write stops when that is done
	}
	return fmt.Errorf("%s does not hold still: its processes multiply faster than they can be stopped", m.Name)
}

// thaw lets all processes of the member go on, the first one last, so that it finds its children running.
func (m *machine) thaw() error {
	pids, err := m.processes()
	if err != nil {
		return err
	}
	for i := range pids {
		pid := pids[len(pids)-1-i]
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("thawing process %d of %s: %w", pid, m.Name, err)
		}
	}
	m.frozen = false
	return nil
}

// processes lists the processes of the member's pid namespace, as the host numbers them.
func (m *machine) processes() ([]int, error) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", m.pid))
	if err != nil {
		return nil, fmt.Errorf("looking for the processes of %s: %w", m.Name, err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for the processes of %s: %w", m.Name, err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && namespace == own {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// processState is the state letter in /proc/PID/stat (proc(5)), or 0 when the process is gone.
func processState(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	after := strings.LastIndex(string(stat), ") ") // the name before it may hold anything
	if after < 0 || after+2 >= len(stat) {
		return 0
	}
	return stat[after+2]
}
