package sshgate

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// newKey makes an SSH key, and writes its private half to a file if one is named.
func newKey(t testing.TB, file string) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	if file != "" {
		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(pem.EncodeToMemory(block)))
		write(t, file+".pub", authorized(signer))
	}
	return signer
}

func authorized(key ssh.Signer) string { return string(ssh.MarshalAuthorizedKey(key.PublicKey())) }

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// program finds a program of OpenSSH or skips.
func program(t testing.TB, name string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(candidate); err == nil {
			return found
		}
	}
	t.Skipf("%s is not installed (Debian packages openssh-server, openssh-client, rsync)", name)
	return ""
}

// target is a real sshd on the loopback interface, for the account that runs the tests.
type target struct {
	folder, account string
	port            uint16
	hostKey         ssh.Signer
	userCA          ssh.Signer
	log             *lockedBuffer
}

// lockedBuffer is a buffer that goroutines share.
type lockedBuffer struct {
	lock sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.Buffer.String()
}

func startTarget(t testing.TB, more ...string) *target {
	t.Helper()
	sshd := program(t, "sshd")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	accounts, _ := os.ReadFile("/etc/passwd") // where there is none, sshd says what is wrong
	for line := range strings.Lines(string(accounts)) {
		if strings.HasPrefix(line, me.Username+":") && strings.HasSuffix(strings.TrimSpace(line), "nologin") {
			t.Skipf("sshd does not let the account %s in, which has no shell", me.Username)
		}
	}
	if me.Uid == "0" {
		if _, err := user.Lookup("sshd"); err != nil {
			t.Skip("sshd, run by root, wants a user sshd (Debian package openssh-server)")
		}
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skipf("sshd, run by root, wants the directory /run/sshd: %v", err)
		}
	}
	tt := &target{folder: t.TempDir(), account: me.Username, log: &lockedBuffer{}}
	tt.hostKey, tt.userCA = newKey(t, filepath.Join(tt.folder, "host")), newKey(t, filepath.Join(tt.folder, "ca"))
	tt.port = freePort(t)
	write(t, filepath.Join(tt.folder, "config"), strings.Join(append([]string{
		"Port " + strconv.Itoa(int(tt.port)), "ListenAddress 127.0.0.1", "HostKey " + tt.folder + "/host", "TrustedUserCAKeys " + tt.folder + "/ca.pub",
		"AuthorizedKeysFile " + tt.folder + "/authorized", "StrictModes no", "UsePAM no", "PasswordAuthentication no", "PermitRootLogin prohibit-password", "PidFile none",
		"Subsystem sftp internal-sftp", "AcceptEnv LANG LC_* SECRET", "LogLevel VERBOSE", "AllowTcpForwarding yes", "AllowAgentForwarding yes", "MaxStartups 100",
	}, more...), "\n")+"\n")
	command := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(tt.folder, "config"))
	said, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	listening, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			fmt.Fprintln(tt.log, lines.Text())
			if strings.HasPrefix(lines.Text(), "Server listening") {
				close(listening)
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("the target's log:\n%s", tt.log)
		}
	})
	select {
	case <-listening:
	case <-ended:
		t.Fatalf("sshd did not start:\n%s", tt.log)
	}
	return tt
}

func freePort(t testing.TB) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

// bench is a gateway in front of a target.
type bench struct {
	*target
	t       testing.TB
	gate    *Gate
	address string // of the gateway
	port    int
	folder  string
	broker  ed25519.PrivateKey
	store   *recording.Store
	metrics *prometheus.Registry
	stop    func()
}

func start(t testing.TB, behind *target, change func(*Options)) *bench {
	t.Helper()
	b := &bench{target: behind, t: t, folder: t.TempDir(), broker: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)), metrics: prometheus.NewRegistry()}
	store, err := recording.NewStore(recording.Options{Directory: filepath.Join(b.folder, "recordings"), MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.store = store
	known := filepath.Join(b.folder, "targets")
	write(t, known, fmt.Sprintf("[127.0.0.1]:%d %s", behind.port, authorized(behind.hostKey)))
	targets, err := NewKnownHosts(known)
	if err != nil {
		t.Fatal(err)
	}
	hostKey := newKey(t, "")
	level := slog.LevelWarn
	options := Options{
		Name: "gw1", HostKeys: []ssh.Signer{hostKey}, Brokers: func() []ed25519.PublicKey { return []ed25519.PublicKey{b.broker.Public().(ed25519.PublicKey)} },
		UserCA: behind.userCA, Targets: targets, Recorder: store, Auditor: audit.New(filepath.Join(b.folder, "audit")), Metrics: b.metrics,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level})), Limits: Limits{Drain: time.Millisecond},
		Chance: func(int) int { return 99 }, // nothing is dropped early
	}
	if change != nil {
		change(&options)
	}
	if b.gate, err = New(options); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address, b.port = listener.Addr().String(), listener.Addr().(*net.TCPAddr).Port
	write(t, filepath.Join(b.folder, "known"), fmt.Sprintf("[127.0.0.1]:%d %s[127.0.0.1]:%d %s", b.port, authorized(hostKey), behind.port, authorized(behind.hostKey)))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.gate.Serve(ctx, listener) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(b.stop)
	return b
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("gateway: %s", bytes.TrimSpace(p))
	return len(p), nil
}

// grant is one for the target, for everything but what is named otherwise.
func (b *bench) grant(may token.Channels) token.Grant {
	g := token.Grant{
		Gateway: "gw1", Who: "alice", Target: token.Target{Host: "127.0.0.1", Port: b.target.port}, Account: b.account, May: may,
		Issued: time.Now(), Expires: time.Now().Add(time.Minute), Rule: "loopback", Fitness: "71.5",
	}
	if _, err := rand.Read(g.ID[:]); err != nil {
		b.t.Fatal(err)
	}
	return g
}

func (b *bench) sign(g token.Grant) string {
	b.t.Helper()
	text, err := token.Sign(g, b.broker)
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (b *bench) token(may token.Channels) string { return b.sign(b.grant(may)) }

// options of OpenSSH's programs: nothing of the account's own configuration, and no questions.
func (b *bench) options(port string) []string {
	return []string{
		"-F", "none", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=" + b.folder + "/known", "-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=none",
		"-o", "IdentityAgent=none", "-o", "IdentityFile=none", "-o", "ControlPath=none", port, strconv.Itoa(b.port),
	}
}

// result is what a program did.
type result struct {
	out, errs string
	code      int
}

// run runs a program to its end.
func (b *bench) run(in string, name string, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, program(b.t, name), args...)
	var out, errs bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(in), &out, &errs
	command.WaitDelay = time.Second
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		b.t.Fatalf("%s: %v\n%s", name, err, errs.String())
	}
	return result{out.String(), errs.String(), command.ProcessState.ExitCode()}
}

// ssh runs OpenSSH's client through the gateway.
func (b *bench) ssh(in, token string, args ...string) result {
	b.t.Helper()
	return b.run(in, "ssh", append(append(b.options("-p"), token+"@127.0.0.1"), args...)...)
}

// records returns the audit records, once as many as wanted have been written.
func (b *bench) records(events ...audit.Event) []audit.Record {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(filepath.Join(b.folder, "audit"))
		if err != nil && !os.IsNotExist(err) {
			b.t.Fatal(err)
		}
		var records []audit.Record
		var got []audit.Event
		for decoder := json.NewDecoder(bytes.NewReader(data)); ; {
			var r audit.Record
			if err := decoder.Decode(&r); err != nil {
				break
			}
			records, got = append(records, r), append(got, r.Event)
		}
		if len(got) >= len(events) {
			if fmt.Sprint(got) != fmt.Sprint(events) {
				b.t.Fatalf("the audit log has %v, want %v", got, events)
			}
			return records
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the audit log has %v, want %v", got, events)
		}
	}
}

// text returns the text of a recording.
func (b *bench) text(record audit.Record, number int) string {
	b.t.Helper()
	if len(record.Recordings) <= number {
		b.t.Fatalf("there is no recording %d in %+v", number, record)
	}
	r, err := recording.Open(filepath.Join(b.folder, "recordings", record.Recordings[number]), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	var out strings.Builder
	if err := r.Text(&out); err != nil {
		b.t.Fatal(err)
	}
	if !r.Whole() {
		b.t.Error("the recording has no end")
	}
	return out.String()
}

// dial connects with the library, which can do what the programs cannot be told to do.
func (b *bench) dial(token string) (*ssh.Client, error) {
	return ssh.Dial("tcp", b.address, &ssh.ClientConfig{User: token, HostKeyCallback: ssh.InsecureIgnoreHostKey(), BannerCallback: func(message string) error {
		b.t.Logf("banner: %s", message)
		return nil
	}})
}

func (b *bench) mustDial(token string) *ssh.Client {
	b.t.Helper()
	client, err := b.dial(token)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (b *bench) mustSession(client *ssh.Client) *ssh.Session {
	b.t.Helper()
	s, err := client.NewSession()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

func contains(t testing.TB, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not say %q:\n%s", what, want, text)
		}
	}
}
