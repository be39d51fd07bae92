package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The ports of the namespace.
const (
	targetPort  = 2201
	jumpPort    = 2202
	gatewayPort = 2203
)

// place is a target, a jump host and a gateway, with their keys, in a folder.
type place struct {
	folder, holdfast, account string
	processes                 []*exec.Cmd
}

func run(name string, arguments ...string) error {
	if said, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, said)
	}
	return nil
}

// prepare makes keys and configurations, and starts the servers.
func prepare(ctx context.Context, holdfast string) (*place, error) {
	folder, err := os.MkdirTemp("", "sessions-")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	p := &place{folder: folder, holdfast: holdfast, account: me.Username}
	if err := errors.Join(p.write(), p.start(ctx)); err != nil {
		p.clear()
		return nil, err
	}
	return p, nil
}

func (p *place) path(name string) string { return filepath.Join(p.folder, name) }

// write makes the files.
func (p *place) write() error {
	for _, key := range []string{"host", "ca", "broker", "user"} {
		if err := run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", p.path(key)); err != nil {
			return err
		}
	}
	host, err := os.ReadFile(p.path("host.pub"))
	if err != nil {
		return err
	}
	var known strings.Builder
	for _, port := range []int{targetPort, jumpPort, gatewayPort} {
		fmt.Fprintf(&known, "[127.0.0.1]:%d %s", port, host)
	}
	client := fmt.Sprintf(`UserKnownHostsFile %[1]s/known
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
IdentityAgent none
IdentityFile %[1]s/user
IdentitiesOnly yes
LogLevel ERROR
Ciphers aes128-gcm@openssh.com
KexAlgorithms curve25519-sha256
HostName 127.0.0.1
Host jumphost
  Port %[2]d
  User %[3]s
Host gateway
  Port %[4]d
Host target
  Port %[5]d
  User %[3]s
`, p.folder, jumpPort, p.account, gatewayPort, targetPort)
	gateway := fmt.Sprintf(`name: gw1
listen: 127.0.0.1:%d
host-keys: [host]
user-ca: ca
brokers: broker.pub
known-hosts: [known]
audit: audit.jsonl
recordings: {directory: recordings, min-free-mib: 64, session-mib: 4096}
`, gatewayPort)
	for name, text := range map[string]string{"known": known.String(), "client": client, "gateway.yaml": gateway, "target": p.daemon(targetPort), "jump": p.daemon(jumpPort)} {
		if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// daemon is the configuration of an sshd.
func (p *place) daemon(port int) string {
	return fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %[2]s/host
TrustedUserCAKeys %[2]s/ca.pub
AuthorizedKeysFile %[2]s/user.pub
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 100
LogLevel ERROR
`, port, p.folder)
}

// start starts the servers and waits until they listen.
func (p *place) start(ctx context.Context) error {
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it where root runs it
		return err
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	for port, argv := range map[int][]string{
		targetPort: {sshd, "-D", "-e", "-f", p.path("target")}, jumpPort: {sshd, "-D", "-e", "-f", p.path("jump")},
		gatewayPort: {p.holdfast, "gateway", "--config", p.path("gateway.yaml"), "--log-level", "error"},
	} {
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return err
		}
		p.processes = append(p.processes, c)
		if err := listens(ctx, port); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}

// listens waits until somebody does on a port.
func listens(ctx context.Context, port int) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// clear ends the servers and removes the folder.
func (p *place) clear() {
	for _, c := range p.processes {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	_ = os.RemoveAll(p.folder)
}

// token makes one that allows something.
func (p *place) token(allow string) (string, error) {
	c := exec.Command(p.holdfast, "gateway", "token", "--key", p.path("broker"), "--gateway", "gw1", "--who", "bench", "--host", "127.0.0.1",
		"--port", fmt.Sprint(targetPort), "--account", p.account, "--allow", allow)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("making a token: %w: %s", err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// A way is how a client gets to the target: the arguments of ssh up to the command. What they need is made before time is taken.
type way struct {
	name      string
	arguments func(*place) ([]string, error)
}

var ways = []way{
	{"direct", func(*place) ([]string, error) { return []string{"target"}, nil }},
	{"gateway", func(p *place) ([]string, error) {
		t, err := p.token("exec,shell")
		return []string{"-l", t, "gateway"}, err
	}},
	{"jump host", func(*place) ([]string, error) { return []string{"-J", "jumphost", "target"}, nil }},
	{"gateway as jump host", func(p *place) ([]string, error) {
		t, err := p.token("jump")
		return []string{"-J", t + "@gateway", "target"}, err
	}},
}
