package agent

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/api"
)

// whySilent is what is said of a node that was asked and did not answer, behind its name: wherever other nodes are asked the same words,
// and none of the transport's. limit is how long it was waited for.
func whySilent(v *view, lnn int, limit time.Duration, err error) string {
	ended := api.Ended(err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections: its agent does not run"
	case isDown(v, lnn):
		return "is down"
	case ended == api.Unreachable || ended == api.Stopped:
		return fmt.Sprintf("does not answer within %v", limit)
	}
	return "answers that it cannot say: " + api.Text(err)
}

// isDown reports whether a node's last incarnation is over, or was never there, as far as is known here.
func isDown(v *view, lnn int) bool { return v != nil && !v.world.Nodes[lnn].Present }
