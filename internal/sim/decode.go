package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
)

// What a scenario may have. What is more than that is no cluster that anybody has, and what would go wrong in it says nothing.
const (
	maxAddresses = 64
	maxServices  = 8
	maxDelay     = 100 * time.Millisecond
	maxStorm     = time.Hour
	maxFaults    = 1000
	maxLateness  = 2000 // milliseconds
	maxFile      = 1 << 20

	leastInterval = 10 * time.Millisecond // that a configuration takes
	mostInterval  = time.Second
)

// Decode reads a scenario and checks its bounds. Errors say what is wrong and where, for whoever wrote the file.
func Decode(data []byte) (Scenario, error) {
	var s Scenario
	if len(data) > maxFile {
		return s, fmt.Errorf("it has more than %d bytes, and no scenario is that long", maxFile)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = fmt.Errorf("line %d: more follows after the scenario; a file has one", lineOf(data, d.InputOffset()))
		}
	} else {
		err = unreadable(data, d.InputOffset(), err)
	}
	if err != nil {
		return s, err
	}
	return s, s.check()
}

// lineOf is the line of a place in a file.
func lineOf(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:max(min(int(offset), len(data)), 0)], []byte("\n"))
}

// unreadable rewords what is wrong with a file as JSON.
func unreadable(data []byte, offset int64, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch unknown, is := strings.CutPrefix(err.Error(), "json: unknown field "); {
	case is:
		return fmt.Errorf("there is no field %s in a scenario or a fault; a scenario has %s, and a fault %s",
			unknown, fieldsOf(reflect.TypeFor[Scenario]()), fieldsOf(reflect.TypeFor[Fault]()))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: it is not JSON: %w", lineOf(data, syntax.Offset), err)
	case errors.As(err, &kind):
		return fmt.Errorf("line %d: %s is %s where %s belongs", lineOf(data, kind.Offset), field(kind.Field), valueRead(kind.Value), valueWanted(kind.Type.Kind()))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("line %d: it ends in the middle; a scenario is a whole JSON object, as a failure shows it", lineOf(data, int64(len(data))))
	}
	return fmt.Errorf("line %d: %w", lineOf(data, offset), err)
}

// field is the name of a field in the file.
func field(name string) string {
	if name == "" {
		return "the whole"
	}
	return name
}

// fieldsOf are the names of the fields of a record, for people.
func fieldsOf(record reflect.Type) string {
	var names []string
	for i := range record.NumField() {
		names = append(names, record.Field(i).Name)
	}
	return strings.Join(names, ", ")
}

// valueRead is what was found in a file, for people.
func valueRead(value string) string {
	switch kind, number, _ := strings.Cut(value, " "); kind {
	case "number":
		if number != "" {
			return number
		}
		return "a number"
	case "string":
		return "text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	}
	return "an object"
}

// valueWanted is what belongs there.
func valueWanted(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of faults"
	case reflect.Struct:
		return "an object"
	case reflect.Uint64:
		return "a whole number that is not negative"
	}
	return "a whole number"
}

// bound is what a number of a scenario may be.
type bound struct {
	name            string
	is, least, most int64
}

func (b bound) check() error {
	if b.is < b.least || b.is > b.most {
		return fmt.Errorf("%s is %d: write %d to %d", b.name, b.is, b.least, b.most)
	}
	return nil
}

// span is the bound of a time, which is in nanoseconds in a file.
type span struct {
	name            string
	is, least, most time.Duration
}

func (b span) check() error {
	if b.is < b.least || b.is > b.most {
		return fmt.Errorf("%s is %d nanoseconds (%s): write %d to %d (%s to %s)", b.name, b.is, b.is, b.least, b.most, b.least, b.most)
	}
	return nil
}

// check finds what cannot be played.
func (s Scenario) check() error {
	for _, b := range []interface{ check() error }{
		bound{"Nodes", int64(s.Nodes), 1, MaxNodes}, bound{"Multiplier", int64(s.Multiplier), 2, 10},
		span{"Interval", s.Interval, leastInterval, mostInterval}, bound{"Addresses", int64(s.Addresses), 1, maxAddresses},
		bound{"Services", int64(s.Services), 0, maxServices}, bound{"Networks", int64(s.Networks), 1, maxNetworks},
		bound{"LossPM", int64(s.LossPM), 0, 1000}, span{"Delay", s.Delay, 0, maxDelay}, span{"Storm", s.Storm, 0, maxStorm},
		bound{"the number of Faults", int64(len(s.Faults)), 0, maxFaults},
	} {
		if err := b.check(); err != nil {
			return err
		}
	}
	if s.Interval%time.Millisecond != 0 {
		return fmt.Errorf("the Interval is %d nanoseconds (%s): write whole milliseconds", s.Interval, s.Interval)
	}
	if !s.inTime(s.Interval) {
		return s.tooFast("Interval", s.Interval)
	}
	for i, f := range s.Faults {
		if err := s.checkFault(f); err != nil {
			return fmt.Errorf("fault %d of %d (%s): %w", i+1, len(s.Faults), shortened(string(f.Kind)), err)
		}
	}
	return nil
}

// shortened is a word from a file, which may be long.
func shortened(word string) string {
	const enough = 40
	if letters := []rune(word); len(letters) > enough {
		return string(letters[:enough]) + "..."
	}
	return word
}

// inTime reports whether acknowledgements come in time with an interval, as long as nothing is wrong: only then can a cluster work.
func (s Scenario) inTime(interval time.Duration) bool {
	return interval*time.Duration(s.Multiplier-1) >= 2*s.Delay+6*time.Millisecond
}

func (s Scenario) tooFast(name string, interval time.Duration) error {
	return fmt.Errorf("%s is too short: with heartbeats of %s x %d and a Delay of %s no acknowledgement comes in time; make that or Multiplier more, or Delay less",
		name, interval, s.Multiplier, s.Delay)
}

// checkFault finds what cannot be played of a fault.
func (s Scenario) checkFault(f Fault) error {
	if !slices.Contains(Kinds(), f.Kind) {
		return fmt.Errorf("there is no Kind %q; there are %s", shortened(string(f.Kind)), joined(Kinds()))
	}
	others := s.Nodes
	if f.Kind == Switch {
		others = s.Networks
	}
	least, most := s.amounts(f.Kind)
	for _, b := range []interface{ check() error }{
		span{"At", f.At, 0, maxStorm}, span{"Lasts", f.Lasts, 0, maxStorm}, bound{"Node", int64(f.Node), 0, int64(s.Nodes)},
		bound{"Other", int64(f.Other), 0, int64(others)}, bound{"Amount", int64(f.Amount), least, most},
	} {
		if err := b.check(); err != nil {
			return err
		}
	}
	if interval := time.Duration(f.Amount) * time.Millisecond; f.Kind == Span && !s.inTime(interval) {
		return s.tooFast("Amount", interval)
	}
	return nil
}

// amounts are between what the Amount of a fault may be.
func (s Scenario) amounts(kind FaultKind) (least, most int64) {
	switch kind {
	case Loss:
		return 0, 1000
	case Partition:
		return 0, 1<<(s.Nodes+1) - 1
	case ClockStep:
		const day = 24 * 3600 * 1000
		return -day, day
	case Span:
		return int64(leastInterval / time.Millisecond), int64(mostInterval / time.Millisecond)
	}
	return 0, maxLateness
}

// joined is a list of words.
func joined[T ~string](words []T) string {
	var all []string
	for _, word := range words {
		all = append(all, string(word))
	}
	return strings.Join(all, ", ")
}
