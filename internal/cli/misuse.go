package cli

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What cobra finds wrong with a command line, in our words and with our exit code.

// exclusive is cobra's annotation of flags that exclude each other.
const exclusive = "cobra_annotation_mutually_exclusive"

// checkAsUsage makes wrong arguments, missing flags and flags that contradict each other end with the exit code for a
// wrong command line, for cmd and all under it.
func checkAsUsage(command *cobra.Command) {
	check := command.Args
	if isNoArgs(check) {
		check = arguments()
	}
	if check != nil || command.Runnable() {
		command.Args = func(cmd *cobra.Command, args []string) error {
			if check != nil {
				if err := check(cmd, args); err != nil {
					var known *failure
					if errors.As(err, &known) {
						return err
					}
					return misused("%s: %s", cmd.CommandPath(), err)
				}
			}
			return checkFlags(cmd)
		}
	}
	for _, sub := range command.Commands() {
		checkAsUsage(sub)
	}
}

// isNoArgs reports whether a command has cobra's own word for no arguments, which speaks of an unknown command.
func isNoArgs(check cobra.PositionalArgs) bool {
	return check != nil && reflect.ValueOf(check).Pointer() == reflect.ValueOf(cobra.NoArgs).Pointer()
}

// hideOutput takes --output from a command that writes no result, and from those below it: it would be offered and ignored. One that has an
// --output of its own keeps it.
func hideOutput(command *cobra.Command) {
	for _, sub := range command.Commands() {
		hideOutput(sub)
	}
	if !command.HasSubCommands() && command.Flags().Lookup("output") == nil {
		command.Flags().VarP(noResult{}, "output", "o", "")
		_ = command.Flags().MarkHidden("output")
	}
}

// noResult is an --output that cannot be given.
type noResult struct{}

func (noResult) String() string   { return "" }
func (noResult) Set(string) error { return errors.New("this command writes no result") }
func (noResult) Type() string     { return "none" }

func checkFlags(cmd *cobra.Command) error {
	var missing []string
	given := map[string][]string{} // by group of flags that exclude each other
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(f.Annotations[cobra.BashCompOneRequiredFlag], "true") && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
		if f.Changed {
			for _, group := range f.Annotations[exclusive] {
				given[group] = append(given[group], "--"+f.Name)
			}
		}
	})
	if len(missing) > 0 {
		return misused("%s needs %s", cmd.CommandPath(), strings.Join(missing, " and "))
	}
	for _, flags := range given {
		if len(flags) > 1 {
			return misused("%s contradict each other: say one of them", strings.Join(flags, " and "))
		}
	}
	return nil
}

// flagMisused rewords what pflag says of a value that cannot be read.
func flagMisused(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return misused("%s", err)
	}
	flag := invalid.GetFlag()
	want, known := map[string]string{
		"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "float64": "a number",
		"uint64": "a whole number that is not negative", "uint": "a whole number that is not negative", "duration": "a time such as 10s or 2m", "bool": "true or false, or nothing",
	}[flag.Value.Type()]
	if known {
		want = "write " + want
	} else {
		want = fmt.Sprint(errors.Unwrap(err))
	}
	return misused("--%s %q: %s", flag.Name, invalid.GetValue(), want)
}
