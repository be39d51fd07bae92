package choice

import (
	"fmt"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Load is which load average counts. The zero Load is Load5.
type Load uint8

// The load averages. The vendor does not say which one it takes.
const (
	Load5 Load = iota
	Load1
	Load15
)

// String is the load's name as health answers have it.
func (l Load) String() string {
	switch l {
	case Load1:
		return "load1"
	case Load15:
		return "load15"
	default:
		return "load5"
	}
}

// Formula is how fitness is reckoned. The zero Formula is the vendor's with load5, and with launches counted in.
type Formula struct {
	Load           Load
	Normalised     bool    // the load is for each processor, in percent, so that large machines are not taken for busy ones
	LaunchLoad     float64 // what a launch since the last sample adds to the load; 0 means 1
	IgnoreLaunches bool    // as the vendor does: between two samples everything goes to one gateway
}

// Fitness is how fit a gateway is for one more session: percent of disk free minus load average, higher is better. The load is shared by
// the weight; in the normalised form it is percent of its processors, of which there is one where the gateway does not say. False if its
// health is not known.
func (f Formula) Fitness(h *fleet.Health, launches uint32, weight int) (float64, bool) {
	if !h.Known {
		return 0, false
	}
	load := h.Load5
	switch f.Load {
	case Load5:
	case Load1:
		load = h.Load1
	case Load15:
		load = h.Load15
	}
	if !f.IgnoreLaunches {
		load += float64(launches) * f.launchLoad()
	}
	if weight > 1 {
		load /= float64(weight)
	}
	if f.Normalised {
		load *= 100 / float64(max(h.Cores, 1))
	}
	return 100 - h.DiskUsed - load, true
}

func (f Formula) launchLoad() float64 {
	if f.LaunchLoad <= 0 {
		return 1
	}
	return f.LaunchLoad
}

// describe words how the fitness of a pick came about.
func (f Formula) describe(p *Pick) string {
	h := &p.Gateway.Health
	if !p.Known {
		return "its health is not known"
	}
	load := map[Load]float64{Load5: h.Load5, Load1: h.Load1, Load15: h.Load15}[f.Load]
	text := fmt.Sprintf("%.4g%% of disk free, %s %.4g", 100-h.DiskUsed, f.Load, load)
	if f.Normalised {
		text += fmt.Sprintf(" on %d processors", max(h.Cores, 1))
	}
	if p.Launches > 0 && !f.IgnoreLaunches {
		text += fmt.Sprintf(", %d launches since", p.Launches)
	}
	if p.Weight > 1 {
		text += fmt.Sprintf(", weight %d", p.Weight)
	}
	return text
}
