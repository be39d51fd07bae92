package agent

import (
	"context"
	"crypto/ed25519"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/lastgood"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// granting is a broker of a fleet of Holdfast's own, with grants, and two clients: the operator's, and a requester's.
type granting struct {
	*brokerOnly
	folder    string
	me        string
	keys      []ed25519.PublicKey
	requester *api.LocalClient
}

func newGranting(t *testing.T, grants string) *granting {
	t.Helper()
	g := &granting{folder: t.TempDir()}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	g.me = me.Username
	dir := filepath.Join(g.folder, "agent")
	prepareBroker(t, dir, blackHole(t), []string{"gw1", "gw2"})
	shelf, err := lastgood.Open(filepath.Join(dir, brokerDir, "views"))
	if err != nil {
		t.Fatal(err)
	}
	record, err := shelf.Load("east")
	if err != nil {
		t.Fatal(err)
	}
	gateways := append([]fleet.Gateway(nil), record.View.Gateways...)
	for i := range gateways {
		at := netip.MustParseAddrPort(blackHole(t)) // which is enough for a probe
		gateways[i].Addresses, gateways[i].Services = []netip.Addr{at.Addr()}, []fleet.Service{{Protocol: fleet.SSH, Port: at.Port()}}
		gateways[i].Own = &fleet.Own{Name: "name-of-" + gateways[i].Key, HostKeys: []string{"ssh-ed25519 AAAA"}}
	}
	if record.View, err = fleet.NewView("cm", gateways); err != nil {
		t.Fatal(err)
	}
	if err := shelf.Save(record); err != nil {
		t.Fatal(err)
	}
	// Without strict, what was missed is passed over.
	links := filepath.Join(dir, brokerDir, "links.json")
	text, err := os.ReadFile(links)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, links, strings.Replace(string(text), `"strict":true`, `"strict":false`, 1))
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(sshKey(t, filepath.Join(g.folder, "k"))))
	if err != nil {
		t.Fatal(err)
	}
	g.keys = []ed25519.PublicKey{public.(ssh.CryptoPublicKey).CryptoPublicKey().(ed25519.PublicKey)}
	g.set(t, grants)
	g.brokerOnly = newBrokerOnlyIn(t, dir, filepath.Join(g.folder, "broker.yaml"))
	g.requester = api.NewLocalClient(filepath.Join(g.folder, "r.sock"))
	t.Cleanup(g.requester.Close)
	g.until(func() bool {
		if why := g.agent.broker.why.Load(); why != nil {
			t.Fatal(*why)
		}
		if list := g.agent.board.List(); len(list) > 0 && list[0].Kind == problemBrokerSettings {
			t.Fatal(list[0].Detail)
		}
		_, err := os.Stat(filepath.Join(g.folder, "r.sock"))
		return err == nil
	})
	return g
}

func (g *granting) set(t *testing.T, grants string) {
	t.Helper()
	writeFile(t, filepath.Join(g.folder, "broker.yaml"), "signing-key: k\nsocket: r.sock\n"+grants)
}

func (g *granting) until(done func() bool) {
	for !done() {
		time.Sleep(5 * time.Millisecond)
	}
}

// read takes a token apart.
func (g *granting) read(t *testing.T, text string) token.Grant {
	t.Helper()
	grant, err := token.Parse(text, g.keys)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return grant
}

// TestTokens: a launch that a grant allows has a token, for the chosen gateway and nothing else; the next best has one of its own; what only asks has none.
func TestTokens(t *testing.T) {
	g := newGranting(t, "grants: [{name: mine, who: ['*'], targets: [db1], accounts: [postgres], channels: [shell, jump], session-minutes: 5}]\n")
	ctx := context.Background()
	request := &holdfastv1.LaunchRequest{Target: "DB1", Account: "postgres", Channels: []string{"shell"}}
	first, err := g.client.Launch(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	got := g.read(t, first.Token)
	if got.Gateway != "name-of-gw1" || got.Who != g.me || got.Target.String() != "db1:22" || got.Account != "postgres" || got.May != token.Shell || got.SessionLimit != 5*time.Minute ||
		!strings.Contains(got.Rule, "grant mine") || got.Fitness == "" || got.Bound() || got.Expires.Sub(got.Issued) != 2*time.Minute {
		t.Errorf("the token says %+v", got)
	}
	if first.Granted.GetGrant() != "mine" || len(first.GatewayHostKeys) != 1 {
		t.Errorf("the answer is %+v", first)
	}
	request.Launch = first.Launch
	next, err := g.client.Outcome(ctx, &holdfastv1.OutcomeRequest{Request: request, Gateway: first.Gateway.Gateway, Evidence: "no answer"})
	if err != nil {
		t.Fatal(err)
	}
	if second := g.read(t, next.Next.Token); second.Gateway != "name-of-gw2" || second.ID == got.ID {
		t.Errorf("the next token says %+v", second)
	}
	for name, quiet := range map[string]*holdfastv1.LaunchRequest{"a dry run": {Target: "db1", Account: "postgres", DryRun: true}, "one that names no account": {Target: "db1"}} {
		if answer, err := g.client.Launch(ctx, quiet); err != nil || answer.Token != "" || answer.Gateway == nil {
			t.Errorf("%s: %v, %v", name, answer, err)
		}
	}
	explained, err := g.client.ExplainLaunch(ctx, &holdfastv1.ExplainLaunchRequest{Request: &holdfastv1.LaunchRequest{Target: "db1", Account: "root"}})
	if err != nil || explained.Answer.Token != "" || !strings.Contains(explained.Grants, "not: grant mine: it is not for the account root") {
		t.Errorf("explained: %v, %v", explained, err)
	}
}

// TestTunnelToken: a tunnel has no account and one right.
func TestTunnelToken(t *testing.T) {
	g := newGranting(t, "grants: [{name: sql, who: ['*'], targets: [db1], protocols: [tcp], ports: [5432]}]\n")
	// The gateways of this fleet take no tcp: the link says what they take.
	answer, err := g.client.Launch(context.Background(), &holdfastv1.LaunchRequest{Target: "db1", Port: 5432, Protocol: "tcp"})
	if err != nil || answer.Refusal.GetCode() != "NO_PROTOCOL_CAPABILITY" || answer.Token != "" {
		t.Errorf("got %v, %v", answer, err)
	}
}

// TestWhoAsks: nobody asks for others but root and whom the settings trust; a requester without a grant gets nothing, and neither does one who only wants to
// know where gateways are.
func TestWhoAsks(t *testing.T) {
	g := newGranting(t, "grants: [{name: all, who: ['*'], targets: [db1], accounts: [postgres]}]\ntrusted: [vault]\n")
	s := brokerService{brokerRoom: g.agent.broker, requesters: true}
	launch := func(who api.Identity, r *holdfastv1.LaunchRequest) (*holdfastv1.LaunchResponse, error) {
		return s.Launch(api.WithProved(context.Background(), who), r)
	}
	for _, c := range []struct {
		name   string
		caller api.Identity
		r      *holdfastv1.LaunchRequest
		says   string
	}{
		{"for oneself", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres"}, ""},
		{"for another", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Who: "bob"}, "anna may open sessions as anna and not as"},
		{"trusted", api.Identity{Name: "vault"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Who: "bob"}, ""},
		{"by a certificate that says it is trusted", api.Identity{Name: "vault", Certified: true}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Who: "bob"}, "may open sessions as vault"},
		{"by a key with root's name", api.Identity{Name: "root"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Who: "bob"}, "may open sessions as root"},
		{"no account", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1"}, "name the account"},
		{"not granted", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db2", Account: "postgres"}, "no grant lets anna"},
		{"an address beside a name", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Address: "10.1.2.3", Account: "postgres"}, "trust"},
		{"another protocol", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Protocol: "rdp"}, "ssh and tcp"},
		{"a port that is none", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", Port: 70000}, "no port"},
		{"a key that is none", api.Identity{Name: "anna"}, &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres", ClientKey: "x"}, "no public key"},
	} {
		answer, err := launch(c.caller, c.r)
		switch {
		case c.says == "" && (err != nil || answer.Token == ""):
			t.Errorf("%s: %v, %v", c.name, answer, err)
		case c.says != "" && (err == nil || !strings.Contains(api.Text(err), c.says)):
			t.Errorf("%s: %v, %v; want %q", c.name, answer, err, c.says)
		}
	}
	// On the requesters' socket nothing else is answered.
	if _, err := g.requester.Fleets(context.Background(), &holdfastv1.FleetsRequest{}); err == nil {
		t.Error("a requester may ask for fleets")
	}
	if _, err := g.requester.Launch(context.Background(), &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres"}); err != nil {
		t.Errorf("on the requesters' socket: %v", err)
	}
}

// TestStrangersMiss: what a requester says of a gateway has the broker look for itself, and does not keep others from it.
func TestStrangersMiss(t *testing.T) {
	g := newGranting(t, "grants: [{name: all, who: ['*'], targets: [db1], accounts: [postgres]}]\n")
	s := brokerService{brokerRoom: g.agent.broker, requesters: true}
	ctx := api.WithProved(context.Background(), api.Identity{Name: "eve"})
	request := &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres"}
	answer, err := s.Outcome(ctx, &holdfastv1.OutcomeRequest{Request: request, Gateway: "east/gw1"})
	if err != nil || answer.Next.GetGateway().GetGateway() != "east/gw2" {
		t.Errorf("she gets %v, %v", answer, err)
	}
	other, err := g.client.Launch(context.Background(), &holdfastv1.LaunchRequest{Target: "db1", DryRun: true})
	if err != nil || other.GetGateway().GetGateway() != "east/gw1" {
		t.Errorf("others get %v, %v", other.GetGateway(), err)
	}
}

// TestSettingsChange: what is changed counts within seconds, what is broken changes nothing and is a problem, and where there is no file no tokens are made.
func TestSettingsChange(t *testing.T) {
	g := newGranting(t, "")
	ask := func() error {
		_, err := g.client.Launch(context.Background(), &holdfastv1.LaunchRequest{Target: "db1", Account: "postgres"})
		return err
	}
	if err := ask(); err == nil || !strings.Contains(api.Text(err), "there are no grants") {
		t.Errorf("without grants: %v", err)
	}
	r := g.agent.broker
	doors := &requesterDoors{brokerRoom: r}
	g.set(t, "grants: [{name: all, who: ['*'], targets: [db1], accounts: [postgres]}]\n")
	r.readSettings(t.Context(), &requesterDoors{brokerRoom: r, local: opening{at: filepath.Join(g.folder, "r.sock")}}, false)
	if err := ask(); err != nil {
		t.Errorf("with one: %v", err)
	}
	g.set(t, "grants: [{name: all}]\n")
	if r.readSettings(t.Context(), doors, false) {
		t.Error("what is broken counts as read")
	}
	if err := ask(); err != nil {
		t.Errorf("with a broken file: %v", err)
	}
	if list := g.agent.board.List(); len(list) == 0 || list[0].Kind != problemBrokerSettings {
		t.Errorf("the problems are %v", list)
	}
	r.settings.Store((*settings.Settings)(nil))
	if err := ask(); err == nil || !strings.Contains(api.Text(err), "makes no session tokens") {
		t.Errorf("without settings: %v", err)
	}
}
