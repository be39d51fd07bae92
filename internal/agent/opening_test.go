package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/lastgood"
)

// opening is what a user has in front of him: a broker with grants, a fleet of a gateway that is a black hole and one that is alive, a real sshd, and a
// service of another protocol.
type openingBench struct {
	t                      *testing.T
	folder, binary, home   string
	me                     string
	broker                 *brokerOnly
	sshd, gateway, service uint16
	door                   string // address of the broker's SSH listener
}

var buildOnce = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "holdfast-opening-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "holdfast")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/holdfast/holdfast/cmd/holdfast").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return binary, nil
})

func sshKey(t *testing.T, file string) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	writeFile(t, file, string(pem.EncodeToMemory(block)))
	writeFile(t, file+".pub", public+"\n")
	return public
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func unusedPort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// background runs a program until the test is over, once it listens.
func background(t *testing.T, port uint16, name string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(name), said.String())
		}
	})
	for {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s ended: %s", name, said.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func newOpeningBench(t *testing.T) *openingBench {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds and runs the program")
	}
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		t.Skip("sshd is not installed (Debian package openssh-server)")
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		t.Skip("ssh is not installed (Debian package openssh-client)")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if me.Uid == "0" {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skipf("sshd, run by root, wants the directory /run/sshd: %v", err)
		}
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	b := &openingBench{t: t, folder: t.TempDir(), binary: binary, me: me.Username, sshd: unusedPort(t), gateway: unusedPort(t)}
	in := func(name string) string { return filepath.Join(b.folder, name) }
	b.home = in("home")
	if err := os.MkdirAll(filepath.Join(b.home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	target, gate := sshKey(t, in("target_key")), sshKey(t, in("gateway_key"))
	sshKey(t, in("user_ca"))
	writeFile(t, in("brokers"), sshKey(t, in("broker_key"))+"\n")
	writeFile(t, in("known"), fmt.Sprintf("[127.0.0.1]:%d %s\n", b.sshd, target))
	writeFile(t, in("sshd"), fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nTrustedUserCAKeys %s\nAuthorizedKeysFile none\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n",
		b.sshd, in("target_key"), in("user_ca.pub")))
	background(t, b.sshd, sshd, "-D", "-e", "-f", in("sshd"))
	writeFile(t, in("gateway.yaml"), fmt.Sprintf("name: gw2\nlisten: 127.0.0.1:%d\nhost-keys: [gateway_key]\nuser-ca: user_ca\nbrokers: brokers\nknown-hosts: [known]\naudit: sessions.jsonl\nrecordings: {directory: recordings, min-free-mib: 1}\n", b.gateway))
	background(t, b.gateway, binary, "gateway", "--config", in("gateway.yaml"))
	b.service = echoService(t)
	b.startBroker(gate)
	return b
}

// echoService sends back what it is sent.
func echoService(t *testing.T) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// startBroker leaves in a broker's folder what it knows: gw1, which is the fittest and a black hole, and gw2, which is alive.
func (b *openingBench) startBroker(hostKey string) {
	t := b.t
	in := func(name string) string { return filepath.Join(b.folder, name) }
	dir := in("agent")
	hole := netip.MustParseAddrPort(blackHole(t))
	shelf, err := lastgood.Open(filepath.Join(dir, brokerDir, "views"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, brokerDir, "links.json"), fmt.Sprintf(`{"format":1,"fleets":[{"name":"east","address":%q,"fingerprint":"sha256:%s","central":"cm","services":{"ssh":22}}]}`, hole, strings.Repeat("ab", 32)))
	gateway := func(key string, port uint16, used float64) fleet.Gateway {
		return fleet.Gateway{
			Key: key, Roles: fleet.NewRoles(fleet.ManagedHost, fleet.SearchLocal), Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Status: fleet.Available,
			Services: []fleet.Service{{Protocol: fleet.SSH, Port: port}, {Protocol: "tcp", Port: port}}, Health: fleet.Health{Known: true, DiskUsed: used, Load5: 1},
			Own: &fleet.Own{Name: key, HostKeys: []string{hostKey}},
		}
	}
	cm := fleet.Gateway{Key: "cm", Roles: fleet.NewRoles(fleet.CentralManagement), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Status: fleet.Available}
	view, err := fleet.NewView("cm", []fleet.Gateway{cm, gateway("gw1", hole.Port(), 10), gateway("gw2", b.gateway, 50)})
	if err != nil {
		t.Fatal(err)
	}
	if err := shelf.Save(&lastgood.Record{Fleet: "east", View: view, Stamp: lastgood.Stamp{Clocks: lastgood.Look()}}); err != nil {
		t.Fatal(err)
	}
	b.door = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(unusedPort(t))))
	carol, ca := sshKey(t, in("carol")), sshKey(t, in("requester_ca"))
	writeFile(t, in("broker.yaml"), fmt.Sprintf(`
signing-key: broker_key
socket: requesters.sock
listen: %s
host-key: door_key
requesters:
  - {name: carol, keys: [%q]}
certificate-authorities:
  - {key: %q, names: ["*@company"]}
grants:
  - {name: mine, who: [%s, carol, "dave@company"], targets: [127.0.0.1], ports: [%d], accounts: [%s]}
  - {name: service, who: [%s], targets: [127.0.0.1], ports: [%d], protocols: [tcp]}
`, b.door, carol, ca, b.me, b.sshd, b.me, b.me, b.service))
	b.door = strings.TrimSpace(b.door)
	sshKey(t, in("door_key"))
	b.broker = newBrokerOnlyIn(t, dir, in("broker.yaml"))
	for {
		if _, err := os.Stat(in("requesters.sock")); err == nil {
			if conn, err := net.Dial("tcp", b.door); err == nil {
				conn.Close()
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// result is what a command came to.
type result struct {
	out, errs string
	code      int
}

func (b *openingBench) run(stdin, name string, args ...string) result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	c.Env = append(os.Environ(), "HOME="+b.home, "TMPDIR="+b.folder, "HOLDFAST_BROKER="+filepath.Join(b.folder, "requesters.sock"), "PATH="+filepath.Dir(b.binary)+":"+os.Getenv("PATH"), "SSH_AUTH_SOCK=")
	_ = c.Run()
	return result{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

func (b *openingBench) holdfast(stdin string, args ...string) result {
	b.t.Helper()
	return b.run(stdin, b.binary, args...)
}

func (b *openingBench) port() string { return strconv.Itoa(int(b.sshd)) }

// audit is what the broker has written down, once it has so many lines of an event.
func (b *openingBench) audit(event string, count int) string {
	b.t.Helper()
	name := filepath.Join(b.folder, "agent", brokerDir, "audit", "launches.jsonl")
	for {
		text, _ := os.ReadFile(name)
		if strings.Count(string(text), `"event":"`+event+`"`) >= count {
			return string(text)
		}
		select {
		case <-b.t.Context().Done():
			b.t.Fatalf("the audit has too few %s: %s", event, text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestOpenASession: a user opens sessions and tunnels through a fleet whose fittest gateway is a black hole, with stock OpenSSH on both ends.
func TestOpenASession(t *testing.T) {
	b := newOpeningBench(t)
	t.Run("ssh", func(t *testing.T) {
		got := b.holdfast("", "ssh", "-p", b.port(), b.me+"@127.0.0.1", "echo", "in; exit 3")
		if got.out != "in\n" || got.code != 3 || !strings.Contains(got.errs, "gateway east/gw1 did not take the session") {
			t.Errorf("got %+v", got)
		}
		text := b.audit("reached", 1)
		for _, want := range []string{`"event":"missed"`, `"grant":"mine"`, `"account":"` + b.me + `"`, `"token_id":`} {
			if !strings.Contains(text, want) {
				t.Errorf("the audit has no %s: %s", want, text)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(b.folder, "holdfast-ssh-*")); len(left) > 0 {
			t.Errorf("a session leaves %v", left)
		}
	})
	t.Run("proxy command", func(t *testing.T) {
		options := []string{"-F", "none", "-o", "ProxyCommand=holdfast broker connect %r@%h:%p", "-o", "KnownHostsCommand=" + b.binary + " broker connect --known-host %H", "-o", "StrictHostKeyChecking=yes",
			"-o", "UserKnownHostsFile=none", "-o", "BatchMode=yes"}
		got := b.run("from here", "ssh", append(options, "-p", b.port(), b.me+"@127.0.0.1", "cat; echo err >&2; exit 7")...)
		if got.out != "from here" || !strings.Contains(got.errs, "err\n") || got.code != 7 {
			t.Errorf("got %+v", got)
		}
		writeFile(t, filepath.Join(b.folder, "file"), strings.Repeat("0123456789", 1<<18))
		got = b.run("", "scp", append(append(options, "-P", b.port()), filepath.Join(b.folder, "file"), b.me+"@127.0.0.1:"+filepath.Join(b.folder, "copy"))...)
		if copied, _ := os.ReadFile(filepath.Join(b.folder, "copy")); got.code != 0 || len(copied) != 10<<18 {
			t.Errorf("%d bytes were copied: %+v", len(copied), got)
		}
	})
	t.Run("tunnel", func(t *testing.T) {
		got := b.holdfast("through", "tunnel", "-", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(b.service))))
		if got.out != "through" || got.code != 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("not granted", func(t *testing.T) {
		got := b.holdfast("", "ssh", "-p", b.port(), "postgres@127.0.0.1", "true")
		if got.code != 1 || !strings.Contains(got.errs, "the nearest is mine, and it is not for the account postgres") {
			t.Errorf("got %+v", got)
		}
		b.audit("denied", 1)
	})
	t.Run("by a key, from elsewhere", b.fromElsewhere)
	if text := b.audit("reached", 4); strings.Contains(text, "hf1.") {
		t.Errorf("the audit has a token: %s", text)
	}
	events := b.broker.agent.events
	if told := fmt.Sprintf("%+v", events); strings.Contains(told, "hf1.") {
		t.Error("the events have a token")
	}
}

// fromElsewhere: requesters who are known by a key, or by a certificate, ask over SSH, and nothing but that.
func (b *openingBench) fromElsewhere(t *testing.T) {
	in := func(name string) string { return filepath.Join(b.folder, name) }
	host, port, _ := net.SplitHostPort(b.door)
	public, _ := os.ReadFile(in("door_key.pub"))
	writeFile(t, in("door_known"), fmt.Sprintf("[%s]:%s %s", host, port, public))
	sshKey(t, in("dave_key"))
	if got := b.run("", "ssh-keygen", "-q", "-s", in("requester_ca"), "-I", "dave-1", "-n", "dave@company,root", "-V", "+5m", in("dave_key.pub")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	for _, c := range []struct {
		who, key string
		code     int
		want     string
	}{
		{"carol", "carol", 0, ""},
		{"dave@company", "dave_key", 0, ""},
		{"root", "dave_key", 3, "Permission denied"},  // whom that authority may not vouch for
		{"carol", "dave_key", 3, "Permission denied"}, // nor is it hers
	} {
		writeFile(t, filepath.Join(b.home, ".ssh", "config"), fmt.Sprintf("Host *\n\tBatchMode yes\n\tUserKnownHostsFile %s\n\tIdentityFile %s\n\tIdentitiesOnly yes\n", in("door_known"), in(c.key)))
		wrapped := in("ssh-home")
		_ = os.MkdirAll(wrapped, 0o700)
		// OpenSSH takes the home directory from the list of accounts, not from HOME.
		real, _ := exec.LookPath("ssh")
		script := "#!/bin/sh\ncase \"$*\" in *holdfast-broker*) exec " + real + " -F " + filepath.Join(b.home, ".ssh", "config") + " \"$@\";; esac\nexec " + real + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(wrapped, "ssh"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		broker := fmt.Sprintf("ssh://%s@%s", strings.ReplaceAll(c.who, "@", "%40"), b.door)
		got := b.run("", "/usr/bin/env", "PATH="+wrapped+":"+os.Getenv("PATH"), b.binary, "ssh", "--broker", broker, "-p", b.port(), b.me+"@127.0.0.1", "echo in")
		if got.code != c.code || c.code == 0 && got.out != "in\n" || !strings.Contains(got.errs, c.want) {
			t.Errorf("%s with %s: %+v", c.who, c.key, got)
		}
	}
	got := b.run("", "ssh", "-F", filepath.Join(b.home, ".ssh", "config"), "-i", in("carol"), "-p", port, "carol@"+host, "id")
	if got.code == 0 || strings.Contains(got.out, "uid=") {
		t.Errorf("a command at the broker: %+v", got)
	}
}
