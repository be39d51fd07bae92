package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// What is shown of failures.
const (
	shrinkPlays = 1500 // at most so many scenarios are played to find a smaller one
	mostShrunk  = 5    // of so many failures
	mostListed  = 1000 // so many are in an answer as JSON; more are only counted
)

// telling plays what was asked for, and says what became of it.
type telling struct {
	ctx context.Context
	out io.Writer
	settings
	options Options
	answer  answer
}

// answer is what --output json prints: the same, seed by seed, wherever it is played.
type answer struct {
	Seeds       uint64    `json:"seeds"`  // that were played
	Failed      uint64    `json:"failed"` // of them
	Interrupted bool      `json:"interrupted"`
	Failures    []failure `json:"failures"` // in the order of the seeds
}

// failure is one of them. A scenario is as --scenario reads it.
type failure struct {
	Seed     uint64      `json:"seed"`
	Kind     FailureKind `json:"kind"`
	Text     string      `json:"text"`
	After    int64       `json:"after_us"` // since the beginning of the history
	Scenario Scenario    `json:"scenario"`
	Smaller  *smaller    `json:"smaller"` // null: none was looked for
}

type smaller struct {
	Text     string   `json:"text"`
	After    int64    `json:"after_us"`
	Scenario Scenario `json:"scenario"`
}

// one plays one scenario.
func (t *telling) one(scenario Scenario) error {
	if t.trace {
		t.options.Trace = func(line string) { fmt.Fprintln(t.out, line) }
	}
	if result := Play(scenario, t.options); result.Failure != "" {
		t.failed(result)
	}
	return t.end(1, 1)
}

// many plays many seeds.
func (t *telling) many(errors io.Writer) error {
	progress := newProgress(errors, isTerminal(errors), t.seeds, time.Now())
	played := Many(t.ctx, t.base, t.seeds, t.parallel, t.options, func(r Result) {
		if r.Failure != "" {
			progress.clear()
			t.failed(r)
		}
		progress.played(t.answer.Failed, time.Now())
	})
	progress.clear()
	return t.end(played, t.seeds)
}

// failed shows a failure, or notes it for the end.
func (t *telling) failed(result Result) {
	t.answer.Failed++
	known := failure{Seed: result.Scenario.Seed, Kind: result.Kind, Text: result.Failure, After: result.At.Microseconds(), Scenario: result.Scenario}
	if t.output != "json" {
		fmt.Fprintf(t.out, "seed %d (%s) failed after %s: %s\n", known.Seed, result.Scenario.Story, result.At.Round(time.Microsecond), known.Text)
	}
	if t.shrink && t.answer.Failed <= mostShrunk && t.ctx.Err() == nil {
		small := Shrink(result.Scenario, t.options, shrinkPlays, func() bool { return t.ctx.Err() != nil })
		known.Smaller = &smaller{small.Failure, small.At.Microseconds(), small.Scenario}
		if t.output != "json" {
			fmt.Fprintf(t.out, "the same in a smaller scenario, after %s: %s\n%s%s", small.At.Round(time.Microsecond), small.Failure, small.Scenario, small.Scenario.Encode())
		}
	}
	if t.output == "json" && len(t.answer.Failures) < mostListed {
		t.answer.Failures = append(t.answer.Failures, known)
	}
}

// end says how many were played and failed, in the last line, and how the program ends.
func (t *telling) end(played, of uint64) error {
	t.answer.Seeds, t.answer.Interrupted = played, played < of
	if t.output == "json" {
		encoder := json.NewEncoder(t.out)
		encoder.SetIndent("", "  ")
		if t.answer.Failures == nil {
			t.answer.Failures = []failure{}
		}
		if err := encoder.Encode(t.answer); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	} else {
		fmt.Fprintf(t.out, "seeds=%d failed=%d\n", played, t.answer.Failed)
	}
	switch {
	case t.answer.Interrupted:
		return &ended{exitFailed, fmt.Sprintf("interrupted after %d of %d", played, of)}
	case t.answer.Failed > 0:
		return &ended{code: exitFailed}
	}
	return nil
}

// isTerminal reports whether somebody looks on.
func isTerminal(to io.Writer) bool {
	file, is := to.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
