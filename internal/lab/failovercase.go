package lab

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// failoverResult is what `lab run failover --output json` prints.
type failoverResult struct {
	Scenario string         `json:"scenario"`
	Pass     bool           `json:"pass"`
	Cases    []failoverCase `json:"cases"`
}

// failoverCase is one kind of fault, done several times.
type failoverCase struct {
	Fault      string     `json:"fault"`
	IntervalMS int        `json:"interval_ms"` // the heartbeat settings of the cluster
	Multiplier int        `json:"multiplier"`
	Runs       int        `json:"runs"`
	GapMS      percentile `json:"gap_ms"`   // the longest that any pool address did not answer a client's packets
	BoundMS    float64    `json:"bound_ms"` // what no run may exceed, also on a busy machine
	bar
	Met bool `json:"met"` // whether the bar is met; it does not decide whether the case passes

	// The longest that any service address did not answer a client's queries.
	ServiceGapMS percentile `json:"service_gap_ms"`

	// Of the node's own addresses, which are watched: UDP datagrams, one a millisecond, that were not echoed, the most of any; and how
	// long an idle TCP client was without a connection, the longest of any. Null: none lost its connection.
	LostProbes  percentile  `json:"lost_probes"`
	ReconnectMS *percentile `json:"reconnect_ms"`
	Unnoticed   int         `json:"unnoticed"` // runs after which an idle client had not noticed for seconds

	// Where nothing should move: what did after all, in all runs. Null: addresses were to move.
	Disturbed *disturbance `json:"disturbed"`

	Pass bool   `json:"pass"`
	Why  string `json:"why,omitempty"` // why it did not pass
}

// percentile is a distribution in short; by the nearest rank, so that with fewer than a hundred runs the 99th is the longest.
type percentile struct {
	Median float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// seen is what the client saw of one fault.
type seen struct {
	gapMS        float64      // the longest that any pool address did not answer
	serviceGapMS float64      // the longest that any service address did not
	lost         int          // datagrams to any one of the victim's addresses
	broke        bool         // an idle client lost its connection
	reconnectMS  float64      // the longest that one was without
	unnoticed    bool         // one had not noticed that its connection is no more when idlePatience was over
	disturbed    *disturbance // where nothing should move: what did
}

func (s seen) String() string {
	text := fmt.Sprintf("%.1f ms, service addresses %.1f ms, %d probes lost", s.gapMS, s.serviceGapMS, s.lost)
	if s.disturbed != nil {
		text += ", " + s.disturbed.String()
	}
	if s.unnoticed {
		return text + ", and an idle client has not noticed"
	}
	if s.broke {
		text += fmt.Sprintf(", connected again after %.1f ms", s.reconnectMS)
	}
	return text
}

// othersInterval is the time between two probes of an address that is not watched, in milliseconds.
const othersInterval = 5

// sights reads a report of the probe.
func sights(r probeReport) seen {
	var s seen
	for address, silence := range r.LongestMS {
		if _, watched := r.Watched[address]; !watched {
			silence -= othersInterval // or it could not be less
		}
		s.gapMS = max(s.gapMS, silence)
	}
	for _, one := range r.Services {
		silence := one.LongestMS
		if !one.Watched {
			silence -= othersInterval
		}
		s.serviceGapMS = max(s.serviceGapMS, silence)
	}
	for _, one := range r.Watched {
		s.lost = max(s.lost, one.Lost)
		s.broke = s.broke || one.Broke
		s.reconnectMS = max(s.reconnectMS, one.ReconnectMS)
	}
	return s
}

// judge sums up the runs of the case and says whether it passes, and whether its bar is met.
func (c *failoverCase) judge(runs []seen) {
	var gaps, services, lost, reconnects []float64
	for _, run := range runs {
		gaps, services, lost = append(gaps, run.gapMS), append(services, run.serviceGapMS), append(lost, float64(run.lost))
		if run.unnoticed {
			c.Unnoticed++
		} else if run.broke {
			reconnects = append(reconnects, run.reconnectMS)
		}
		if run.disturbed != nil {
			c.Disturbed = c.Disturbed.plus(*run.disturbed)
		}
	}
	c.Runs, c.GapMS, c.ServiceGapMS, c.LostProbes = len(runs), percentiles(gaps), percentiles(services), percentiles(lost)
	if len(reconnects) > 0 {
		sum := percentiles(reconnects)
		c.ReconnectMS = &sum
	}
	switch {
	case c.GapMS.Max > c.BoundMS:
		c.Why = fmt.Sprintf("an address did not answer for %.0f ms; the bound is %.0f ms", c.GapMS.Max, c.BoundMS)
	case c.ServiceGapMS.Max > c.BoundMS:
		c.Why = fmt.Sprintf("a service address did not answer for %.0f ms; the bound is %.0f ms", c.ServiceGapMS.Max, c.BoundMS)
	case c.Disturbed != nil && *c.Disturbed != (disturbance{}):
		c.Why = fmt.Sprintf("nothing should have changed, and %s", c.Disturbed)
	}
	c.Pass, c.Met = c.Why == "", c.metBy(*c)
}

func (f *failover) show(result failoverResult) {
	var rows [][]string
	met := map[bool]string{true: "yes", false: "no"}
	for _, c := range result.Cases {
		again := "-"
		if c.ReconnectMS != nil {
			again = fmt.Sprintf("%.0f / %.0f ms", c.ReconnectMS.Median, c.ReconnectMS.Max)
		}
		rows = append(rows, []string{
			c.Fault, strconv.Itoa(c.Runs), whole(c.GapMS.Median), whole(c.GapMS.P99), whole(c.GapMS.Max), whole(c.BoundMS),
			fmt.Sprintf("%.0f / %.0f ms", c.ServiceGapMS.Median, c.ServiceGapMS.Max),
			fmt.Sprintf("%.0f / %.0f", c.LostProbes.Median, c.LostProbes.Max), again, c.bar.String(), met[c.Met],
		})
	}
	f.out.title("How long an address did not answer, from a client's own packets")
	f.out.table([]string{"FAULT", "RUNS", "MEDIAN", "P99", "LONGEST", "BOUND", "SERVICE", "PROBES LOST", "TCP AGAIN", "BAR", "MET"}, rows)
	f.out.say("Service: how long a service address did not answer queries. Probes lost: UDP datagrams, one a millisecond, to any one of the node's")
	f.out.say("addresses; TCP again: how long an idle client of one was without a connection. All three: median / longest.")
	f.out.say("The bar is what the product aims at where it has the machine for itself; it is shown, and what misses it may pass within the bound.")
	for _, c := range result.Cases {
		if !c.Pass {
			f.out.verdict(false, "%s: %s", c.Fault, c.Why)
		}
	}
	f.out.verdict(result.Pass, "every address answered again after every fault; nothing of it is left on this machine")
}

func whole(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }

// percentiles sums up what was measured.
func percentiles(values []float64) percentile {
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 { // by the nearest rank: the least value that at least this share of all does not exceed
		return sorted[int(math.Ceil(share*float64(len(sorted))))-1]
	}
	return percentile{Median: at(0.5), P99: at(0.99), Max: sorted[len(sorted)-1]}
}
