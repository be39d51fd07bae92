package wholefile

import (
	"os"
	"syscall"
	"time"
)

// State tells whether a file is still the one that was read: the zero State is none. A file that is put in the place of another has another number, and one that is
// written to, or whose times are set back afterwards, has a later time of change, which nobody can set.
type State struct {
	device, inode    uint64
	size             int64
	modified, change int64 // nanoseconds since 1970
	settled          bool
}

// settling is how long after a change a file may change again without another time of change, for kernels and file systems with coarse clocks.
const settling = 2 * time.Second

// Look returns the state of a file. It is to be asked for before the file is read: what changes meanwhile then makes a difference the next time.
func Look(path string, now time.Time) (State, error) {
	info, err := os.Stat(path)
	if err != nil {
		return State{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return State{modified: info.ModTime().UnixNano(), size: info.Size()}, nil // never the same: it is read each time
	}
	changed := time.Unix(stat.Ctim.Unix())
	return State{
		device: stat.Dev, inode: stat.Ino, size: stat.Size, modified: stat.Mtim.Nano(), change: stat.Ctim.Nano(),
		settled: now.Sub(changed) > settling,
	}, nil
}

// Same tells whether what was read in this state is what there is in the later one. Of a file that had just changed that cannot be told, so it is not.
func (s State) Same(later State) bool {
	later.settled = s.settled
	return s.settled && s == later
}
