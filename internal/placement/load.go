package placement

import "github.com/holdfast/holdfast/internal/cluster"

// answerShare is what one DNS answer counts for, under throughput and cpu_usage, until the next sample shows what it
// really cost: one hundredth of what a node of weight 1 can do. Differences below that are noise.
const answerShare = 0.01

// measure is what a policy looks at. Policies are text; comparing it for each node of each answer would be slow.
type measure uint8

const (
	byNumber measure = iota // round_robin, and any policy that is not known
	byConnections
	byThroughput
	byCPU
)

func measureOf(policy cluster.Policy) measure {
	switch policy {
	case cluster.ConnCount:
		return byConnections
	case cluster.Throughput:
		return byThroughput
	case cluster.CPUUsage:
		return byCPU
	}
	return byNumber
}

// clampWeight brings a weight into its bounds, see MaxWeight.
func clampWeight(weight int) int { return min(max(weight, 1), MaxWeight) }

// counts reports whether the load may be counted: known, fresh and a number.
func (l *Load) counts(m measure) bool {
	if !l.Known || l.Stale {
		return false
	}
	switch m {
	case byThroughput:
		return finite(l.Throughput)
	case byCPU:
		return finite(l.CPU)
	}
	return true
}

// finite reports whether x is neither infinite nor not a number: for those the difference is not a number.
func finite(x float64) bool { return x-x == 0 }

// use is how much of a node's capacity is in use: connections for each unit of weight, or the share of the link or of
// the processor. Shares already are relative to the node's size. inverse is 1/weight.
func (l *Load) use(m measure, inverse float64) float64 {
	var used float64
	switch m {
	case byConnections:
		used = float64(l.Connections) * inverse
	case byThroughput:
		used = l.Throughput
	case byCPU:
		used = l.CPU
	}
	if used < 0 {
		return 0
	}
	return used
}
