package placement

import (
	"math"

	"github.com/holdfast/holdfast/internal/cluster"
)

// answerShare is what one DNS answer counts for, under throughput and cpu_usage, until the next sample shows what it
// really cost: one hundredth of what a node of weight 1 can do. Differences below that are noise.
const answerShare = 0.01

// measured reports whether policy looks at loads.
func measured(policy cluster.Policy) bool {
	return policy == cluster.ConnCount || policy == cluster.Throughput || policy == cluster.CPUUsage
}

// clampWeight brings a weight into its bounds, see MaxWeight.
func clampWeight(weight int) int { return min(max(weight, 1), MaxWeight) }

// usable reports whether the load may be counted: known, fresh and a number.
func (l *Load) usable(policy cluster.Policy) bool {
	if !l.Known || l.Stale {
		return false
	}
	switch policy {
	case cluster.Throughput:
		return finite(l.Throughput)
	case cluster.CPUUsage:
		return finite(l.CPU)
	}
	return true
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// use is how much of a node's capacity is in use under policy: connections for each unit of weight, or the share of the
// link or of the processor. Shares already are relative to the node's size. inverse is 1/weight.
func (l *Load) use(policy cluster.Policy, inverse float64) float64 {
	switch policy {
	case cluster.ConnCount:
		return float64(max(l.Connections, 0)) * inverse
	case cluster.Throughput:
		return max(l.Throughput, 0)
	case cluster.CPUUsage:
		return max(l.CPU, 0)
	}
	return 0
}
