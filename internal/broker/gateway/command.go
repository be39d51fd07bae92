package gateway

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// DefaultConfig is where the configuration file is.
const DefaultConfig = "/etc/holdfast/gateway.yaml"

// gcPercent lets the heap grow further between collections: what is alive is little, and each packet that is carried leaves something behind.
const gcPercent = 400

// misused is an error of whoever wrote the command line.
type misused string

func (m misused) Error() string { return string(m) }

// ExitCode is the exit code for a wrong command line.
func (misused) ExitCode() int { return 2 }

// Command is `holdfast gateway` of a program of some version.
func Command(version string) *cobra.Command {
	var file, level, format string
	var check bool
	command := &cobra.Command{
		Use:   "gateway",
		Short: "Run an SSH session gateway",
		Long: `Run a session gateway: an SSH server that takes users to targets, and records what they do there.

A user comes with a session token as the user name, and needs nothing but ssh:

  ssh -p 2222 TOKEN@gateway          a shell, a command; sftp, scp and rsync likewise
  ssh -J TOKEN@gateway:2222 target   past the gateway, unrecorded, where the token allows it
  ssh -N -L 5432:db1:5432 -p 2222 TOKEN@gateway   a tunnel to a service of any protocol, unrecorded, with a token for it

The configuration file is described in docs/broker.md. The brokers' keys, the known hosts and, of a fleet, its members and
readers are read again when they change; everything else with the next start. SIGTERM takes no new sessions, lets those under way end, and ends them after the
drain timeout.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			logger, err := newLogger(command.ErrOrStderr(), level, format)
			if err != nil {
				return err
			}
			if check {
				c, err := readConfig(file)
				if err == nil {
					_, err = assemble(c, nil, nil, logger)
				}
				if err == nil {
					err = checkFleet(c, logger)
				}
				return err
			}
			debug.SetGCPercent(gcPercent)
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return run(ctx, file, version, logger)
		},
	}
	flags := command.Flags()
	flags.StringVar(&file, "config", DefaultConfig, "the configuration file")
	flags.BoolVar(&check, "check", false, "read the configuration and all that it names, say what is wrong, and end")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&format, "log-format", "text", "text or json")
	command.AddCommand(tokenCommand(), certificateCommand())
	return command
}

// tokenOptions are the flags of `holdfast gateway token`.
type tokenOptions struct {
	key, gateway, who, protocol, host, account string
	clientKey                                  string
	port                                       uint16
	allow                                      []string
	agent                                      bool
	validity, limit                            time.Duration
}

// tokenCommand makes a token by hand.
func tokenCommand() *cobra.Command {
	var o tokenOptions
	command := &cobra.Command{
		Use:   "token",
		Short: "Make a session token by hand",
		Long: `Make a session token by hand, with a broker's private key, to try a gateway or to get in while no broker is up. It is written to
standard output and is good for one session. Whoever holds the key can make any token, so keep it where only the broker reads it.`,
		Example: `  ssh -p 2222 $(holdfast gateway token --key broker --gateway gw1 --who alice --host db1 --account postgres)@gateway
  ssh -N -L 5432:db1:5432 -p 2222 $(holdfast gateway token --key broker --gateway gw1 --who alice --protocol tcp --host db1 --port 5432)@gateway`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.settle(command.Flags().Changed); err != nil {
				return err
			}
			text, err := o.sign(time.Now())
			if err == nil {
				_, err = fmt.Fprintln(command.OutOrStdout(), text)
			}
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.key, "key", "", "the broker's private key, as ssh-keygen -t ed25519 makes it")
	flags.StringVar(&o.gateway, "gateway", "", "name of the gateway that may accept it")
	flags.StringVar(&o.who, "who", "", "who asks for it, for the audit log")
	flags.StringVar(&o.protocol, "protocol", "ssh", "ssh, or tcp for a tunnel to the target's port, whatever is spoken there")
	flags.StringVar(&o.host, "host", "", "the target, by name or address")
	flags.Uint16Var(&o.port, "port", 22, "the target's port; tcp has no default")
	flags.StringVar(&o.account, "account", "", "the account on the target; of ssh only")
	flags.StringSliceVar(&o.allow, "allow", []string{"shell", "exec", "sftp"}, "what may be done: "+strings.Join(token.AllChannels.Names(), ", "))
	flags.BoolVar(&o.agent, "agent", false, "log in at the target with the user's forwarded agent, not with a certificate")
	flags.StringVar(&o.clientKey, "client-key", "", "file with a public key that the user has to prove; without it whoever sees the token may use it first")
	flags.DurationVar(&o.validity, "validity", 2*time.Minute, "how long it may wait for its session")
	flags.DurationVar(&o.limit, "session-limit", 0, "how long the session may last; 0 leaves it to the gateway")
	for _, name := range []string{"key", "gateway", "who", "host"} {
		_ = command.MarkFlagRequired(name)
	}
	return command
}

// settle makes of the protocol what the token has to say, and refuses what does not belong to it. Given tells whether a flag was on the command line.
func (o *tokenOptions) settle(given func(flag string) bool) error {
	switch o.protocol {
	case "ssh":
		if !given("account") {
			return misused("--account is missing: the account on the target")
		}
	case "tcp":
		for _, flag := range []string{"account", "allow", "agent"} {
			if given(flag) {
				return misused("--" + flag + " is of --protocol ssh: a tunnel is passed on unread, so that the gateway neither logs in at the target nor knows what is done there")
			}
		}
		if !given("port") {
			return misused("--port is missing: the port of the target's service, as 5432")
		}
		o.allow = token.Tunnel.Names()
	default:
		return misused(fmt.Sprintf("--protocol %q: write ssh or tcp", o.protocol))
	}
	return nil
}

func (o tokenOptions) sign(now time.Time) (string, error) {
	may, err := token.ParseChannels(o.allow)
	if err != nil {
		return "", misused("--allow: " + err.Error())
	}
	key, err := readBrokerKey(o.key)
	if err != nil {
		return "", err
	}
	grant := token.Grant{
		Gateway: o.gateway, Who: o.who, Target: token.Target{Host: strings.ToLower(o.host), Port: o.port}, Account: o.account, May: may,
		Issued: now, Expires: now.Add(o.validity), SessionLimit: o.limit, Rule: "made by hand",
	}
	if o.agent {
		grant.Proof = token.ForwardedAgent
	}
	if o.clientKey != "" {
		if grant.ClientKey, err = readClientKey(o.clientKey); err != nil {
			return "", err
		}
	}
	if _, err := rand.Read(grant.ID[:]); err != nil {
		return "", err
	}
	return token.Sign(grant, key)
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
