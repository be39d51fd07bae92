package lab

import (
	"math/rand/v2"
	"time"
)

// maxLinkDelay bounds delay and jitter of a link, and with them how long its queue can grow.
const maxLinkDelay = 10 * time.Second

// reorderHold is how much longer than the frames behind it a reordered frame is held back.
const reorderHold = 2 * time.Millisecond

// Faults are what one direction of a link does to frames. Shares are from 0 to 1 and independent of each other.
type Faults struct {
	Loss        float64       `json:"loss,omitempty"`
	Duplication float64       `json:"duplication,omitempty"`
	Reordering  float64       `json:"reordering,omitempty"` // held back so that frames behind overtake it
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Jitter      time.Duration `json:"jitter_ns,omitempty"` // added to the delay, uniform from 0 to this; keeps the order
}

// direction makes the choices for one direction of one link. It is pure but for its own random sequence: the same
// seed makes the same choices for the same sequence of frames. Not safe for concurrent use.
type direction struct {
	faults Faults
	random *rand.Rand
	last   time.Time // no ordinary frame leaves before this
}

func newDirection(faults Faults, seed, stream uint64) *direction {
	return &direction{faults: faults, random: rand.New(rand.NewPCG(seed, stream))}
}

// fate is what happens to one frame.
type fate struct {
	leaves    []time.Time // when each copy leaves; empty: lost
	reordered bool
}

// next decides about the frame that arrived now. It draws the same number of random values whatever it decides, so
// that changing one share does not change the choices of the others.
func (d *direction) next(now time.Time) fate {
	lost := d.random.Float64() < d.faults.Loss
	twice := d.random.Float64() < d.faults.Duplication
	reordered := d.random.Float64() < d.faults.Reordering
	jitter := time.Duration(d.random.Float64() * float64(d.faults.Jitter))
	if lost {
		return fate{}
	}
	leave := now.Add(d.faults.Delay + jitter)
	if leave.Before(d.last) {
		leave = d.last
	}
	if reordered {
		leave = leave.Add(reorderHold)
	} else {
		d.last = leave
	}
	if twice {
		return fate{leaves: []time.Time{leave, leave}, reordered: reordered}
	}
	return fate{leaves: []time.Time{leave}, reordered: reordered}
}
