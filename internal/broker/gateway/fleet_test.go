package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/pin"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
)

// asGateway is the variable that makes a process of this test a gateway, with a configuration file.
const asGateway = "HOLDFAST_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if file := os.Getenv(asGateway); file != "" {
		c := Command("test")
		c.SetArgs([]string{"--config", file})
		if c.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is a gateway of a fleet in a process of its own, which can be killed.
type process struct {
	t           *testing.T
	key, dir    string
	fingerprint string
	running     *exec.Cmd
}

func (p *process) file() string { return filepath.Join(p.dir, "gateway.yaml") }

// newProcess makes the folder of a gateway.
func newProcess(t *testing.T, key string) *process {
	t.Helper()
	p := &process{t: t, key: key, dir: folder(t)}
	fingerprint, err := command(t, "certificate", filepath.Join(p.dir, DefaultCertificate))
	if err != nil {
		t.Fatal(err)
	}
	p.fingerprint = strings.TrimSpace(fingerprint)
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// configure writes the configuration file with a fleet in it.
func (p *process) configure(fleet string) {
	p.t.Helper()
	text := strings.ReplaceAll(fullConfig, "name: gw1", "name: "+p.key)
	text = text[:strings.Index(text, "limits:")]
	write(p.t, p.file(), text+fleet)
}

func (p *process) start() {
	p.t.Helper()
	p.running = exec.Command(os.Args[0], "-test.run=^$")
	p.running.Env = append(os.Environ(), asGateway+"="+p.file())
	p.running.Stderr = prefixed{p.t, p.key}
	if err := p.running.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) end(with syscall.Signal) {
	if p.running == nil {
		return
	}
	_ = p.running.Process.Signal(with)
	_ = p.running.Wait()
	p.running = nil
}

type prefixed struct {
	t   *testing.T
	key string
}

func (w prefixed) Write(b []byte) (int, error) {
	w.t.Logf("%s: %s", w.key, bytes.TrimSpace(b))
	return len(b), nil
}

func unusedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// asker asks the central manager as a broker does.
type asker struct {
	t      *testing.T
	client *poll.Client
}

func newAsker(t *testing.T, port int, central, own string) asker {
	t.Helper()
	known, err := pin.ParseFingerprint(central)
	if err != nil {
		t.Fatal(err)
	}
	options := poll.Options{Address: fmt.Sprintf("127.0.0.1:%d", port), Fingerprint: known, Timeout: 10 * time.Second}
	if own != "" {
		pair, _, err := pin.Load(own, own)
		if err != nil {
			t.Fatal(err)
		}
		options.Certificate = &pair
	}
	return asker{t, poll.New(options)}
}

// until asks until the fleet is as it should be, in words: each gateway's key and status.
func (a asker) until(want string) *fleet.View {
	a.t.Helper()
	var last string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		view, failure := a.client.Fetch(context.Background(), fleet.Expected{})
		if failure != nil {
			last = failure.Error()
			continue
		}
		var states []string
		for _, g := range view.Gateways {
			states = append(states, g.Key+" "+g.Status.String())
		}
		if last = strings.Join(states, ", "); last == want {
			return view
		}
	}
	a.t.Fatalf("the fleet did not become %q; it is %q", want, last)
	return nil
}

// trio is a fleet of three: gw1 is its central manager.
func trio(t *testing.T, roles ...string) (ask asker, gateways []*process) {
	t.Helper()
	port := unusedPort(t)
	for _, key := range []string{"gw1", "gw2", "gw3"} {
		gateways = append(gateways, newProcess(t, key))
	}
	reader := filepath.Join(t.TempDir(), "certificate.pem")
	own, err := command(t, "certificate", reader)
	if err != nil {
		t.Fatal(err)
	}
	central := gateways[0]
	central.configure(fmt.Sprintf("fleet:\n  roles: [%s]\n  address: 127.0.0.1\n  listen: 127.0.0.1:%d\n  beat-interval-ms: 200\n  readers: ['%s']\n  members:\n    - {key: gw2, fingerprint: '%s'}\n    - {key: gw3, fingerprint: '%s'}\n",
		roles[0], port, strings.TrimSpace(own), gateways[1].fingerprint, gateways[2].fingerprint))
	for i, p := range gateways[1:] {
		p.configure(fmt.Sprintf("fleet:\n  roles: [%s]\n  address: 127.0.0.1\n  listen: 127.0.0.1:0\n  central-manager: https://127.0.0.1:%d\n  fingerprint: '%s'\n", roles[i+1], port, central.fingerprint))
	}
	for _, p := range gateways {
		p.start()
	}
	return newAsker(t, port, central.fingerprint, reader), gateways
}

// TestFleetOfThree: three gateways are a fleet that a broker reads; one that dies is down, and up again by itself; and a central manager that starts anew
// takes nobody for down who is up, and nobody for up who is down.
func TestFleetOfThree(t *testing.T) {
	ask, gateways := trio(t, "central-management, search-local", "managed-host, search-local", "managed-host")
	const up = "gw1 available, gw2 available, gw3 available"
	view := ask.until(up)
	if view.Central != "gw1" || len(view.Remarks) > 0 || view.Hopeless() != "" {
		t.Errorf("%+v", view)
	}
	for i := range view.Gateways {
		g := &view.Gateways[i]
		ssh, hasSSH := g.Port(fleet.SSH)
		if g.Own == nil || g.Own.Name != g.Key || len(g.Own.HostKeys) != 1 || !hasSSH || ssh == 0 || !g.Health.Known || g.Health.Cores == 0 || g.Refuses() != "" {
			t.Errorf("%+v", g)
		}
		if evidence, reached := poll.Knock(context.Background(), g, 10*time.Second); !reached {
			t.Errorf("%s takes no sessions where it says: %s", g.Key, evidence)
		}
	}

	gateways[1].end(syscall.SIGKILL)
	down := ask.until("gw1 available, gw2 unavailable, gw3 available")
	if i, _ := down.Find("gw2"); down.Gateways[i].LastSeen.IsZero() || down.Gateways[i].Own == nil {
		t.Errorf("nothing is known any more of one that is down: %+v", down.Gateways[i])
	}
	gateways[1].start()
	ask.until(up)

	gateways[2].end(syscall.SIGKILL)
	gateways[0].end(syscall.SIGKILL)
	gateways[0].start()
	ask.until("gw1 available, gw2 available, gw3 unavailable") // and on the way there gw3 was unknown
	gateways[2].start()
	ask.until(up)
}

// TestFleetStops: a gateway that is told to stop says so before it is gone, and is no gateway for new sessions.
func TestFleetStops(t *testing.T) {
	ask, gateways := trio(t, "central-management", "managed-host", "managed-host")
	ask.until("gw1 available, gw2 available, gw3 available")
	gateways[2].end(syscall.SIGTERM)
	ask.until("gw1 available, gw2 available, gw3 unavailable")
}

// TestSearchPrimary: it is listed, it is up, and no session begins there.
func TestSearchPrimary(t *testing.T) {
	ask, gateways := trio(t, "central-management, search-primary", "managed-host, search-minion", "managed-host, search-minion")
	view := ask.until("gw1 unavailable, gw2 available, gw3 available")
	if why := view.Gateways[0].Refuses(); !strings.Contains(why, "search-primary") {
		t.Errorf("%q", why)
	}
	port, _ := view.Gateways[0].Port(fleet.SSH)
	token, err := command(t, "token", "--key", filepath.Join(gateways[0].dir, "broker"), "--gateway", "gw1", "--who", "a", "--host", "h", "--account", "x")
	if err != nil {
		t.Fatal(err)
	}
	var said string
	_, err = ssh.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &ssh.ClientConfig{
		User: strings.TrimSpace(token), HostKeyCallback: ssh.InsecureIgnoreHostKey(), BannerCallback: func(text string) error { said += text; return nil }, Config: sshgate.Algorithms(),
	})
	if err == nil || !strings.Contains(said, "gw1 takes no sessions: it is the search-primary") {
		t.Errorf("%v: %q", err, said)
	}
}

// TestWhoMayRead: nobody whose certificate is not listed, and the list may change while the gateway runs.
func TestWhoMayRead(t *testing.T) {
	ask, gateways := trio(t, "central-management", "managed-host", "managed-host")
	ask.until("gw1 available, gw2 available, gw3 available")
	central := gateways[0]
	_, port, _ := strings.Cut(strings.SplitAfter(readFile(t, central.file()), "  listen: 127.0.0.1")[1], ":")
	number := 0
	if _, err := fmt.Sscanf(port, "%d", &number); err != nil {
		t.Fatal(err)
	}
	stranger := newAsker(t, number, central.fingerprint, "")
	if _, failure := stranger.client.Fetch(context.Background(), fleet.Expected{}); failure == nil || failure.Kind != fleet.Unwell || !strings.Contains(failure.Evidence, "has no certificate") {
		t.Errorf("without a certificate: %v", failure)
	}
	member := newAsker(t, number, central.fingerprint, filepath.Join(gateways[1].dir, DefaultCertificate))
	if _, failure := member.client.Fetch(context.Background(), fleet.Expected{}); failure == nil || !strings.Contains(failure.Evidence, "add "+gateways[1].fingerprint+" to fleet.readers") {
		t.Errorf("with one that is not listed: %v", failure)
	}
	text := readFile(t, central.file())
	begin := strings.Index(text, "readers: [")
	end := begin + strings.Index(text[begin:], "]")
	write(t, central.file(), text[:begin]+"readers: [any"+text[end:])
	stranger.until("gw1 available, gw2 available, gw3 available")
	// A member that is taken from the list is none any more, and a file that cannot be used changes nothing.
	text = strings.Replace(readFile(t, central.file()), "    - {key: gw3, fingerprint: '"+gateways[2].fingerprint+"'}\n", "", 1)
	write(t, central.file(), text)
	stranger.until("gw1 available, gw2 available")
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fleetConfigs are blocks that are wrong, with what is said of each.
const someFingerprint = "sha256:3f1c000000000000000000000000000000000000000000000000000000000000"

func managing(more string) string {
	return "fleet:\n  roles: [central-management]\n  address: 192.0.2.1\n  listen: 0.0.0.0:8443\n" + more
}

func managed(more string) string {
	return "fleet:\n  roles: [managed-host]\n  address: gw2.company.com\n  listen: 0.0.0.0:8443\n" + more
}

const reports = "  central-manager: https://192.0.2.1:8443\n  fingerprint: '" + someFingerprint + "'\n"

func TestFleetConfig(t *testing.T) {
	c, err := parseConfig("/etc/holdfast/gateway.yaml", []byte(fullConfig+managed(reports)))
	if err != nil {
		t.Fatal(err)
	}
	if f := c.fleet; f.Key != "gw1" || f.name != "gw2.company.com" || f.address != "" || f.Certificate != "/etc/holdfast/gateway_fleet.pem" || f.PrivateKey != f.Certificate || f.central.Address != "192.0.2.1:8443" || f.readers.Any {
		t.Errorf("%+v", f)
	}
	for text, want := range map[string]string{
		"fleet: {}\n": "fleet.roles: the roles are no role",
		strings.Replace(managing(""), "central-management", "search-local", 1):                     "central-management or managed-host is needed",
		strings.Replace(managing(""), "central-management", "managed-host, overlord", 1):           `fleet.roles: "overlord" is no role`,
		strings.Replace(managing(""), "central-management", "central-management, managed-host", 1): "exclude each other",
		managing("  key: 'a b'\n"):              "fleet.key",
		managing("  key: a/b\n"):                "fleet.key",
		managing(reports):                       "fleet.central-manager and fingerprint are for the others",
		managing("  beat-interval-ms: 99\n"):    "fleet.beat-interval-ms is 99: write 100 to 10000",
		managing("  beat-interval-ms: 10001\n"): "fleet.beat-interval-ms",
		managing("  readers: [any, x]\n"):       "fleet.readers has any beside others",
		managing("  readers: [x]\n"):            "fleet.readers:",
		managing("  members: [{key: gw1, fingerprint: '" + someFingerprint + "'}]\n"):                                                     "member gw1 is listed twice, or is this gateway itself",
		managing("  members: [{key: gw2, fingerprint: '1'}]\n"):                                                                           "fleet.members: gw2:",
		managing("  members: [{key: gw2, fingerprint: '" + someFingerprint + "'}, {key: gw3, fingerprint: '" + someFingerprint + "'}]\n"): "have one fingerprint",
		managing("  memberz: []\n"): "unknown field",
		managed(""):                 "fleet.central-manager is \"\"",
		managed(strings.Replace(reports, "https", "http", 1)):                                "fleet.central-manager is",
		managed(strings.Replace(reports, ":8443", "", 1)):                                    "fleet.central-manager is",
		managed(strings.Replace(reports, ":8443", ":8443/x", 1)):                             "fleet.central-manager is",
		managed(strings.Replace(reports, "3f1c", "", 1)):                                     "fleet.fingerprint is that of the central manager",
		managed(reports + "  members: [{key: a, fingerprint: '" + someFingerprint + "'}]\n"): "fleet.members and beat-interval-ms are the central manager's",
		strings.Replace(managed(reports), "0.0.0.0:8443", "8443", 1):                         "fleet.listen is",
		strings.Replace(managed(reports), "gw2.company.com", "0.0.0.0", 1):                   "fleet.address is where users reach",
		strings.Replace(managed(reports), "gw2.company.com", "'a b'", 1):                     "fleet.address",
		strings.Replace(managed(reports), "gw2.company.com", "''", 1):                        "fleet.address",
	} {
		if _, err := parseConfig("gateway.yaml", []byte(fullConfig+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestFleetCheck: --check says which certificate is missing, and warns about what is lawful and hardly meant.
func TestFleetCheck(t *testing.T) {
	p := newProcess(t, "gw1")
	warned := func(block string) []string {
		t.Helper()
		p.configure(block)
		c, err := readConfig(p.file())
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		if err := checkFleet(c, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		searched := strings.Contains(block, "search-primary") || strings.Contains(block, "search-minion")
		if searched != strings.Contains(said.String(), notCollected) {
			t.Errorf("%s: that records are not collected is said: %v", block, !searched)
		}
		return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.Contains(line, notCollected) })
	}
	hopeless := strings.Replace(managing("  readers: [any]\n"), "central-management", "central-management, search-primary", 1)
	member := "  members: [{key: gw2, fingerprint: '" + someFingerprint + "'}]\n"
	for block, want := range map[string]string{
		managing("  readers: [any]\n"): "",
		managing(""):                   "no broker may ask this central manager",
		strings.Replace(managed(reports), "managed-host", "managed-host, search-minion", 1): "",
		hopeless:          "no gateway of this fleet could ever take a session",
		hopeless + member: "", // it may be one that takes sessions
		strings.Replace(managed(reports), "managed-host", "managed-host, search-primary", 1): "this gateway takes no sessions: it is the search-primary",
	} {
		if got := warned(block); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%s: %q, want %q", block, got, want)
		}
	}
	p.configure(hopeless + member)
	c, err := readConfig(p.file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.Recordings.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, rememberFile(c), `{"format":1,"members":{"gw2":{"address":"192.0.2.2","roles":["managed-host","search-primary"],"holdfast":{"name":"gw2"}}}}`)
	if got := warned(hopeless + member); len(got) != 1 || !strings.Contains(got[0], "gw2") {
		t.Errorf("of members that are known: %q", got)
	}
	if err := os.Remove(filepath.Join(p.dir, DefaultCertificate)); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "--check", "--config", p.file()); err == nil || !strings.Contains(err.Error(), "make one: holdfast gateway certificate "+filepath.Join(p.dir, DefaultCertificate)) {
		t.Errorf("%v", err)
	}
}
