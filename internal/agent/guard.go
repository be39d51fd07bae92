package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/problem"
)

var problemGuardAbsent = problem.Define(problem.Kind{
	Code: "guard.absent", Severity: problem.Warning,
	Meaning: "This node has no guard that works: if its agent is killed or frozen, its kernel keeps the addresses until their lifetime of two seconds ends.",
	Remedy:  "Start it with `systemctl start holdfast-guard`, and see its log for why it is not there; the agent finds it by itself.",
})

var problemGuardLimited = problem.Define(problem.Kind{
	Code: "guard.limited", Severity: problem.Info,
	Meaning: "This node's guard cannot silence all addresses at one moment; it takes them off one after the other, which takes some tens of milliseconds for a thousand.",
	Remedy:  "Use a kernel with nf_tables (Linux 5.12 or later), and let no other tables be named holdfast-guard; then start the guard anew.",
})

// guardLook is how often the agent looks whether its guard is there.
const guardLook = time.Second

// meetGuard makes the line to the guard. It must not be late: from the first right to hold on, the guard has to know of each.
func (a *Agent) meetGuard(config *cluster.Config) {
	if a.options.GuardSocket == "" {
		return
	}
	a.guard = guard.NewClient(guard.ClientOptions{
		Path: a.options.GuardSocket, Logger: a.log,
		Told: func(what string) { a.event("guard.silenced", a.self.Name, "the guard silenced this node: "+what, nil) },
	})
	a.tellGuard(config)
	a.tenancy.handOver = func(deadline int64) { a.guard.Deadline(guardDeadline(deadline)) }
}

// guardDeadline is the deadline as two processes of one machine name it.
func guardDeadline(deadline int64) int64 {
	if deadline == forever || deadline == 0 {
		return deadline
	}
	return boottime.Nanoseconds(time.Unix(0, deadline))
}

// tellGuard says which addresses may move: all of the cluster, since which of them this node holds changes faster than it is told.
func (a *Agent) tellGuard(config *cluster.Config) {
	if a.guard != nil {
		a.guard.Moving(slices.Collect(maps.Keys(movingAddresses(config))))
	}
}

// keepGuard keeps up the line to the guard, and says so when there is none.
func (a *Agent) keepGuard(ctx context.Context) {
	if a.guard == nil {
		return
	}
	if a.from == nil { // otherwise it runs already
		a.wg.Go(func() { a.guard.Run(ctx) })
	}
	for wait(ctx, guardLook); ctx.Err() == nil; wait(ctx, guardLook) {
		absent, without := a.guard.Absent(), a.guard.Without()
		a.board.Is(absent != "", problemGuardAbsent, a.self.Name, absent, a.now())
		a.board.Is(absent == "" && without != "", problemGuardLimited, a.self.Name, without, a.now())
	}
}

// leaveGuard says goodbye: every moving address is off, and the end of this process is no death.
func (a *Agent) leaveGuard() {
	if a.guard != nil {
		a.guard.Goodbye()
	}
}
