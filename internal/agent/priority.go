package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/threads"
)

// priority is the agent's nice value. A node that is overloaded must not look dead for want of a few milliseconds of processor
// time: the agent needs little, but at once.
const priority = -15

// raisePriority asks for it, for every thread that there is (later ones inherit it) and for the scheduling group of the
// session, without which nice values have no effect between sessions (sched(7), autogroup). It returns what was refused.
func raisePriority() error {
	if err := threads.Renice(priority); err != nil {
		return err
	}
	if own, err := unix.Getsid(0); err == nil && own == os.Getpid() {
		// Only for a session of its own: the group is shared with everybody else in the session.
		return os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(priority)), 0)
	}
	return nil
}
