package lastgood

import (
	"os"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/linux/boottime"
)

// bootID is where the kernel tells which start of the machine this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// Look reads this machine's clocks. Where the kernel does not tell which start of the machine this is, the age of a view after a restart of
// the process rests on the wall clock.
func Look() Clocks {
	now := boottime.Now()
	c := Clocks{Wall: time.Now().Round(0), Since: time.Duration(boottime.Nanoseconds(now))}
	if text, err := os.ReadFile(bootID); err == nil {
		c.Boot = strings.TrimSpace(string(text))
	}
	return c
}
