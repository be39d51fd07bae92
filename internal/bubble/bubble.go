// Package bubble runs tests in which time is virtual (testing/synctest).
//
// It guarantees what synctest.Test guarantees, and beside it that such a test does not bring the race detector down. In Go 1.26 all timers of
// a bubble share one context of the race detector, and two threads that both find a timer due write to it at the same time: the process ends
// with a SIGSEGV inside the detector, which says nothing about the code under test. So with the race detector Go runs on one processor for as
// long as there is a bubble. What it finds does not depend on that: it goes by what orders two accesses and not by what happened to run at
// once.
//
// Tests in bubbles may run beside each other. It is for tests alone.
package bubble

import (
	"testing"
	"testing/synctest"
)

// Test runs f in a bubble, as synctest.Test does.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	defer oneProcessor()()
	synctest.Test(t, f)
}
