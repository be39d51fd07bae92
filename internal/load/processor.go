package load

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// processorTimes are what all processors together have spent since the start, in the kernel's clock ticks.
type processorTimes struct{ busy, idle uint64 }

// Columns of the "cpu" line of /proc/stat (proc_stat(5)). The columns after steal, guest times, are contained in the
// first two already.
const (
	columnIdle    = 3
	columnIOWait  = 4
	columnsNeeded = 8 // user nice system idle iowait irq softirq steal
)

var errNoProcessorLine = errors.New(`no line that begins with "cpu"`)

// parseProcessor reads the first "cpu" line of /proc/stat. Waiting for a disk is idle time; time that the hypervisor
// took away (steal) is busy time, because it was not there to be used.
func parseProcessor(stat []byte) (processorTimes, error) {
	for line := range bytes.Lines(stat) {
		fields := bytes.Fields(line)
		if len(fields) == 0 || string(fields[0]) != "cpu" {
			continue
		}
		if len(fields) < 1+columnsNeeded {
			return processorTimes{}, fmt.Errorf("the cpu line has %d columns, needed are %d", len(fields)-1, columnsNeeded)
		}
		var times processorTimes
		for column, field := range fields[1 : 1+columnsNeeded] {
			ticks, err := strconv.ParseUint(string(field), 10, 64)
			if err != nil {
				return processorTimes{}, fmt.Errorf("column %d of the cpu line, %q, is not a number of ticks", column+1, field)
			}
			sum := &times.busy
			if column == columnIdle || column == columnIOWait {
				sum = &times.idle
			}
			if ticks > math.MaxUint64-*sum {
				return processorTimes{}, fmt.Errorf("the cpu line adds up to more than %d ticks", uint64(math.MaxUint64))
			}
			*sum += ticks
		}
		return times, nil
	}
	return processorTimes{}, errNoProcessorLine
}

// busyShare is the busy share between two readings, 0 to 1. It is not known when no tick has passed. The kernel's idle
// and iowait may run backwards a little (proc_stat(5)); that counts as nothing.
func busyShare(before, after processorTimes) (share float64, known bool) {
	busy, idle := passed(before.busy, after.busy), passed(before.idle, after.idle)
	if busy == 0 && idle == 0 {
		return 0, false
	}
	return busy / (busy + idle), true
}

func passed(before, after uint64) float64 {
	if after < before {
		return 0
	}
	return float64(after - before)
}
