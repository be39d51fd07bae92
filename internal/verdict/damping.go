package verdict

import "time"

// Damping says how a flapping target earns a growing hold-down. A flap is one way from Up to Down. After the first
// flap a target must have been good without interruption for Base before it is Up again, after the second for twice
// Base, and so on up to Max. Each Quiet spent Up without interruption takes one flap back.
//
// The hold-down delays only the return. Nothing in Damping can delay leaving.
type Damping struct {
	Base  time.Duration // hold-down after the first flap; default 5 s
	Max   time.Duration // longest hold-down; default 5 min
	Quiet time.Duration // time Up that forgives one flap; default 1 min
}

// DefaultDamping is used where an operator has said nothing.
var DefaultDamping = Damping{Base: 5 * time.Second, Max: 5 * time.Minute, Quiet: time.Minute}

// withDefaults replaces every zero field by its default.
func (d Damping) withDefaults() Damping {
	if d.Base == 0 {
		d.Base = DefaultDamping.Base
	}
	if d.Max == 0 {
		d.Max = max(DefaultDamping.Max, d.Base)
	}
	if d.Quiet == 0 {
		d.Quiet = DefaultDamping.Quiet
	}
	return d
}

// HoldDown is how long a target with that many flaps must be good before it returns.
func (d Damping) HoldDown(flaps int) time.Duration {
	if flaps <= 0 {
		return 0
	}
	hold := d.Base
	for range flaps - 1 {
		if hold > d.Max/2 {
			return d.Max
		}
		hold *= 2
	}
	return hold
}

// maxFlaps is the number of flaps that reaches Max: more are not counted, so that a target that flapped for a week
// does not need a week to be forgiven.
func (d Damping) maxFlaps() int {
	flaps := 1
	for d.HoldDown(flaps) < d.Max {
		flaps++
	}
	return flaps
}
