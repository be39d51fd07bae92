package cli

import (
	"context"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker/client"
)

func (s *session) sshCommand() *cobra.Command {
	o := s.newOpener()
	cmd := &cobra.Command{
		Use: "ssh [--broker BROKER] [OPTIONS OF SSH] [ACCOUNT@]TARGET [COMMAND...]", Short: "Open a session on a target, through a gateway that is alive",
		Long: `Open a session on TARGET with your own ssh, through the gateway that a broker chooses. A gateway that does not answer within three seconds is
reported to the broker, and the next best is taken; so is the next broker, where several are given.

Options of one letter are ssh's own, and go before TARGET as with ssh; -l and -p are the account and the port of the target. Your configuration of ssh
counts, but for how the gateway is reached and known. The session token is neither among the arguments nor in the environment, and is bound to a key that
is made for this one session. The exit code is that of ssh.`,
		Example: "  holdfast ssh postgres@db1\n  holdfast ssh -L 8080:localhost:80 anna@web1 uptime\n  rsync -e 'holdfast ssh' -a data/ anna@web1:data/",
		// The options of ssh are read as ssh reads them, and not as ours.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			line, err := splitSSH(cmd, args)
			if err != nil || line.help {
				if line.help {
					return cmd.Help()
				}
				return err
			}
			return o.ssh(cmd.Context(), line)
		},
	}
	o.flags(cmd)
	hideOutput(cmd)
	return cmd
}

// sshLine is a command line of ssh, taken apart.
type sshLine struct {
	help    bool
	options []string // for ssh as they are
	account string
	port    uint32
	target  string // as it was written, without the account
	command []string
}

// ssh opens the session, and runs ssh in it.
func (o *opener) ssh(ctx context.Context, line sshLine) error {
	o.request.Target, o.request.Account, o.request.Port, o.request.Protocol = line.target, line.account, line.port, "ssh"
	program := client.Program{Options: line.options, Target: line.target, Command: line.command}
	err := o.open(ctx, func(ctx context.Context, g client.Gateway, granted *pb.GrantedSession) (err error) {
		program.Gateway, program.Key, program.ForwardAgent = g, o.key, granted.GetForwardedAgent()
		program.Address, err = client.Knock(ctx, g)
		return err
	})
	if err != nil {
		return err
	}
	code, err := program.Run()
	if err != nil {
		return failed("%v", err)
	}
	if code != 0 {
		return &failure{code, ""}
	}
	return nil
}

// Options of ssh(1) that take a value, and those that would lead past the gateway.
const (
	sshValues = "BbcDEeFIiJLlmOoPpQRSWw"
	sshBarred = "FJSMO"
)

// sshOurs are settings of ssh that say how the gateway is reached and known.
var sshOurs = []string{
	"user", "hostname", "port", "hostkeyalias", "userknownhostsfile", "globalknownhostsfile", "knownhostscommand", "stricthostkeychecking", "proxycommand", "proxyjump",
	"proxyusefdpass", "controlmaster", "controlpath", "identitiesonly", "pubkeyauthentication", "preferredauthentications", "canonicalizehostname",
}

// splitSSH takes a command line of ssh apart: our own options, which begin with "--", those of ssh, the target, and what is run there.
func splitSSH(cmd *cobra.Command, args []string) (line sshLine, err error) {
	cmd.InheritedFlags() // so that Flags has those of the root as well
	flags := cmd.Flags()
	for len(args) > 0 {
		word := args[0]
		switch {
		case word == "--help" || word == "-h":
			return sshLine{help: true}, nil
		case word == "--":
			args = args[1:]
		case strings.HasPrefix(word, "--"):
			name, value, inline := strings.Cut(word[2:], "=")
			flag := flags.Lookup(name)
			if flag == nil {
				return line, misused("holdfast ssh has no option --%s; options of ssh have one letter", name)
			}
			if args = args[1:]; !inline {
				if len(args) == 0 {
					return line, misused("--%s needs a value", name)
				}
				value, args = args[0], args[1:]
			}
			if err := flags.Set(name, value); err != nil {
				return line, misused("--%s %q: %v", name, value, err)
			}
			continue
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if args, err = line.option(word, args[1:]); err != nil {
				return line, err
			}
			continue
		}
		if len(args) == 0 {
			break
		}
		return line, line.destination(args)
	}
	return line, misused("holdfast ssh needs a target: write ACCOUNT@TARGET")
}

// option takes one word of options of ssh, such as -v, -tt, -p 22 or -p22.
func (l *sshLine) option(word string, rest []string) ([]string, error) {
	for i := 1; i < len(word); i++ {
		letter := word[i : i+1]
		if strings.Contains(sshBarred, letter) {
			return nil, misused("-%s does not go with holdfast ssh, which says itself how the gateway is reached", letter)
		}
		if !strings.Contains(sshValues, letter) {
			l.options = append(l.options, "-"+letter)
			continue
		}
		value := word[i+1:]
		if value == "" {
			if len(rest) == 0 {
				return nil, misused("-%s needs a value", letter)
			}
			value, rest = rest[0], rest[1:]
		}
		return rest, l.valued(letter, value)
	}
	return rest, nil
}

func (l *sshLine) valued(letter, value string) error {
	switch letter {
	case "l":
		l.account = value
		return nil
	case "p":
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil || port == 0 {
			return misused("-p %q is no port", value)
		}
		l.port = uint32(port)
		return nil
	case "o":
		name := strings.ToLower(strings.TrimSpace(value))
		if i := strings.IndexAny(name, " \t="); i >= 0 {
			name = name[:i]
		}
		if slices.Contains(sshOurs, name) {
			return misused("-o %s does not go with holdfast ssh, which sets that itself; -l is the account on the target, and -p its port", value)
		}
	}
	l.options = append(l.options, "-"+letter, value)
	return nil
}

// destination reads the target and the command behind it. Without an account it is the user's own name, as with ssh.
func (l *sshLine) destination(args []string) error {
	account, host, port, err := parseTarget(args[0], false)
	if err != nil {
		return err
	}
	l.target, l.command = host, args[1:]
	if account != "" {
		l.account = account
	}
	if port != 0 {
		l.port = port
	}
	if l.account == "" {
		me, err := user.Current()
		if err != nil {
			return failed("it is not known who you are on this machine; name the account on the target: ACCOUNT@%s", host)
		}
		l.account = me.Username
	}
	return nil
}
