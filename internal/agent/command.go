package agent

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/guard"
)

// DefaultDir is where an agent keeps what it must not lose.
const DefaultDir = "/var/lib/holdfast"

// memoryLimit makes the collector work harder before an agent with an embedded store grows beyond what a node should spare.
const memoryLimit = 512 << 20

// Command is `holdfast agent`: one process a node. Version is what the agent reports of itself.
func Command(version string) *cobra.Command {
	options := Options{Version: version}
	var level, format string
	var background bool
	var tell int
	command := &cobra.Command{
		Use:   "agent",
		Short: "Run this node",
		Long: `Run this node of the cluster: keep its addresses, answer names on the service addresses that it hosts, and host a member of
the store if it is a voter. One agent runs on a node; systemd keeps it running.

It needs the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE, and a directory that "holdfast init" made.
SIGTERM hands over what the node holds and stops.

With --replace it takes the place of the agent that runs: sockets, incarnation and leases are handed over, and nothing moves. Give it
the flags that the running one has. If it fails, the running one goes on, and this one says why. Where no agent runs it starts as
usual; one that is too old to be replaced is stopped as SIGTERM does, so that what it holds moves, and started anew.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			logger, err := newLogger(command.ErrOrStderr(), level, format)
			if err != nil {
				return err
			}
			options.Logger = logger
			if background {
				return runInBackground()
			}
			if tell > 0 {
				options.Took = func() { tellParent(tell) }
			}
			debug.SetMemoryLimit(memoryLimit)
			makePlaces()
			if err := raisePriority(); err != nil {
				logger.Info("running at ordinary priority: an overloaded node may be taken for dead; CAP_SYS_NICE allows a higher one", "error", err)
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return Run(ctx, options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Dir, "dir", DefaultDir, "directory with this node's identity, store and last configuration")
	flags.StringVar(&options.Socket, "socket", api.DefaultSocket, "path of the local API's socket")
	flags.StringVar(&options.SocketGroup, "socket-group", "", "group that may use the socket besides root")
	flags.StringVar(&options.GuardSocket, "guard", guard.DefaultSocket, "path of the socket of this node's guard; empty to work without one")
	flags.StringVar(&options.BrokerFile, "broker-config", settings.DefaultFile, "file with the settings of this node's broker; where there is none, it makes no session tokens")
	flags.StringVar(&options.MetricsAddress, "metrics", "", "address and port for Prometheus besides the socket, such as 127.0.0.1:9753 (default: none)")
	flags.BoolVar(&options.Replace, "replace", false, "take the place of the agent that runs, so that nothing moves")
	flags.BoolVar(&background, "background", false, "return once the agent serves in the background, as a unit's ExecReload= needs it")
	flags.IntVar(&tell, "tell", 0, "descriptor to write to when the agent serves")
	_ = flags.MarkHidden("tell")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&format, "log-format", "text", "text or json")
	return command
}

// newLogger writes structured lines to w.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil {
		return nil, misused(fmt.Sprintf("--log-level %q: write debug, info, warn or error", level))
	}
	options := &slog.HandlerOptions{Level: parsed}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, misused(fmt.Sprintf("--log-format %q: write text or json", format))
}

// misused is an error of whoever wrote the command line.
type misused string

func (m misused) Error() string { return string(m) }

// ExitCode is the code with which the program ends.
func (misused) ExitCode() int { return 2 }
