package client

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// Program is a run of the user's own ssh.
type Program struct {
	Gateway      Gateway
	Address      string // of the gateway, where it answered
	Key          *Key
	ForwardAgent bool     // the gateway logs in at the target with the user's agent
	Options      []string // of ssh
	Target       string   // as the user wrote it
	Command      []string
	Folder       string // where the folder of the session is made; empty: the system's for what is temporary
}

// Run runs ssh and returns its exit code. It takes the place of ssh for whoever started this process: signals reach ssh, and when it is stopped, as by
// ~^Z, this process stops as well.
func (p *Program) Run() (int, error) {
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		return 0, fmt.Errorf("OpenSSH's client is needed (Debian package openssh-client): %w", err)
	}
	folder, err := os.MkdirTemp(p.Folder, "holdfast-ssh-") // with mode 0700
	if err != nil {
		return 0, fmt.Errorf("making the folder of the session: %w", err)
	}
	defer os.RemoveAll(folder)
	if err := p.write(folder); err != nil {
		return 0, err
	}
	arguments := append([]string{"ssh", "-F", filepath.Join(folder, "config")}, p.Options...)
	arguments = append(append(arguments, "--", p.Target), p.Command...)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	child, err := os.StartProcess(ssh, arguments, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", ssh, err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGINT && s != syscall.SIGQUIT { // the terminal sends these to ssh itself
					_ = child.Signal(s)
				}
			case <-done:
				return
			}
		}
	}()
	return follow(child.Pid)
}

// follow waits for a child and stops when it does.
func follow(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("waiting for ssh: %w", err)
		case status.Stopped():
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
			_ = unix.Kill(pid, unix.SIGCONT) // this process goes on, and so does ssh
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		case status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

// write writes what ssh reads: the token as the user name, the gateway's host keys, and the key of the session. The user's own configuration follows, and
// what is set here stands before it, since of each setting the first one counts.
func (p *Program) write(folder string) error {
	block, err := ssh.MarshalPrivateKey(p.Key.private, "holdfast")
	if err != nil {
		return err
	}
	keys, err := p.Gateway.keys()
	if err != nil {
		return err
	}
	if err := p.plain(); err != nil {
		return err
	}
	alias := "holdfast-gateway"
	var known strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&known, "%s %s", alias, ssh.MarshalAuthorizedKey(key))
	}
	agent := ""
	if p.ForwardAgent {
		agent = "\tForwardAgent yes\n"
	}
	path := func(name string) string { return strings.ReplaceAll(filepath.Join(folder, name), "%", "%%") }
	config := fmt.Sprintf(`IgnoreUnknown KnownHostsCommand
Host *
	HostName %s
	Port %d
	User %s
	HostKeyAlias %s
	UserKnownHostsFile %[5]q
	GlobalKnownHostsFile none
	KnownHostsCommand none
	StrictHostKeyChecking yes
	UpdateHostKeys no
	VerifyHostKeyDNS no
	IdentityFile %[6]q
	IdentitiesOnly yes
	PreferredAuthentications publickey
	PubkeyAuthentication yes
	ProxyCommand none
	ControlMaster no
	ControlPath none
	CanonicalizeHostname no
%[7]s	Include ~/.ssh/config
	Include /etc/ssh/ssh_config
`, p.Address, p.Gateway.Port, p.Gateway.Token, alias, path("known_hosts"), path("key"), agent)
	for name, text := range map[string]string{"key": string(pem.EncodeToMemory(block)), "known_hosts": known.String(), "config": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the session's configuration for ssh: %w", err)
		}
	}
	return nil
}

// maxWord bounds what a broker says of a gateway that becomes a word of ssh's configuration, in bytes.
const maxWord = 4096

// plain says what of a broker's answer is no single word. In a line of ssh's configuration more than one would be settings, and some of those run programs.
func (p *Program) plain() error {
	for _, word := range []struct{ what, text, may string }{
		{"session token", p.Gateway.Token, letters + "-_."}, {"address of the gateway", p.Address, letters + "-_.:%"},
	} {
		if word.text == "" || len(word.text) > maxWord || word.text[0] == '-' || strings.Trim(word.text, word.may) != "" {
			return fmt.Errorf("the broker's answer cannot be used: its %s is %.60q", word.what, word.text)
		}
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// Remote is a connection to a broker on another machine, over the user's own ssh, so that whatever ssh can do to log in and to know a host is done. Where is
// [USER@]HOST, and port may be empty.
func Remote(where, port, subsystem string, errs io.Writer) (net.Conn, error) {
	arguments := []string{"-T", "-x", "-a", "-o", "ConnectTimeout=5", "-o", "ClearAllForwardings=yes", "-o", "ControlPath=none", "-o", "RemoteCommand=none", "-o", "RequestTTY=no"}
	if port != "" {
		arguments = append(arguments, "-p", port)
	}
	command := exec.Command("ssh", append(arguments, "-s", "--", where, subsystem)...) //nolint:gosec // where comes behind "--", and is what the user wrote
	command.Stderr = errs
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting ssh to the broker %s: %w", where, err)
	}
	return &remote{stdio{out, in}, command}, nil
}

// remote ends ssh when it is closed.
type remote struct {
	stdio
	command *exec.Cmd
}

// remoteEnds is how long ssh gets to end by itself.
const remoteEnds = 2 * time.Second

func (r *remote) Close() error {
	_ = r.stdio.Writer.(io.Closer).Close()
	late := time.AfterFunc(remoteEnds, func() { _ = r.command.Process.Kill() })
	defer late.Stop()
	_ = r.command.Wait() // whatever it ends with, it is over
	return nil
}
