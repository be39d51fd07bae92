package verdict

import (
	"fmt"
	"net/netip"
	"reflect"

	"github.com/holdfast/holdfast/internal/cluster"
)

// MaxTargets bounds the targets of one Runner, and with them its goroutines, its sockets and its child processes.
const MaxTargets = 1024

// Target is one check of one address.
type Target struct {
	ID      string // unique; names the target in status, logs and problems
	Check   cluster.Check
	Address netip.Addr // where to ask; the zero address means 127.0.0.1; exec only passes it on
}

// same reports whether o is checked exactly as t is.
func (t Target) same(o Target) bool { return reflect.DeepEqual(t, o) }

// sameThing reports whether a verdict on o is still a verdict on t: only how often and how strictly it is asked, or
// what exactly, has changed.
func (t Target) sameThing(o Target) bool {
	return t.ID == o.ID && t.Address == o.Address && t.Check.Kind == o.Check.Kind && t.Check.Port == o.Check.Port
}

// admit returns the targets that will run, by ID, and why the others will not.
func admit(targets []Target) (admitted map[string]Target, refused map[string]string) {
	admitted, refused = map[string]Target{}, map[string]string{}
	for _, target := range targets {
		_, taken := admitted[target.ID]
		switch {
		case taken:
			// The first one stays; two targets under one ID cannot both be shown.
			refused[target.ID+" (again)"] = fmt.Sprintf("another target is called %s too; give the check another name", target.ID)
		case target.Check.Interval <= 0 || target.Check.Timeout <= 0:
			refused[target.ID] = fmt.Sprintf("check %s has an interval of %s and a timeout of %s; both must be positive",
				target.Check.Name, target.Check.Interval, target.Check.Timeout)
		case len(admitted) >= MaxTargets:
			refused[target.ID] = fmt.Sprintf("not checked: this node already runs %d checks, the most it can", MaxTargets)
		default:
			admitted[target.ID] = target
		}
	}
	return admitted, refused
}
