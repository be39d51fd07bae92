package guard

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/nft"
)

// Command is `holdfast guard`: one process a node, besides the agent.
func Command() *cobra.Command {
	options := Options{}
	command := &cobra.Command{
		Use:   "guard",
		Short: "Watch over this node's agent, and silence the node when it is dead or late",
		Long: `Watch over this node's agent. The agent hands it the moment at which its right to hold addresses runs out. When that
moment comes, or the agent dies, the guard silences every address of the cluster that moves at once, by a packet filter of its
own, and takes them off the interfaces. Run it in a unit of its own, started before the agent (holdfast-guard.service), so that what
ends the agent does not end the guard.

It needs the capability CAP_NET_ADMIN; with CAP_SYS_NICE and CAP_IPC_LOCK it runs at real-time priority and in locked memory. Nobody
but root and its own user may talk to it. SIGTERM ends it; the agent works on without it, and says so.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			lines := newLines(command.ErrOrStderr())
			defer lines.close()
			options.Logger = slog.New(slog.NewTextHandler(lines, nil))
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			kernel, err := link.Open()
			if err != nil {
				return fmt.Errorf("opening the kernel's network interface: %w", err)
			}
			defer kernel.Close()
			options.Kernel, options.Ready = kernel, ready
			filter, err := nft.Open()
			if err != nil {
				options.Without = "addresses are not silenced all at once, only taken off one after the other: " + err.Error()
				options.Logger.Warn("no silence at once", "error", err)
			} else {
				defer filter.Close()
				options.Filter = filter
			}
			if err := prepare(); err != nil {
				options.Logger.Info("guarding with less than it could have", "error", err)
			}
			return Serve(ctx, options)
		},
	}
	command.Flags().StringVar(&options.Path, "socket", DefaultSocket, "path of the socket for the agent")
	return command
}

// ready tells systemd that the guard listens (sd_notify(3)). Without systemd it does nothing.
func ready() {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if conn, err := net.Dial("unixgram", socket); err == nil {
		_, _ = conn.Write([]byte("READY=1")) // systemd gives up on a unit that it does not hear from, and says so
		_ = conn.Close()
	}
}
