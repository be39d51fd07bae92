package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A scenario plays a story on labs of its own and says whether it went as it should.
type scenario struct {
	short string
	// run returns the scenario's result for --output json. An error means that the story could not be played to its end,
	// which is a failure too.
	run func(ctx context.Context, out *transcript, o runOptions) (result any, pass bool, err error)
}

// runOptions are what a user sets.
type runOptions struct {
	keep   bool     // the files of the labs
	runs   int      // of each fault, in failover
	faults []string // in failover; empty: all

	intervalMS, multiplier int // of the heartbeats, in failover

	launches int // of sessions, in broker-1 to broker-6 and broker-restart
}

var scenarios = map[string]scenario{
	"tour":     {"Show a cluster keeping its clients while nodes die, return and are drained", runTour},
	"sizing":   {"Play the sizing examples: who carries what after a node's death", runSizing},
	"failover": {"Measure for how long addresses do not answer after each kind of fault", runFailover},
}

// The scenarios about sessions are rows of one table.
func init() {
	scenarios["broker"] = scenario{"Show a user with a shell on a server while session gateways and brokers die", runSessionTour}
	for _, c := range sessionCases {
		scenarios[c.name] = scenario{c.title, playSessions(c)}
	}
}

// maxRuns bounds how often a fault is done; each takes some seconds.
const maxRuns = 1000

// mostLaunches bounds the launches of a scenario; each is a session.
const mostLaunches = 10_000

// errNotPassed is the error of a scenario that was played to its end and did not pass.
var errNotPassed = errors.New("the scenario did not pass")

func runCommand() *cobra.Command {
	var output string
	var o runOptions
	var names []string
	long := "Plays a scenario on labs of its own. The exit code is 1 unless it passes.\n"
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		names = append(names, name)
		long += fmt.Sprintf("\n  %-14s %s", name, scenarios[name].short)
	}
	command := &cobra.Command{
		Use: "run SCENARIO", Short: "Play a scenario: " + strings.Join(names, ", "), Long: long,
		Args: cobra.ExactArgs(1), ValidArgs: names,
		RunE: func(c *cobra.Command, arguments []string) error {
			s, ok := scenarios[arguments[0]]
			if !ok {
				return misused("there is no scenario %q; there are %s", arguments[0], strings.Join(names, ", "))
			}
			if err := o.check(c.Flags().Changed("faults")); err != nil {
				return err
			}
			out := newTranscript(c.OutOrStdout())
			if output != "table" {
				out = newTranscript(io.Discard)
			}
			result, pass, err := s.run(c.Context(), out, o)
			if output != "table" && result != nil {
				err = errors.Join(err, printAs(output, c.OutOrStdout(), result))
			}
			if err == nil && !pass {
				err = errNotPassed
			}
			return err
		},
	}
	command.Flags().IntVar(&o.runs, "runs", 3, "how often each fault is done, in failover")
	command.Flags().StringSliceVar(&o.faults, "faults", nil, "which faults, in failover (default all)")
	command.Flags().IntVar(&o.intervalMS, "interval-ms", 50, "time between two heartbeats, in failover, in milliseconds")
	command.Flags().IntVar(&o.multiplier, "multiplier", 3, "how many heartbeats must be missing, in failover")
	command.Flags().IntVar(&o.launches, "launches", 100, "how many sessions are opened, in broker-1 to broker-6 and broker-restart")
	command.Flags().BoolVar(&o.keep, "keep-files", false, "keep the files of the labs, for example their logs")
	outputFlag(command, &output)
	return command
}

// Bounds of the heartbeats in a scenario: those of the settings that come of them.
const (
	leastIntervalMS, mostIntervalMS = 10, 10_000
	leastMultiplier, mostMultiplier = 2, 50
)

// check refuses options that no scenario can be played with, by the names of their flags. named says that faults were named at all.
func (o *runOptions) check(named bool) error {
	_, unknown := chosenFaults(o.faults)
	switch {
	case o.runs < 1 || o.runs > maxRuns:
		return misused("--runs %d: write 1 to %d", o.runs, maxRuns)
	case o.launches < 1 || o.launches > mostLaunches:
		return misused("--launches %d: write 1 to %d", o.launches, mostLaunches)
	case named && len(o.faults) == 0:
		return misused("--faults is empty: write names of faults with commas, or leave it out for all")
	case unknown != nil:
		return misused("--faults: %v", unknown)
	case o.intervalMS < leastIntervalMS || o.intervalMS > mostIntervalMS:
		return misused("--interval-ms %d: write %d to %d", o.intervalMS, leastIntervalMS, mostIntervalMS)
	case o.multiplier < leastMultiplier || o.multiplier > mostMultiplier:
		return misused("--multiplier %d: write %d to %d", o.multiplier, leastMultiplier, mostMultiplier)
	}
	return nil
}

// stage is a lab on which a scenario plays, and the programs that run on it. It ends with close, or with the process.
type stage struct {
	Directory
	plan     *Plan
	out      *transcript
	keep     bool
	programs []*program
}

// servingPatience is how long a scenario waits for its cluster to serve and for addresses to settle.
const servingPatience = 60 * time.Second

// newStage starts a lab whose cluster serves, with a web server on every node.
func newStage(ctx context.Context, file File, out *transcript, keep bool) (*stage, error) {
	return newStageWith(ctx, file, out, keep, (*stage).startServer)
}

// newStageWith is newStage with another server on every node.
func newStageWith(ctx context.Context, file File, out *transcript, keep bool, server func(*stage, context.Context, string) error) (*stage, error) {
	plan, err := BuildPlan(file)
	if err != nil {
		return nil, err
	}
	if err := safeBase(baseDirectory()); err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp(baseDirectory(), "run-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the scenario: %w", err)
	}
	s := &stage{Directory: Directory(directory), plan: plan, out: out, keep: keep}
	if err := launch(s.Directory, plan, launchOptions{leash: true}); err != nil {
		return nil, err
	}
	err = s.serve(ctx, plan.Names(KindNode))
	for _, node := range plan.Names(KindNode) {
		if err == nil {
			err = server(s, ctx, node)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// serve waits until the nodes serve.
func (s *stage) serve(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, servingPatience)
	defer cancel()
	return WaitServing(ctx, s.Directory, s.plan, nodes, s.out.progress())
}

// startServer runs the web server on a node.
func (s *stage) startServer(ctx context.Context, node string) error {
	server, err := s.start(ctx, node, "holdfast", "lab", "serve-http")
	if err != nil {
		return err
	}
	s.programs = append(s.programs, server)
	return s.wait(ctx, "the web server of "+node+" answers", func() (bool, error) {
		_, err := s.Output(ctx, node, "sh", "-c", `exec 3<>/dev/tcp/127.0.0.1/80`)
		if err == nil {
			return true, nil
		}
		_, err = s.Output(ctx, node, "grep", "-q", ":0050 .* 0A ", "/proc/net/tcp", "/proc/net/tcp6") // port 80, listening
		return err == nil, nil
	})
}

// startEcho runs the echo server on a node, and returns when it listens.
func (s *stage) startEcho(ctx context.Context, node string) error {
	server, err := s.start(ctx, node, "holdfast", "lab", "serve-echo")
	if err != nil {
		return err
	}
	s.programs = append(s.programs, server)
	var ready string
	return server.read(&ready)
}

// close ends the programs and the lab.
func (s *stage) close() error {
	for _, p := range s.programs {
		p.stop()
	}
	return down(s.Directory, s.keep)
}

// tell asks the lab's host for something.
func (s *stage) tell(ask request) error {
	_, _, err := s.call(ask)
	return err
}

// holdfast runs the command on a node.
func (s *stage) holdfast(ctx context.Context, node string, arguments ...string) error {
	_, err := s.Output(ctx, node, append([]string{"holdfast"}, arguments...)...)
	return err
}

// wait polls a condition for as long as a scenario waits for anything.
func (s *stage) wait(ctx context.Context, what string, condition func() (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, servingPatience)
	defer cancel()
	for {
		met, err := condition()
		if err == nil && met {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while waiting until %s", what)
		}
		if !pause(limited, 50*time.Millisecond) {
			return errors.Join(fmt.Errorf("it did not come about that %s, within %v", what, servingPatience), err)
		}
	}
}

// pool is who holds the pool addresses.
func (s *stage) pool(ctx context.Context, asked string) (map[string]string, error) {
	return s.heldOf(ctx, asked, kindDynamic)
}

// heldOf is who holds the addresses of one kind; nobody holds one that is on its way.
func (s *stage) heldOf(ctx context.Context, asked, kind string) (map[string]string, error) {
	all, err := held(ctx, s.Directory, asked)
	holders := make(map[string]string)
	for _, a := range all {
		if a.Kind == kind {
			holders[a.Address] = a.Node
			if a.State != "held" {
				holders[a.Address] = ""
			}
		}
	}
	return holders, err
}

// settled waits until every pool address is held by one of the nodes, and returns who holds what.
func (s *stage) settled(ctx context.Context, nodes []string) (map[string]string, error) {
	var holders map[string]string
	err := s.wait(ctx, "every address is held by one of "+strings.Join(nodes, ", "), func() (bool, error) {
		var err error
		holders, err = s.pool(ctx, nodes[0])
		for _, holder := range holders {
			if !slices.Contains(nodes, holder) {
				return false, err
			}
		}
		return len(holders) > 0, err
	})
	return holders, err
}

// countHolders counts addresses by holder.
func countHolders(holders map[string]string) map[string]int {
	counts := make(map[string]int)
	for _, node := range holders {
		counts[node]++
	}
	return counts
}

// without is names less one of them.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

// zoneFile is the delegation as the resolver has it, for people to see.
func (s *stage) zoneFile() string {
	data, err := os.ReadFile(filepath.Join(s.node("resolver"), "parent1.zone"))
	if err != nil {
		return ""
	}
	return string(data)
}
