package lastgood

import "github.com/holdfast/holdfast/internal/problem"

// What can be wrong with the files. Their subject is the fleet.
var (
	Unreadable = problem.Define(problem.Kind{
		Code: "broker.last-good-unreadable", Severity: problem.Warning,
		Meaning: "The last good view of a fleet on this node's disk cannot be used, so this broker began without one.",
		Remedy:  "Look at the disk if that happens again. The next answer of the central manager replaces the file.",
	})
	Unwritable = problem.Define(problem.Kind{
		Code: "broker.last-good-unwritable", Severity: problem.Error,
		Meaning: "The last good view of a fleet cannot be written to this node's disk; an older one stays. A restart during an outage would begin with that.",
		Remedy:  "Free space on the disk, or repair it, as the detail says.",
	})
)
