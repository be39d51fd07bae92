package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Build says which program this is. Empty fields are filled from what the Go linker recorded.
type Build struct {
	Version, Commit, Date string
}

// filled completes b from the build information of the binary.
func (b Build) filled() Build {
	info, ok := debug.ReadBuildInfo()
	if ok {
		recorded := map[string]string{}
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
		if b.Commit == "" && recorded["vcs.revision"] != "" {
			b.Commit = recorded["vcs.revision"]
			if recorded["vcs.modified"] == "true" {
				b.Commit += "-modified"
			}
		}
		b.Date = cmp.Or(b.Date, recorded["vcs.time"])
		if info.Main.Version != "(devel)" {
			b.Version = cmp.Or(b.Version, info.Main.Version)
		}
	}
	return Build{cmp.Or(b.Version, "development"), cmp.Or(b.Commit, "unknown"), cmp.Or(b.Date, "unknown")}
}

func (s *session) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and date of this program", Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			b := s.Build.filled()
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return s.print(object{
				{"version", b.Version}, {"commit", b.Commit}, {"date", b.Date}, {"go", runtime.Version()}, {"platform", platform},
			}, func(p *page) {
				p.line(fmt.Sprintf("holdfast %s, commit %s, date %s, %s, %s", b.Version, b.Commit, b.Date, runtime.Version(), platform))
			})
		},
	}
}
