// Package machine reads how busy this machine is: memory, swap, load averages, and the disk of a directory.
//
// It keeps nothing and judges nothing; every call reads anew. It may be used from several goroutines.
package machine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Figures are how busy a machine is. Shares are percent, 0 to 100.
type Figures struct {
	Memory float64 // in use: not available for new programs
	Swap   float64 // in use; 0 where there is none
	Disk   float64 // in use, of what this process may use
	Load1  float64 // load averages, absolute
	Load5  float64
	Load15 float64
	Cores  int
}

// Read reads the figures, the disk's of the file system that has a directory.
func Read(directory string) (f Figures, err error) {
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return f, fmt.Errorf("reading how much memory is in use: %w", err)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return f, fmt.Errorf("reading the load averages: %w", err)
	}
	if f.Memory, f.Swap, err = parseMemory(string(memory)); err != nil {
		return f, err
	}
	if f.Load1, f.Load5, f.Load15, err = parseLoad(string(load)); err != nil {
		return f, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(directory, &stat); err != nil {
		return f, fmt.Errorf("asking for the free space of %s: %w", directory, err)
	}
	// As df(1) has it: what only root may use counts as neither used nor free.
	if used := stat.Blocks - stat.Bfree; used+stat.Bavail > 0 {
		f.Disk = share(used, used+stat.Bavail)
	}
	f.Cores = runtime.NumCPU()
	return f, nil
}

func share(part, whole uint64) float64 {
	return max(0, min(100, 100*float64(part)/float64(whole)))
}

// parseMemory reads /proc/meminfo (proc_meminfo(5)).
func parseMemory(text string) (memory, swap float64, err error) {
	kib := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		if n, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
			kib[name] = n
		}
	}
	total, available := kib["MemTotal"], kib["MemAvailable"]
	if total == 0 || available > total {
		return 0, 0, fmt.Errorf("/proc/meminfo says nothing that can be used of MemTotal and MemAvailable")
	}
	memory = share(total-available, total)
	if all, free := kib["SwapTotal"], kib["SwapFree"]; all > 0 && free <= all {
		swap = share(all-free, all)
	}
	return memory, swap, nil
}

// parseLoad reads /proc/loadavg (proc_loadavg(5)).
func parseLoad(text string) (one, five, fifteen float64, err error) {
	fields := strings.Fields(text)
	var load [3]float64
	for i := range load {
		if len(fields) <= i {
			return 0, 0, 0, fmt.Errorf("/proc/loadavg has %d fields, three are needed", len(fields))
		}
		load[i], err = strconv.ParseFloat(fields[i], 64)
		if err != nil || !(load[i] >= 0 && load[i] < 1e9) {
			return 0, 0, 0, fmt.Errorf("/proc/loadavg has %.20q where a load average belongs", fields[i])
		}
	}
	return load[0], load[1], load[2], nil
}
