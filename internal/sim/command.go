package sim

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// settings are the flags of the command.
type settings struct {
	seeds, base, seed uint64
	parallel          int
	trace, shrink     bool
	story, file       string
	broken, output    string
}

// Command is `holdfast sim`.
func Command() *cobra.Command {
	var set settings
	command := &cobra.Command{
		Use:   "sim",
		Short: "Play clusters in virtual time, with faults, and check that no two nodes hold one address",
		Long: `Play whole clusters in virtual time: nodes with their kernels, guards and agents, the network between them and the store,
with crashes, stalls, partitions, losses and an operator's changes that follow from a seed. What decides in them is this binary's own
code. After every event it is checked that at most one node holds each address and has the right to, that nobody holds under an
incarnation that somebody has found down, that no name is answered with what is known to be down, and that nothing moves without a
reason on record; and when the faults have ended, that every address has a holder again.

The last line is "seeds=N failed=M", and the exit code is 1 when M is not 0, or when it was interrupted before all were played. What
failed is shown with a smaller scenario in which the same is wrong. A seed is played again, event by event, with --seed and --trace; it is
the same wherever it is played. With --output json all of it is one object, in which "failures" has a thousand at most.`,
		Example: "  holdfast sim --seeds 1000 --parallel 2\n  holdfast sim --seed 42 --trace",
		Args:    cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error { return run(c, set) },
	}
	flags := command.Flags()
	flags.Uint64Var(&set.seeds, "seeds", 100, "how many seeds are played")
	flags.Uint64Var(&set.base, "seed-base", 0, "the first of them")
	flags.IntVar(&set.parallel, "parallel", runtime.GOMAXPROCS(0), "how many are played at the same time")
	flags.Uint64Var(&set.seed, "seed", 0, "play this one alone")
	flags.BoolVar(&set.trace, "trace", false, "write the timeline of the one that is played")
	flags.BoolVar(&set.shrink, "shrink", true, "look for a smaller scenario for what fails")
	flags.StringVar(&set.story, "story", "", "play this directed scenario for each seed: "+quoted(Stories()))
	flags.StringVar(&set.file, "scenario", "", "play the scenario in this file alone, as a failure shows it")
	flags.StringVar(&set.broken, "break", "", "break a rule, to see that it is found")
	_ = flags.MarkHidden("break") // it exists
	flags.StringVarP(&set.output, "output", "o", "table", "how the result is written: table, which is text, or json")
	command.MarkFlagsMutuallyExclusive("seed", "scenario", "seeds")
	command.MarkFlagsMutuallyExclusive("seed", "seed-base")
	command.MarkFlagsMutuallyExclusive("scenario", "seed-base")
	command.MarkFlagsMutuallyExclusive("scenario", "story")
	return command
}

func quoted[T ~string](names []T) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", string(name)))
	}
	return strings.Join(all, ", ")
}

// ended is the end of the program with a code of its own, and what there is to say of it; empty: everything has been said.
type ended struct {
	code int
	text string
}

func (e *ended) Error() string { return e.text }

// ExitCode is the code with which the program ends.
func (e *ended) ExitCode() int { return e.code }

// Codes as every command has them (internal/cli/exit.go).
const (
	exitFailed = 1
	exitUsage  = 2
)

func misused(format string, args ...any) error {
	return &ended{exitUsage, fmt.Sprintf(format, args...)}
}

// mostParallel bounds how many histories are played at the same time.
const mostParallel = 1024

// check finds what cannot be asked for.
func (set settings) check(one bool) error {
	switch broken := Break(set.broken); {
	case broken != Unbroken && !slices.Contains(Breaks(), broken):
		return misused("--break %q: there is no such rule; there are %s", set.broken, quoted(Breaks()))
	case set.story != "" && !slices.Contains(Stories(), set.story):
		return misused("--story %q: there is no such story; there are %s", set.story, quoted(Stories()))
	case set.output != "table" && set.output != "json":
		return misused("--output %q: write table or json", set.output)
	case set.trace && set.output == "json":
		return misused("--trace and --output json contradict each other: a timeline is lines of text")
	case set.trace && !one:
		return misused("--trace: a timeline is that of one history; say which with --seed or --scenario")
	case set.seeds == 0:
		return misused("--seeds 0: write how many are to be played, 1 or more")
	case set.base > math.MaxUint64-set.seeds:
		return misused("--seed-base %d and --seeds %d: the last seed would be more than %d; make one of them less", set.base, set.seeds, uint64(math.MaxUint64))
	case set.parallel < 1 || set.parallel > mostParallel:
		return misused("--parallel %d: write 1 to %d", set.parallel, mostParallel)
	}
	return nil
}

func run(c *cobra.Command, set settings) error {
	one := set.file != "" || c.Flags().Changed("seed")
	if err := set.check(one); err != nil {
		return err
	}
	debug.SetGCPercent(1600) // what is kept is little, and what is thrown away is much
	says := &telling{ctx: contextOf(c), out: c.OutOrStdout(), settings: set, options: Options{Break: Break(set.broken), Story: set.story}}
	if !one {
		return says.many(c.ErrOrStderr())
	}
	scenario := scenarioOf(set.story, set.seed)
	if set.file != "" {
		var err error
		if scenario, err = readScenario(set.file); err != nil {
			return err
		}
	}
	return says.one(scenario)
}

// scenarioOf is the scenario of a seed: that of a story, if one is named.
func scenarioOf(story string, seed uint64) Scenario {
	if scenario, directed := Directed(story, seed); directed {
		return scenario
	}
	return Generate(seed)
}

// readScenario reads a file that somebody names on the command line.
func readScenario(path string) (Scenario, error) {
	file, err := os.Open(path)
	if err != nil {
		return Scenario{}, misused("--scenario: the file cannot be read: %s", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Scenario{}, misused("--scenario: the file cannot be read: %s", err)
	}
	scenario, err := Decode(data)
	if err != nil {
		return scenario, misused("--scenario %s cannot be played: %s", path, err)
	}
	return scenario, nil
}

// contextOf ends when the command is to end.
func contextOf(c *cobra.Command) context.Context {
	if ctx := c.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}
