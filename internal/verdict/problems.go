package verdict

import "github.com/holdfast/holdfast/internal/problem"

// The problems that a Runner detects. Their subject is the ID of the target.
var (
	checkFailing = problem.Define(problem.Kind{
		Code: "verdict.check-failing", Severity: problem.Error,
		Meaning: "A health check of this node fails, so clients are not given what it guards.",
		Remedy:  "Look at the service that the detail names; the node returns by itself when the check passes again.",
	})
	checkFlapping = problem.Define(problem.Kind{
		Code: "verdict.check-flapping", Severity: problem.Warning,
		Meaning: "A health check keeps going up and down, so its return is held down longer and longer.",
		Remedy:  "Find out why the service comes and goes, or give the check a longer timeout; each quiet minute halves the hold-down.",
	})
	checkStale = problem.Define(problem.Kind{
		Code: "verdict.check-stale", Severity: problem.Error,
		Meaning: "A health check has brought no result for three rounds, so its target counts as unfit.",
		Remedy:  "See whether the node is overloaded or was suspended, and whether a check's command hangs in the kernel.",
	})
	checkRefused = problem.Define(problem.Kind{
		Code: "verdict.check-refused", Severity: problem.Error,
		Meaning: "A configured health check cannot be run on this node.",
		Remedy:  "Correct the check as the detail says, or spread its pools over more nodes.",
	})
)

// targetProblems are those that go away with their target.
var targetProblems = []*problem.Kind{checkFailing, checkFlapping, checkStale}
