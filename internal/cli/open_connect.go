package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker/client"
)

func (s *session) connectCommand() *cobra.Command {
	o := s.newOpener()
	known := false
	cmd := &cobra.Command{
		Use: "connect ACCOUNT@TARGET[:PORT]", Short: "Open a session for an ssh that has this as its ProxyCommand", Args: arguments("ACCOUNT@TARGET"),
		Long: `Open a session on a target through the gateway that a broker chooses, and speak SSH on standard input and output, for an ssh (or scp, sftp, rsync,
git) of your own that has this command in its configuration:

  Host *.company.com
      ProxyCommand holdfast broker connect %r@%h:%p
      KnownHostsCommand /usr/bin/holdfast broker connect --known-host %H

This command is the SSH server that your ssh sees; it is the gateway's client, and knows the gateway by the host keys that the broker names. What your
ssh asks for is asked of the gateway, and the gateway knows the target. So your ssh finds one and the same host key for all targets: that of this command,
which is made once for each user. KnownHostsCommand (OpenSSH 8.5 and later) tells your ssh so; without it, it asks once for each target.

'holdfast ssh' needs none of this, and costs less: there your ssh speaks to the gateway itself.`,
		Example: "  ssh -o 'ProxyCommand holdfast broker connect %r@%h:%p' postgres@db1",
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := os.UserHomeDir()
			if err != nil {
				return failed("the folder for the key of this command is not known: %v", err)
			}
			hostKey, err := client.LocalHostKey(filepath.Join(home, ".ssh"))
			if err != nil {
				return failed("%v", err)
			}
			if known {
				_, err := fmt.Fprintf(o.Out, "%s %s", args[0], ssh.MarshalAuthorizedKey(hostKey.PublicKey()))
				return err
			}
			return o.connect(cmd.Context(), args[0], hostKey)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&known, "known-host", false, "write the line of known_hosts by which ssh knows this command, for KnownHostsCommand")
	hideOutput(cmd)
	return cmd
}

func (o *opener) connect(ctx context.Context, text string, hostKey ssh.Signer) error {
	account, host, port, err := parseTarget(text, false)
	if err != nil {
		return err
	}
	if account == "" {
		return misused("%q has no account: write ACCOUNT@TARGET", text)
	}
	o.request.Target, o.request.Account, o.request.Port, o.request.Protocol = host, account, port, "ssh"
	var gateway entered
	if err := o.open(ctx, gateway.enter(o)); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = gateway.conn.Close() })
	return client.Connect(o.In, o.Out, hostKey, gateway.conn, gateway.channels, gateway.requests)
}

// entered is a gateway that has accepted the token.
type entered struct {
	conn     ssh.Conn
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
}

// enter is how a gateway is tried by the commands that speak to it themselves. What it says is passed on to the user.
func (e *entered) enter(o *opener) func(context.Context, client.Gateway, *pb.GrantedSession) error {
	return func(ctx context.Context, g client.Gateway, _ *pb.GrantedSession) (err error) {
		e.conn, e.channels, e.requests, err = client.Enter(ctx, g, o.key, func(text string) { fmt.Fprintln(o.Err, strings.TrimRight(clean(text), "\n")) })
		return err
	}
}
