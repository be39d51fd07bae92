package gateway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/sshgate"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// fullConfig has every setting.
const fullConfig = `name: gw1
listen: 127.0.0.1:0
host-keys: [host]
brokers: brokers
user-ca: ca
known-hosts: [known]
audit: audit.jsonl
allow: [shell, exec]
environment: [LANG]
recordings:
  directory: recordings
  recipients: [age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p]
  min-free-mib: 1
  session-mib: 12
  sync-interval-ms: 1000
  input: always
limits:
  {starting: 1, starting-drop-from: 12, starting-drop-percent: 13, unread-mib: 14, starting-per-address: 2, sessions: 3, channels: 4, tokens: 5, handshake-timeout-ms: 6, dial-timeout-ms: 7, keepalive-interval-ms: 8, drain-timeout-ms: 9, idle-minutes: 10, session-minutes: 11}
`

func TestConfig(t *testing.T) {
	c, err := parseConfig("/etc/holdfast/gateway.yaml", []byte(fullConfig))
	if err != nil {
		t.Fatal(err)
	}
	want := sshgate.Limits{Starting: 1, StartingDropFrom: 12, StartingDropRate: 13, Unread: 14 << 20, StartingPerAddress: 2, Sessions: 3, Channels: 4, Tokens: 5, Handshake: 6 * time.Millisecond, Dial: 7 * time.Millisecond,
		KeepAlive: 8 * time.Millisecond, Drain: 9 * time.Millisecond, Idle: 10 * time.Minute, Total: 11 * time.Minute, Recorded: 12 << 20}
	if c.limits != want || c.may != token.Shell|token.Exec || c.HostKeys[0] != "/etc/holdfast/host" || c.Audit != "/etc/holdfast/audit.jsonl" || c.Recordings.Input.InputPolicy != sshgate.InputAlways {
		t.Errorf("got %+v", c)
	}
}

// TestConfigInput: whose input is recorded, in the words of today and in those of before.
func TestConfigInput(t *testing.T) {
	for text, want := range map[string]sshgate.InputPolicy{
		"input: never": sshgate.InputNever, "input: no-terminal": sshgate.InputWithoutTerminal, "input: always": sshgate.InputAlways,
		"input: true": sshgate.InputAlways, "input: false": sshgate.InputNever, "": sshgate.InputWithoutTerminal,
	} {
		c, err := parseConfig("gateway.yaml", []byte(strings.Replace(fullConfig, "input: always", text, 1)))
		if err != nil || c.Recordings.Input.InputPolicy != want {
			t.Errorf("%q: %v %v, want %v", text, c.Recordings.Input, err, want)
		}
	}
}

// TestConfigRefused: what is wrong is said in the words of the file, all of it at once.
func TestConfigRefused(t *testing.T) {
	for text, wants := range map[string][]string{
		"":                             {"name is missing", "listen is missing", "host-keys is missing", "brokers is missing", "known-hosts is missing", "audit is missing", "recordings.directory is missing"},
		"nam: x":                       {"unknown field"},
		"name: [x]":                    {"a value of another kind belongs here"},
		fullConfig + "allow: [telnet]": {"already defined"},
		strings.Replace(fullConfig, "[shell, exec]", "[]", 1):                   {"allow is empty"},
		strings.Replace(fullConfig, "[shell, exec]", "[telnet]", 1):             {`allow: "telnet" is nothing that a session does`},
		strings.Replace(fullConfig, "age1ql", "age1xx", 1):                      {"recordings.recipients", "age-keygen"},
		strings.Replace(fullConfig, "sessions: 3", "sessions: -3", 1):           {"limits.sessions is -3: write 1 to 1000000"},
		strings.Replace(fullConfig, "input: always", "input: yes", 1):           {"recordings.input is yes: write never, no-terminal or always"},
		strings.Replace(fullConfig, "unread-mib: 14", "unread-mib: 3", 1):       {"limits.unread-mib is 3: write 4"},
		strings.Replace(fullConfig, "drop-percent: 13", "drop-percent: 101", 1): {"limits.starting-drop-percent is 101"},
		strings.Repeat("#", maxFile):                                            {"name is missing"},
	} {
		_, err := parseConfig("gateway.yaml", []byte(text))
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "fileYAML") {
				t.Errorf("%.40q: %v, want %q", text, err, want)
			}
		}
	}
}

// FuzzConfig: no file makes the reader fail.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(fullConfig))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = parseConfig("gateway.yaml", data) })
}

// keygen makes a key with OpenSSH's own program.
func keygen(t *testing.T, file string) {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed (Debian package openssh-client)")
	}
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// folder makes a gateway's folder as the documentation says.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"host", "ca", "broker"} {
		keygen(t, filepath.Join(dir, name))
	}
	public, err := os.ReadFile(filepath.Join(dir, "broker.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "brokers"), "# the brokers\n\n"+string(public))
	write(t, filepath.Join(dir, "known"), "")
	write(t, filepath.Join(dir, "gateway.yaml"), fullConfig)
	return dir
}

func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command("test")
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs(args)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// TestCheck: a folder as the documentation says is good, and what is missing or loose in it is named with its remedy.
func TestCheck(t *testing.T) {
	dir := folder(t)
	check := func() error {
		_, err := command(t, "--check", "--config", filepath.Join(dir, "gateway.yaml"))
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   string
		breaks func() error
	}{
		{"may be read by others", func() error { return os.Chmod(filepath.Join(dir, "ca"), 0o644) }},
		{"make one: ssh-keygen", func() error { return os.Remove(filepath.Join(dir, "host")) }},
		{"known: no such file", func() error { return os.Remove(filepath.Join(dir, "known")) }},
		{"brokers:1 is not a public key", func() error { return os.WriteFile(filepath.Join(dir, "brokers"), []byte("x"), 0o600) }},
	} {
		if err := c.breaks(); err != nil {
			t.Fatal(err)
		}
		if err := check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestToken: a token that is made by hand is good for the gateway that knows the key.
func TestToken(t *testing.T) {
	dir := folder(t)
	args := []string{"token", "--key", filepath.Join(dir, "broker"), "--gateway", "gw1", "--who", "alice", "--host", "DB1", "--account", "postgres"}
	text, err := command(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	known, err := openBrokers(filepath.Join(dir, "brokers"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	g, err := token.Parse(strings.TrimSpace(text), known.known())
	if err != nil || g.Check("gw1", time.Now()) != nil || g.Who != "alice" || g.Target.String() != "db1:22" || g.May != token.Shell|token.Exec|token.SFTP || g.Rule != "made by hand" {
		t.Errorf("%+v, %v", g, err)
	}
	keygen(t, filepath.Join(dir, "user"))
	public, err := os.ReadFile(filepath.Join(dir, "user.pub"))
	if err != nil {
		t.Fatal(err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		t.Fatal(err)
	}
	text, err = command(t, append(args, "--client-key", filepath.Join(dir, "user.pub"))...)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := token.Parse(strings.TrimSpace(text), known.known()); err != nil || g.ClientKey != sshgate.KeyHash(key) {
		t.Errorf("bound to a key: %+v, %v", g, err)
	}
	if _, err := command(t, append(args, "--client-key", filepath.Join(dir, "broker"))...); err == nil || !strings.Contains(err.Error(), "is not a public key") {
		t.Errorf("bound to no key: %v", err)
	}
	if _, err := command(t, append(args, "--allow", "telnet")...); err == nil || !strings.Contains(err.Error(), "write shell, exec") {
		t.Errorf("got %v", err)
	}
}

// TestTokenForATunnel: of --protocol tcp only what a tunnel has.
func TestTokenForATunnel(t *testing.T) {
	dir := folder(t)
	args := []string{"token", "--key", filepath.Join(dir, "broker"), "--gateway", "gw1", "--who", "alice", "--host", "DB1"}
	with := func(more ...string) []string { return slices.Concat(args, more) }
	text, err := command(t, with("--protocol", "tcp", "--port", "5432")...)
	if err != nil {
		t.Fatal(err)
	}
	known, err := openBrokers(filepath.Join(dir, "brokers"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if g, err := token.Parse(strings.TrimSpace(text), known.known()); err != nil || g.Target.String() != "db1:5432" || g.May != token.Tunnel || g.Account != "" {
		t.Errorf("%+v, %v", g, err)
	}
	for want, more := range map[string][]string{
		"--account is missing":                         args,
		"--port is missing":                            with("--protocol", "tcp"),
		"--account is of --protocol ssh":               with("--protocol", "tcp", "--port", "5432", "--account", "postgres"),
		"--allow is of --protocol ssh":                 with("--protocol", "tcp", "--port", "5432", "--allow", "shell"),
		"--agent is of --protocol ssh":                 with("--protocol", "tcp", "--port", "5432", "--agent"),
		`--protocol "udp": write ssh or tcp`:           with("--protocol", "udp"),
		"a tunnel, and something beside it: of a tunn": with("--account", "postgres", "--allow", "tunnel"),
	} {
		if _, err := command(t, more...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", more[9:], err, want)
		}
	}
}

// TestBrokersChange: a key that is added counts with the next connection, a file that is broken takes none away, and one without keys takes all: they may have been stolen.
func TestBrokersChange(t *testing.T) {
	dir := folder(t)
	keygen(t, filepath.Join(dir, "broker2"))
	var said bytes.Buffer
	b, err := openBrokers(filepath.Join(dir, "brokers"), slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	one, err := os.ReadFile(filepath.Join(dir, "broker.pub"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(dir, "broker2.pub"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text string
		want int
	}{{string(one) + string(two), 2}, {"garbage", 2}, {string(two), 1}, {"# none for now\n", 0}, {string(one), 1}} {
		write(t, b.file, step.text)
		if got := len(b.known()); got != step.want {
			t.Errorf("%d keys after %.20q, want %d", got, step.text, step.want)
		}
	}
	if !strings.Contains(said.String(), "stay as they were") {
		t.Errorf("nothing was said of the broken file: %s", said.String())
	}
}

// TestRun: the process takes connections until it is told to stop.
func TestRun(t *testing.T) {
	dir := folder(t)
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{})
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("takes sessions")) {
			close(ready)
		}
		return len(p), nil
	}), nil))
	done := make(chan error, 1)
	go func() { done <- run(ctx, filepath.Join(dir, "gateway.yaml"), "test", logger) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	if err := run(ctx, filepath.Join(dir, "gateway.yaml"), "test", logger); err == nil || !strings.Contains(err.Error(), "another gateway of this name") {
		t.Errorf("a second one with the same used tokens: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
