package sshgate

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// TestExec: a command's output, errors and exit status arrive; what was run is in the recording, and in the audit record that it was.
func TestExec(t *testing.T) {
	b := start(t, startTarget(t), nil)
	got := b.ssh("in\n", b.token(token.Exec), "cat; echo shown; echo complained >&2; exit 7")
	if got.out != "in\nshown\n" || strings.TrimSpace(got.errs) != "complained" || got.code != 7 {
		t.Errorf("got %+v", got)
	}
	record := b.records(audit.Started, audit.Ended)[1]
	if record.Who != "alice" || record.Target != fmt.Sprintf("127.0.0.1:%d", b.target.port) || record.Rule != "loopback" || record.Fitness != "71.5" || record.Outcome != "closed by the client" ||
		record.BytesIn != 3 || record.BytesOut != 20 || fmt.Sprint(record.Channels) != "[exec]" || record.Unrecorded || record.Seconds <= 0 {
		t.Errorf("audited as %+v", record)
	}
	contains(t, "the recording", b.text(record, 0), "shown", "complained", "end of session")
	log, err := os.ReadFile(filepath.Join(b.folder, "audit"))
	if err != nil || bytes.Contains(log, []byte("complained")) {
		t.Errorf("the command is in the audit log: %v", err)
	}
	// The target's own log names the same session.
	contains(t, "the target's log", b.log.String(), "alice via gw1 session "+record.Session)
}

// TestSignalAsExit: a program that dies of a signal is reported so.
func TestSignalAsExit(t *testing.T) {
	b := start(t, startTarget(t), nil)
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	err := s.Run("kill -TERM $$")
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("got %v", err)
	}
}

// TestShell: a terminal of the wanted size, its changes, variables from the list and no others; recorded with all of that, and found again.
func TestShell(t *testing.T) {
	b := start(t, startTarget(t), nil)
	s := b.mustSession(b.mustDial(b.token(token.Shell)))
	for name, want := range map[string]bool{"LC_TEST": true, "SECRET": false} {
		if err := s.Setenv(name, "set"); (err == nil) != want {
			t.Errorf("setting %s: %v", name, err)
		}
	}
	if err := s.RequestPty("xterm", 33, 101, ssh.TerminalModes{ssh.ECHO: 0}); err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shell(); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	until := func(want string) {
		t.Helper()
		for buffer := make([]byte, 4096); !strings.Contains(shown.String(), want); {
			n, err := out.Read(buffer)
			shown.Write(buffer[:n])
			if err != nil {
				t.Fatalf("%v before %q in %q", err, want, shown.String())
			}
		}
	}
	fmt.Fprintln(in, `stty size; echo "x${LC_TEST}x${SECRET}x"`)
	until("33 101")
	until("xsetxx")
	if err := s.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, `stty size; echo need""le`)
	until("40 120")
	until("needle")
	fmt.Fprintln(in, "exit 3")
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 {
		t.Errorf("got %v", err)
	}
	b.stop()
	record := b.records(audit.Started, audit.Ended)[1]
	data, err := os.ReadFile(filepath.Join(b.folder, "recordings", record.Recordings[0]))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, "the recording", string(data), `"width":101,"height":33`, `"r", "120x40"`, `"TERM":"xterm"`, `"title":"alice as `)
	contains(t, "its text", b.text(record, 0), "needle", "40 120")
}

// TestTerminalWithoutSize: a client that does not know the size of its terminal is recorded with the usual one.
func TestTerminalWithoutSize(t *testing.T) {
	b := start(t, startTarget(t), nil)
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	if err := s.RequestPty("xterm", 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Run("true"); err != nil {
		t.Fatal(err)
	}
	entries, err := b.store.List(1, nil)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	r, err := b.store.Find(entries[0].About.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Header.Width != 80 || r.Header.Height != 24 {
		t.Errorf("%dx%d", r.Header.Width, r.Header.Height)
	}
}

// TestFiles: sftp, scp in both of its ways, and rsync carry files unharmed, and the recording names them.
func TestFiles(t *testing.T) {
	b := start(t, startTarget(t), nil)
	here, there := t.TempDir(), t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 100_000)
	local := filepath.Join(here, "local")
	if err := os.WriteFile(local, content, 0o600); err != nil {
		t.Fatal(err)
	}
	same := func(name, file string, r result) {
		t.Helper()
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, content) || r.code != 0 {
			t.Errorf("%s: exit code %d, %d bytes of %d, %v\n%s", name, r.code, len(got), len(content), err, r.errs)
		}
	}
	at := "@127.0.0.1"
	for _, c := range []struct {
		name string
		may  token.Channels
		run  func(token string) result
		file string
	}{
		{"sftp put", token.SFTP, func(tk string) result {
			return b.run("put "+local+" "+there+"/a\nrename "+there+"/a "+there+"/b\n", "sftp", append(b.options("-P"), "-b", "-", tk+at)...)
		}, there + "/b"},
		{"sftp get", token.SFTP, func(tk string) result {
			return b.run("get "+there+"/b "+here+"/c\n", "sftp", append(b.options("-P"), "-b", "-", tk+at)...)
		}, here + "/c"},
		{"scp", token.SFTP, func(tk string) result {
			return b.run("", "scp", append(b.options("-P"), local, tk+at+":"+there+"/d")...)
		}, there + "/d"},
		{"old scp to the target", token.SCP, func(tk string) result {
			return b.run("", "scp", append(b.options("-P"), "-O", local, tk+at+":"+there+"/e")...)
		}, there + "/e"},
		{"old scp from the target", token.SCP, func(tk string) result {
			return b.run("", "scp", append(b.options("-P"), "-O", tk+at+":"+there+"/e", here+"/f")...)
		}, here + "/f"},
		{"rsync", token.Exec, func(tk string) result {
			return b.run("", "rsync", "-e", program(t, "ssh")+" "+strings.Join(b.options("-p"), " "), local, tk+at+":"+there+"/g")
		}, there + "/g"},
	} {
		if c.name == "rsync" {
			if _, err := exec.LookPath("rsync"); err != nil {
				t.Log("rsync is not installed")
				continue
			}
		}
		same(c.name, c.file, c.run(b.token(c.may)))
	}
	b.stop()
	var all strings.Builder
	entries, err := b.store.List(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		r, err := b.store.Find(e.About.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(r.Header.Command + "\n")
		if err := r.Text(&all); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	contains(t, "the recordings", all.String(), "sftp write "+there+"/a", "sftp rename "+there+"/a to "+there+"/b", "sftp read "+there+"/b", "sftp write "+there+"/d", "scp -t "+there+"/e", "scp -f "+there+"/e")
	if strings.Contains(all.String(), "0123456789abcdef") {
		t.Error("the recordings hold what was transferred")
	}
}

// TestRefused: what the token does not allow is refused, and the user reads why.
func TestRefused(t *testing.T) {
	b := start(t, startTarget(t), nil)
	for _, c := range []struct {
		name string
		may  token.Channels
		run  func(token string) result
		says string
	}{
		{"shell", token.Exec, func(tk string) result { return b.ssh("", tk) }, "a shell is not allowed"},
		{"command", token.Shell, func(tk string) result { return b.ssh("", tk, "true") }, "running a command is not allowed"},
		{"a command that looks like scp", token.SCP, func(tk string) result { return b.ssh("", tk, "scp -t /tmp; id") }, "running a command is not allowed"},
		{"sftp", token.Shell, func(tk string) result {
			return b.run("", "sftp", append(b.options("-P"), "-b", "-", tk+"@127.0.0.1")...)
		}, "sftp is not allowed"},
		{"another subsystem", token.AllChannels, func(tk string) result { return b.ssh("", tk, "-s", "netconf") }, `the subsystem "netconf"`},
		{"forwarding", token.Shell, func(tk string) result {
			return b.run("", "ssh", append(b.options("-p"), "-W", "127.0.0.1:1", tk+"@127.0.0.1")...)
		}, "port forwarding is not allowed"},
		{"jumping", token.Shell, func(tk string) result {
			return b.run("", "ssh", append(b.options("-p"), "-W", fmt.Sprintf("127.0.0.1:%d", b.target.port), tk+"@127.0.0.1")...)
		}, "connecting past the gateway (ssh -J) is not allowed"},
		{"jumping elsewhere", token.Jump, func(tk string) result {
			return b.run("", "ssh", append(b.options("-p"), "-W", "127.0.0.2:22", tk+"@127.0.0.1")...)
		}, "and nowhere else"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.run(b.token(c.may))
			if got.code == 0 || !strings.Contains(got.errs, c.says) {
				t.Errorf("got %+v, want %q", got, c.says)
			}
		})
	}
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	if ok, err := s.SendRequest("auth-agent-req@openssh.com", true, nil); ok || err != nil {
		t.Errorf("agent forwarding: %v %v", ok, err)
	}
}

// TestTokens: who has no good token gets no further than the gateway, and reads why.
func TestTokens(t *testing.T) {
	b := start(t, startTarget(t), nil)
	expired, elsewhere, used := b.grant(token.Exec), b.grant(token.Exec), b.token(token.Exec)
	expired.Issued, expired.Expires = time.Now().Add(-3*time.Minute), time.Now().Add(-time.Minute)
	elsewhere.Gateway = "gw2"
	if got := b.ssh("", used, "true"); got.code != 0 {
		t.Errorf("the first use: %+v", got)
	}
	b.records(audit.Started, audit.Ended)
	for name, c := range map[string]struct{ user, says string }{
		"used":       {used, "was used before"},
		"expired":    {b.sign(expired), "expired 1m"},
		"elsewhere":  {b.sign(elsewhere), "for the gateway gw2"},
		"changed":    {used[:50] + "x" + used[51:], "No broker that this gateway knows"},
		"an account": {"root", "takes a session token as the user name"},
	} {
		got := b.ssh("", c.user, "true")
		if got.code != 255 || !strings.Contains(got.errs, c.says) || !strings.Contains(got.errs, "Permission denied") || strings.Count(got.errs, "holdfast:") != 1 {
			t.Errorf("%s: %+v, want %q once", name, got, c.says)
		}
	}
}

// TestBoundToken: a token that is bound to a key needs that key, and is not used up by who has another.
func TestBoundToken(t *testing.T) {
	b := start(t, startTarget(t), nil)
	mine := newKey(t, filepath.Join(b.folder, "mine"))
	newKey(t, filepath.Join(b.folder, "other"))
	g := b.grant(token.Exec)
	g.ClientKey = KeyHash(mine.PublicKey())
	tk := b.sign(g)
	with := func(key string) result {
		return b.run("", "ssh", append([]string{"-i", filepath.Join(b.folder, key)}, append(b.options("-p"), tk+"@127.0.0.1", "echo in")...)...)
	}
	if got := with("other"); got.code != 255 || !strings.Contains(got.errs, "bound to a key") {
		t.Errorf("another key: %+v", got)
	}
	if got := with("mine"); got.code != 0 || got.out != "in\n" {
		t.Errorf("the key: %+v", got)
	}
}

// TestForwardedAgent: where the grant says so the gateway logs in with the user's agent, and the agent ends at the gateway.
func TestForwardedAgent(t *testing.T) {
	b := start(t, startTarget(t), nil)
	newKey(t, filepath.Join(b.folder, "mine"))
	mine, err := os.ReadFile(filepath.Join(b.folder, "mine.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.target.folder, "authorized"), string(mine))
	run := func(flag string) result {
		g := b.grant(token.Exec)
		g.Proof = token.ForwardedAgent
		script := fmt.Sprintf(`ssh-add -q %s/mine && exec ssh %s %s -o IdentityAgent=SSH_AUTH_SOCK %s@127.0.0.1 'echo in; echo "agent=${SSH_AUTH_SOCK}"'`,
			b.folder, flag, strings.ReplaceAll(strings.Join(b.options("-p"), " "), "-o IdentityAgent=none", ""), b.sign(g))
		return b.run("", "ssh-agent", "sh", "-c", script)
	}
	if got := run("-A"); got.code != 0 || got.out != "in\nagent=\n" {
		t.Errorf("with -A: %+v", got)
	}
	if got := run("-a"); got.code != 255 || !strings.Contains(got.errs, "connect with ssh -A") {
		t.Errorf("without: %+v", got)
	}
}

// TestAgentForwarding: with the permission for it the agent is there on the target.
func TestAgentForwarding(t *testing.T) {
	b := start(t, startTarget(t), nil)
	newKey(t, filepath.Join(b.folder, "mine"))
	script := fmt.Sprintf(`ssh-add -q %s/mine && exec ssh -A %s -o IdentityAgent=SSH_AUTH_SOCK %s@127.0.0.1 ssh-add -l`,
		b.folder, strings.ReplaceAll(strings.Join(b.options("-p"), " "), "-o IdentityAgent=none", ""), b.token(token.Exec|token.AgentForward))
	if got := b.run("", "ssh-agent", "sh", "-c", script); got.code != 0 || !strings.Contains(got.out, "ED25519") {
		t.Errorf("got %+v", got)
	}
}

// echo answers on a port of the loopback interface with what it hears.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// TestForwarding: connections from here through the target, and from the target to here.
func TestForwarding(t *testing.T) {
	b := start(t, startTarget(t), nil)
	where := echo(t)
	if got := b.run("over there", "ssh", append(b.options("-p"), "-W", where, b.token(token.LocalForward)+"@127.0.0.1")...); got.out != "over there" {
		t.Errorf("from here: %+v", got)
	}
	b.records(audit.Started, audit.Ended)
	client := b.mustDial(b.token(token.RemoteForward))
	listener, err := client.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	here, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "over here")
	heard := make([]byte, 9)
	if _, err := io.ReadFull(here, heard); err != nil || string(heard) != "over here" {
		t.Errorf("from the target: %q %v", heard, err)
	}
	client.Close()
	records := b.records(audit.Started, audit.Ended, audit.Started, audit.Ended)
	if fmt.Sprint(records[1].Channels) != "[local-forward "+where+"]" || !records[1].Unrecorded || fmt.Sprint(records[3].Channels) != "[remote-forward]" {
		t.Errorf("audited as %v and %v", records[1].Channels, records[3].Channels)
	}
	if client, err := b.dial(b.token(token.Shell)); err != nil {
		t.Error(err)
	} else if _, err := client.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("remote forwarding is allowed without permission")
	} else {
		client.Close()
	}
}

// TestJump: ssh -J goes to the target's own sshd, which sees the client's own key; the gateway needs no access there.
func TestJump(t *testing.T) {
	b := start(t, startTarget(t), nil)
	newKey(t, filepath.Join(b.folder, "mine"))
	mine, err := os.ReadFile(filepath.Join(b.folder, "mine.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(b.target.folder, "authorized"), string(mine))
	write(t, filepath.Join(b.folder, "config"), fmt.Sprintf("UserKnownHostsFile %s/known\nBatchMode yes\nIdentityAgent none\nIdentityFile %s/mine\n", b.folder, b.folder))
	got := b.run("", "ssh", "-F", filepath.Join(b.folder, "config"), "-J", fmt.Sprintf("%s@127.0.0.1:%d", b.token(token.Jump), b.port),
		"-p", fmt.Sprint(b.target.port), b.account+"@127.0.0.1", "echo jumped")
	if got.code != 0 || got.out != "jumped\n" {
		t.Errorf("got %+v", got)
	}
	record := b.records(audit.Started, audit.Ended)[1]
	if len(record.Channels) != 1 || !strings.HasPrefix(record.Channels[0], "jump 127.0.0.1:") || !record.Unrecorded || len(record.Recordings) != 0 {
		t.Errorf("audited as %+v", record)
	}
}

// TestHostKeys: a target that is not the one on record gets nothing, and the user reads what is wrong. The file is read again when it changes.
func TestHostKeys(t *testing.T) {
	behind := startTarget(t)
	b := start(t, behind, nil)
	known := filepath.Join(b.folder, "targets")
	at := fmt.Sprintf("[127.0.0.1]:%d ", behind.port)
	other := newKey(t, "")
	for _, c := range []struct{ name, known, says string }{
		{"changed", at + authorized(other), "has changed: it shows ssh-ed25519 " + ssh.FingerprintSHA256(behind.hostKey.PublicKey())},
		{"unknown", "elsewhere " + authorized(behind.hostKey), "no host key is on record"},
		{"revoked", at + authorized(behind.hostKey) + "@revoked * " + authorized(behind.hostKey), "is revoked"},
		{"no certificate", "@cert-authority * " + authorized(other) + "@cert-authority [127.0.0.1]:* " + authorized(other) + "@cert-authority " + at + authorized(other), "no way in common to prove"},
		{"known", at + authorized(behind.hostKey), ""},
	} {
		write(t, known, c.known)
		got := b.ssh("", b.token(token.Exec), "echo in")
		if c.says == "" && (got.code != 0 || got.out != "in\n") || c.says != "" && (got.code != 255 || got.out != "" || !strings.Contains(got.errs, c.says)) {
			t.Errorf("%s: %+v, want %q", c.name, got, c.says)
		}
	}
}

// TestHostCertificate: a target proves itself by a certificate of an authority that is on record.
func TestHostCertificate(t *testing.T) {
	ca := newKey(t, "")
	folder := t.TempDir()
	host := newKey(t, filepath.Join(folder, "host2"))
	certificate := &ssh.Certificate{Key: host.PublicKey(), CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: ssh.CertTimeInfinity}
	if err := certificate.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "host2-cert.pub"), string(ssh.MarshalAuthorizedKey(certificate)))
	behind := startTarget(t, "HostKey "+folder+"/host2", "HostCertificate "+folder+"/host2-cert.pub")
	b := start(t, behind, nil)
	write(t, filepath.Join(b.folder, "targets"), fmt.Sprintf("@cert-authority [127.0.0.1]:%d %s", behind.port, authorized(ca)))
	if got := b.ssh("", b.token(token.Exec), "echo in"); got.out != "in\n" {
		t.Errorf("got %+v", got)
	}
}
