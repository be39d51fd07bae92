package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// Client is what the commands need of a connection to an agent.
type Client interface {
	holdfastv1connect.NodeClient
	holdfastv1connect.BrokerClient
	Close()
}

// Deps is everything from outside that the commands use.
type Deps struct {
	In          io.Reader
	Out, Err    io.Writer
	InTerminal  bool // In is a terminal: a person can be asked
	OutTerminal bool // Out is a terminal: colours, and top redraws
	ErrTerminal bool // Err is a terminal: progress
	Environment func(name string) string
	Now         func() time.Time
	Dial        func(socket string) Client // nil: the agent behind the Unix socket
	Build       Build
	// Size works out how evenly numbers of addresses and nodes carry losses; it needs no agent. nil: the agent does.
	Size func(*holdfastv1.PoolSizeRequest) (*holdfastv1.PoolSizeResponse, error)
	// Commands of other packages that become subcommands: agent and lab.
	Commands []*cobra.Command
}

// Run runs one command line (without the program's name) and returns the exit code.
func Run(ctx context.Context, deps Deps, args []string) int {
	if deps.Dial == nil {
		deps.Dial = func(socket string) Client { return api.NewLocalClient(socket) }
	}
	s := &session{Deps: deps, format: formatTable}
	root := s.commandTree()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil && s.misuse != nil {
		command, err = s.askedFor, s.misuse
	}
	code := exitCode(err)
	if err == nil {
		return code
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		fmt.Fprintf(deps.Err, "holdfast: %s\n", text)
	}
	if code == exitUsage && command != nil {
		fmt.Fprintf(deps.Err, "See '%s --help'.\n", command.CommandPath())
	}
	return code
}

// session is one command line: what came from outside and the flags that every command has.
type session struct {
	Deps
	socket string
	format format

	misuse   error          // what was wrong with a question for help, which cobra's hook cannot return
	askedFor *cobra.Command // the nearest command to it that exists
}
