package identity

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/problem"
)

// warnBefore is how long before the end of a certificate the problem is raised: time for one ordinary maintenance window.
const warnBefore = 60 * 24 * time.Hour

var (
	expiring = problem.Define(problem.Kind{
		Code:     "identity.expiring",
		Severity: problem.Warning,
		Meaning:  "A certificate of this node or of its cluster's authority runs out within 60 days.",
		Remedy: "Issue a new identity for the node and restart its agent; when it is the authority, plan new identities for " +
			"all nodes.",
	})
	invalid = problem.Define(problem.Kind{
		Code:     "identity.invalid",
		Severity: problem.Error,
		Meaning: "By this node's clock a certificate has run out or is not valid yet: other nodes and the store refuse new " +
			"connections. Open ones go on.",
		Remedy: "Check the clock first (date, timedatectl). When it is right, issue a new identity and restart the agent.",
	})
)

// Expiry returns the time at which the first of the node's and the authority's certificate runs out.
func (id *Identity) Expiry() time.Time {
	end := id.certificate.Leaf.NotAfter
	if id.authority.NotAfter.Before(end) {
		return id.authority.NotAfter
	}
	return end
}

// Check sets or clears the problems about this identity's validity. Call it once a day or more often.
func (id *Identity) Check(board *problem.Board, now time.Time) {
	end := id.Expiry()
	outside := now.Before(notBefore) || !now.Before(end)
	board.Is(outside, invalid, id.Node, fmt.Sprintf("valid from %s to %s, and this node's clock says %s",
		notBefore.Format(time.DateOnly), end.Format(time.DateOnly), now.UTC().Format(time.DateTime)), now)
	board.Is(!outside && end.Sub(now) < warnBefore, expiring, id.Node,
		fmt.Sprintf("runs out on %s, in %d days", end.UTC().Format(time.DateOnly), int(end.Sub(now).Hours()/24)), now)
}
