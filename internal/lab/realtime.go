package lab

import "github.com/holdfast/holdfast/internal/linux/threads"

// measuringPriority is the real-time priority of what measures: below the heartbeats and the guard.
const measuringPriority = 2

// measureInTime puts this process before everything that is not real-time. What stands for a machine of its own should not wait for
// the cluster that shares this one's processors. Where that is refused, as in a user namespace, it measures as well as it can.
func measureInTime() { _ = threads.RunInRealTime(measuringPriority) }
