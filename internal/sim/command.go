package sim

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// settings are the flags of the command.
type settings struct {
	seeds, base, seed uint64
	parallel          int
	trace, shrink     bool
	story, file       string
	broken            string
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

The last line is "seeds=N failed=M", and the exit code is 1 when M is not 0. What failed is shown with a smaller scenario in which the
same is wrong. A seed is played again, event by event, with --seed and --trace; it is the same wherever it is played.`,
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
	flags.StringVar(&set.story, "story", "", "play this directed scenario for each seed: "+strings.Join(quoted(Stories()), ", "))
	flags.StringVar(&set.file, "scenario", "", "play the scenario in this file alone, as a failure shows it")
	flags.StringVar(&set.broken, "break", "", "break a rule, to see that it is found")
	_ = flags.MarkHidden("break") // it exists
	command.MarkFlagsMutuallyExclusive("seed", "scenario", "seeds")
	return command
}

func quoted(names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%q", name))
	}
	return all
}

// failed ends the program with exit code 1, silently: everything has been said.
type failed struct{}

func (failed) Error() string { return "" }

// ExitCode is the code with which the program ends.
func (failed) ExitCode() int { return 1 }

func run(c *cobra.Command, set settings) error {
	options := Options{Break: Break(set.broken)}
	if options.Break != Unbroken && !slices.Contains(Breaks(), options.Break) {
		return fmt.Errorf("there is no rule %q to break; there are %v", set.broken, Breaks())
	}
	var scenario Scenario
	switch {
	case set.file != "":
		data, err := os.ReadFile(set.file)
		if err != nil {
			return fmt.Errorf("reading the scenario: %w", err)
		}
		if scenario, err = Decode(data); err != nil {
			return err
		}
	case c.Flags().Changed("seed"):
		var err error
		if scenario, err = scenarioOf(set.story, set.seed); err != nil {
			return err
		}
	default:
		if set.trace {
			return fmt.Errorf("a timeline is that of one history: say which with --seed")
		}
		return runMany(c, set, options)
	}
	return runOne(c, scenario, set, options)
}

func scenarioOf(story string, seed uint64) (Scenario, error) {
	if story == "" {
		return Generate(seed), nil
	}
	scenario, known := Directed(story, seed)
	if !known {
		return scenario, fmt.Errorf("there is no story %q; there are %s", story, strings.Join(quoted(Stories()), ", "))
	}
	return scenario, nil
}

// runOne plays one scenario.
func runOne(c *cobra.Command, scenario Scenario, set settings, options Options) error {
	out := c.OutOrStdout()
	if set.trace {
		options.Trace = func(line string) { fmt.Fprintln(out, line) }
	}
	result := Play(scenario, options)
	if result.Failure == "" {
		fmt.Fprintln(out, "seeds=1 failed=0")
		return nil
	}
	tell(contextOf(c), out, result, set, options)
	fmt.Fprintln(out, "seeds=1 failed=1")
	return failed{}
}

// What is shown of failures.
const (
	shrinkPlays = 1500 // at most so many scenarios are played to find a smaller one
	mostShrunk  = 5    // of so many failures
)

// tell shows a failure.
func tell(ctx context.Context, out io.Writer, result Result, set settings, options Options) {
	fmt.Fprintf(out, "seed %d (%s) failed after %s: %s\n", result.Scenario.Seed, result.Scenario.Story, result.At.Round(time.Microsecond), result.Failure)
	if !set.shrink || ctx.Err() != nil {
		return
	}
	small := Shrink(result.Scenario, options, shrinkPlays, func() bool { return ctx.Err() != nil })
	fmt.Fprintf(out, "the same in a smaller scenario, after %s: %s\n%s%s", small.At.Round(time.Microsecond), small.Failure, small.Scenario, small.Scenario.Encode())
}

// contextOf ends when the command is to end.
func contextOf(c *cobra.Command) context.Context {
	if ctx := c.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// runMany plays many seeds and shows what failed.
func runMany(c *cobra.Command, set settings, options Options) error {
	if _, err := scenarioOf(set.story, 0); err != nil {
		return err
	}
	if set.story != "" {
		options.Story = set.story
	}
	debug.SetGCPercent(1600) // what is kept is little, and what is thrown away is much
	progress := newProgress(c.ErrOrStderr(), isTerminal(c.ErrOrStderr()), set.seeds, time.Now())
	ctx := contextOf(c)
	out, wrong := c.OutOrStdout(), 0
	played := Many(ctx, set.base, set.seeds, set.parallel, options, func(r Result) {
		if r.Failure != "" {
			wrong++
			progress.clear()
			shown := set
			shown.shrink = set.shrink && wrong <= mostShrunk
			tell(ctx, out, r, shown, options)
		}
		progress.played(wrong, time.Now())
	})
	progress.clear()
	fmt.Fprintf(out, "seeds=%d failed=%d\n", played, wrong)
	if wrong > 0 {
		return failed{}
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
