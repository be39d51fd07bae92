package sshgate

import (
	"fmt"
	"math"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// What the client asks for and what becomes of it. Everything here is a function of its arguments.

// action is what becomes of a request.
type action uint8

const (
	refuse  action = iota // answer no, with a reason that is counted and shown
	ignore                // answer no; that is usual, and nobody needs to hear of it
	forward               // pass it on to the target
	settle                // answer yes; it concerns the gateway alone
)

// verdict is an action with its reason.
type verdict struct {
	do     action
	reason string
	starts string // what begins with it: shell, exec, scp or sftp
	// command is what is run, for the recording.
	command string
}

func no(format string, arguments ...any) verdict {
	return verdict{do: refuse, reason: fmt.Sprintf(format, arguments...)}
}

// rules are what a session may do.
type rules struct {
	may         token.Channels
	proof       token.Proof
	environment []string
}

// request judges a request in a session channel (RFC 4254, section 6). Started tells whether a program runs in it already.
func (r rules) request(kind string, payload []byte, started bool) verdict {
	switch {
	case startsProgram(kind) && started:
		return no("a program runs in this channel already")
	case startsProgram(kind):
		return r.program(kind, payload)
	}
	switch kind {
	case "pty-req":
		if started || !r.may.Has(token.Shell) && !r.may.Has(token.Exec) {
			return no("a terminal is not allowed")
		}
		return verdict{do: forward}
	case "env":
		var variable environmentRequest
		if ssh.Unmarshal(payload, &variable) == nil && !started && r.variable(variable.Name) {
			return verdict{do: forward}
		}
		return verdict{do: ignore}
	case "window-change", "signal", "break", "eow@openssh.com":
		return verdict{do: forward}
	case "auth-agent-req@openssh.com":
		switch {
		case r.may.Has(token.AgentForward):
			return verdict{do: forward}
		case r.proof == token.ForwardedAgent:
			return verdict{do: settle} // the agent is for the gateway, and ends there
		}
		return no("agent forwarding is not allowed")
	case "x11-req":
		if r.may.Has(token.X11) {
			return verdict{do: forward}
		}
		return no("X11 forwarding is not allowed")
	case "keepalive@openssh.com":
		return verdict{do: ignore}
	}
	return no("%.40q is not something that this gateway passes on", kind)
}

// startsProgram tells whether a request starts what the channel is for.
func startsProgram(kind string) bool { return kind == "shell" || kind == "exec" || kind == "subsystem" }

// maxCommand bounds a command, in bytes: what Linux takes as one argument, and what fits into a line of a recording however it is quoted there.
const maxCommand = 128 << 10

// program judges what is to be run.
func (r rules) program(kind string, payload []byte) verdict {
	if kind == "shell" {
		if r.may.Has(token.Shell) {
			return verdict{do: forward, starts: "shell"}
		}
		return no("a shell is not allowed")
	}
	var run textRequest
	if ssh.Unmarshal(payload, &run) != nil {
		return no("the request is malformed")
	}
	if kind == "subsystem" {
		switch {
		case run.Text != "sftp":
			return no("the subsystem %.40q is not one that this gateway passes on", run.Text)
		case r.may.Has(token.SFTP):
			return verdict{do: forward, starts: "sftp", command: "sftp"}
		}
		return no("sftp is not allowed, nor scp, which uses it")
	}
	copies := copiesFiles(run.Text)
	switch {
	case len(run.Text) > maxCommand:
		return no("a command has at most %d KiB", maxCommand>>10)
	case r.may.Has(token.Exec) && copies:
		return verdict{do: forward, starts: "scp", command: run.Text}
	case r.may.Has(token.Exec):
		return verdict{do: forward, starts: "exec", command: run.Text}
	case r.may.Has(token.SCP) && copies:
		return verdict{do: forward, starts: "scp", command: run.Text}
	}
	return no("running a command is not allowed")
}

// copiesFiles tells whether a command is the far side of the old scp and nothing else: scp, options of one letter, -t or -f among them, and a path in which
// a shell would find nothing to run.
func copiesFiles(command string) bool {
	words := strings.Fields(command)
	if len(words) < 3 || words[0] != "scp" || !plainQuoted(command) {
		return false
	}
	direction := false
	for i, w := range words[1:] {
		switch w {
		case "-t", "-f":
			direction = true
		case "-r", "-p", "-v", "-d", "--":
		default:
			return direction && i > 0 && !strings.HasPrefix(w, "-")
		}
	}
	return false
}

// plainQuoted tells whether a shell would find nothing in a command to act upon: such characters stand in single quotes, within which it looks at nothing.
func plainQuoted(command string) bool {
	parts := strings.Split(command, "'")
	if len(parts)%2 == 0 || strings.Contains(command, "\\") { // to some shells it means something within quotes, too
		return false
	}
	for i, part := range parts {
		if i%2 == 0 && strings.ContainsAny(part, "\n\r;&|<>`$()\\!\"#*?[]{}~^") {
			return false
		}
	}
	return true
}

// transfers tells whether a command's output is a transfer's, of which nobody would read the bytes.
func transfers(command string) bool {
	return strings.HasPrefix(command, "rsync --server ") && plainQuoted(command) || copiesFiles(command)
}

// What is recorded of a program's output, and of its input where that is recorded, in bytes.
const (
	everything = math.MaxInt
	// firstOutput is for commands without a terminal. Transfers go that way, and all of them would fill the disk.
	firstOutput = 64 << 10
)

// kept is how much is recorded of a program that begins.
func (v verdict) kept(terminal bool) int {
	switch {
	case v.starts == "sftp": // its names of files are recorded instead
		return 0
	case v.starts == "shell" || terminal:
		return everything
	case v.starts == "exec" && !transfers(v.command):
		return firstOutput
	}
	return 0
}

// variable tells whether a variable may be set on the target.
func (r rules) variable(name string) bool {
	for _, pattern := range r.environment {
		if beginning, open := strings.CutSuffix(pattern, "*"); name == pattern || open && strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}

// route is where a channel of the client goes.
type route uint8

const (
	nowhere       route = iota
	toSession           // a session on the target
	throughTarget       // the target connects further
	toTarget            // to the target itself, past the gateway's eyes: to its sshd, or to the service of a tunnel
)

// channel judges what the client wants to open.
func (r rules) channel(kind string, extra []byte, target token.Target) (where route, what, reason string) {
	switch {
	case r.may.Has(token.Tunnel) && kind != "direct-tcpip":
		return nowhere, "", fmt.Sprintf("this token is for a tunnel to %s, which is no SSH session: connect with ssh -N -L PORT:%s, or with ssh -W %s", target, target, target)
	case kind == "session":
		return toSession, "session", ""
	case kind == "direct-tcpip":
		var to directRequest
		if ssh.Unmarshal(extra, &to) != nil {
			return nowhere, "", "the request is malformed"
		}
		place := fmt.Sprintf("%.255s:%d", printable(to.Host), to.Port)
		switch {
		case r.may.Has(token.Tunnel) && target.Is(to.Host, to.Port):
			return toTarget, "tunnel " + place, ""
		case r.may.Has(token.Jump) && target.Is(to.Host, to.Port):
			return toTarget, "jump " + place, ""
		case r.may.Has(token.LocalForward):
			return throughTarget, "local-forward " + place, ""
		case r.may.Has(token.Jump) || r.may.Has(token.Tunnel):
			return nowhere, "", fmt.Sprintf("this token leads to %s and nowhere else", target)
		case target.Is(to.Host, to.Port):
			return nowhere, "", "connecting past the gateway (ssh -J) is not allowed; connect to the gateway itself"
		}
		return nowhere, "", "port forwarding is not allowed"
	}
	return nowhere, "", "channels of the kind " + fmt.Sprintf("%.40q", kind) + " are not passed on"
}

// global judges a request of the client that belongs to no channel.
func (r rules) global(kind string) verdict {
	switch kind {
	case "tcpip-forward", "cancel-tcpip-forward":
		if r.may.Has(token.RemoteForward) {
			return verdict{do: forward}
		}
		return no("remote port forwarding is not allowed")
	case "no-more-sessions@openssh.com", "keepalive@openssh.com":
		return verdict{do: settle}
	}
	return verdict{do: ignore}
}

// fromTarget judges a channel that the target wants to open to the client.
func (r rules) fromTarget(kind string) (string, bool) {
	switch kind {
	case "forwarded-tcpip":
		return "remote-forward", r.may.Has(token.RemoteForward)
	case "auth-agent@openssh.com":
		return "agent-forward", r.may.Has(token.AgentForward)
	case "x11":
		return "x11", r.may.Has(token.X11)
	}
	return "", false
}

// certificate is what the target may allow: no more than the token does.
func (r rules) certificate() map[string]string {
	allowed := map[string]string{}
	for extension, by := range map[string]token.Channels{
		"permit-pty": token.Shell | token.Exec, "permit-port-forwarding": token.LocalForward | token.RemoteForward,
		"permit-agent-forwarding": token.AgentForward, "permit-X11-forwarding": token.X11,
	} {
		if r.may&by != 0 {
			allowed[extension] = ""
		}
	}
	return allowed
}

// printable makes what a stranger wrote fit for a terminal and a log.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\uFFFD' {
			return '?'
		}
		return r
	}, text)
}

// The payloads of RFC 4254 that the gateway reads. All others are passed on unread, or refused.
type (
	textRequest        struct{ Text string } // exec, subsystem
	environmentRequest struct{ Name, Value string }
	terminalRequest    struct { // pty-req
		Term                                   string
		Columns, Rows, PixelWidth, PixelHeight uint32
		Modes                                  string
	}
	windowRequest struct{ Columns, Rows, PixelWidth, PixelHeight uint32 } // window-change
	directRequest struct {                                                // direct-tcpip
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	exitStatus struct{ Status uint32 }
)
