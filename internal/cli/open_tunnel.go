package cli

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/client"
)

func (s *session) tunnelCommand() *cobra.Command {
	o := s.newOpener()
	cmd := &cobra.Command{
		Use: "tunnel LISTEN TARGET:PORT", Short: "Reach a TCP port of a target, through a gateway that is alive", Args: arguments("LISTEN", "TARGET:PORT"),
		Long: `Take connections at LISTEN, and carry each to TARGET:PORT through the gateway that a broker chooses: a database, a remote desktop, whatever speaks
TCP. The gateway audits each and records none of what is said. LISTEN is a port of 127.0.0.1, ADDRESS:PORT, the path of a Unix socket (with a '/', and
for you alone), or - for one connection on standard input and output.

Everybody on this machine can connect to a port; a Unix socket is for you alone. When the gateway is lost, its connections end, and the next one is
carried by the next gateway. The command ends when it is interrupted.`,
		Example: "  holdfast tunnel 5432 db1:5432\n  holdfast tunnel ./db.sock db1:5432",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, host, port, err := parseTarget(args[1], true)
			if err != nil {
				return err
			}
			o.request.Target, o.request.Port, o.request.Protocol = host, port, "tcp"
			return o.tunnel(cmd.Context(), args[0])
		},
	}
	o.flags(cmd)
	_ = cmd.Flags().MarkHidden("channels") // a tunnel has no other rights
	hideOutput(cmd)
	return cmd
}

// tunnel is one run of the command: a gateway at a time.
type tunnel struct {
	*opener
	mu      sync.Mutex
	gateway *entered // nil: there is none now
}

func (o *opener) tunnel(ctx context.Context, listen string) error {
	t := &tunnel{opener: o}
	defer t.lost(nil)
	if listen == "-" {
		channel, err := t.through(ctx)
		if err != nil {
			return err
		}
		client.Carry(o.In, o.Out, channel)
		return nil
	}
	if _, err := t.enter(ctx); err != nil { // before anything listens: what is not granted is said at once
		return err
	}
	listener, err := listenTunnel(listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "holdfast: %s leads to %s\n", listener.Addr(), net.JoinHostPort(o.request.Target, strconv.Itoa(int(o.request.Port))))
	return client.Serve(ctx, listener, t.through, func(err error) { fmt.Fprintf(o.Err, "holdfast: %s\n", clean(err.Error())) })
}

func listenTunnel(at string) (net.Listener, error) {
	network := "tcp"
	switch {
	case strings.Contains(at, "/"):
		network = "unix"
		defer syscall.Umask(syscall.Umask(0o177))
	case !strings.Contains(at, ":"):
		if _, err := strconv.ParseUint(at, 10, 16); err != nil {
			return nil, misused("%q is no place to listen: write a port, ADDRESS:PORT, the path of a socket, or -", at)
		}
		at = net.JoinHostPort("127.0.0.1", at)
	}
	listener, err := net.Listen(network, at)
	if err != nil {
		return nil, failed("listening on %s: %v", at, err)
	}
	return listener, nil
}

// enter is the gateway that there is, or a new one.
func (t *tunnel) enter(ctx context.Context) (*entered, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gateway != nil {
		return t.gateway, nil
	}
	t.request.Tried, t.request.Launch = nil, ""
	var e entered
	if err := t.open(ctx, e.enter(t.opener)); err != nil {
		return nil, err
	}
	t.gateway = &e
	go ssh.DiscardRequests(e.requests)
	go func() {
		for n := range e.channels {
			_ = n.Reject(ssh.Prohibited, "holdfast: a tunnel takes nothing")
		}
	}()
	go func() {
		_ = e.conn.Wait()
		t.lost(&e)
	}()
	return &e, nil
}

// lost forgets a gateway; nil means whichever there is, which is left.
func (t *tunnel) lost(e *entered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e == nil && t.gateway != nil {
		_ = t.gateway.conn.Close()
	}
	if e == nil || t.gateway == e {
		t.gateway = nil
	}
}

func (t *tunnel) through(ctx context.Context) (ssh.Channel, error) {
	e, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := client.Dial(e.conn, t.request.Target, uint16(t.request.Port))
	if err != nil {
		return nil, failed("%v", err)
	}
	return channel, nil
}

var _ client.Through = (*tunnel)(nil).through
