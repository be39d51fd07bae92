package placement

import "time"

// Decision is the record of one choice: what was chosen, among whom, who was left out and why, on data of what age.
// Every answer, move and plan yields one; `holdfast explain` prints it.
type Decision struct {
	Subject string // what was decided about: an address, a zone name
	Chosen  string // who was chosen, empty when nobody could be
	Reason  string // one sentence
	Among   []Considered
	LeftOut []Excluded
	DataAge time.Duration // age of the oldest measurement that counted; 0 when none did
	At      time.Time
}

// Considered is one candidate that could have been chosen.
type Considered struct {
	Name   string
	Weight int
	Score  float64 // lower is better; its meaning is in Note
	Note   string
}

// Excluded is one candidate that could not be chosen.
type Excluded struct {
	Name   string
	Reason string
}
