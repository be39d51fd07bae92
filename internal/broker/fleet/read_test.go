package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The vendor's own sample of a fleet of two (REST reference, "Query the status of all nodes in the cluster"), with the list of nodes that
// belongs to it.
const (
	sampleNodes = `{"items":[
		{"key":"b35c54da-b556-4f91-ade5-d26283d68277","body":{"address":"10.30.42.41","roles":["central-management","search-local"]},"meta":{"href":"/api/cluster/nodes/b35c54da-b556-4f91-ade5-d26283d68277"}},
		{"key":"46f97a58-4028-467d-9a22-9cfe78ae3e1c","address":"10.30.42.42","roles":["managed-host","search-local"]}],
		"meta":{"href":"/api/cluster/nodes"}}`
	sampleStatus = `{"items":[
		{"key":"b35c54da-b556-4f91-ade5-d26283d68277","fqdn":"sps.example.com","health_status":null,"sync_status":"n/a"},
		{"key":"46f97a58-4028-467d-9a22-9cfe78ae3e1c","last_seen":"2018-02-08T10:00:30Z","fqdn":"managed-host.cluster",
			"health_status":{"memory":62.5,"disk":1.9,"swap":0,"load1":0.53,"load5":0.68,"load15":0.37,"sessions":{"ssh":3,"rdp":4},"total_sessions":7},
			"sync_status":"pending","configuration_sync":{"issues":{"warnings":[{"message":"in conflict","paths":[]}]}}}],
		"meta":{"href":"/api/cluster/status","self":"/api/cluster/status/b35c54da-b556-4f91-ade5-d26283d68277"}}`
	sampleHealth = `{"health_status":{"cpu":1.0,"disk":2.0,"load1":3.0,"load15":4.0,"load5":5.0,"memory":7.0,"sessions":{"ssh":5},"sessions_total":28,"raid":{"status":{}}},"issues":{}}`
	central      = "b35c54da-b556-4f91-ade5-d26283d68277"
	managed      = "46f97a58-4028-467d-9a22-9cfe78ae3e1c"
)

func sample() Answers {
	return Answers{Nodes: []byte(sampleNodes), Status: []byte(sampleStatus), Health: []byte(sampleHealth)}
}

func mustRead(t *testing.T, a Answers, expected Expected) *View {
	t.Helper()
	view, failure := Read(a, expected)
	if failure != nil {
		t.Fatalf("%s: %s", failure.Kind, failure)
	}
	return view
}

func of(t *testing.T, v *View, key string) *Gateway {
	t.Helper()
	i, found := v.Find(key)
	if !found {
		t.Fatalf("there is no %s", key)
	}
	return &v.Gateways[i]
}

func TestTheVendorsSample(t *testing.T) {
	view := mustRead(t, sample(), Expected{Central: central, Services: []Service{{SSH, 22}}, ServicesOf: map[string][]Service{managed: {{RDP, 3389}}}})
	if view.Central != central || len(view.Gateways) != 2 || len(view.Remarks) != 0 || view.Gateways[0].Key != managed {
		t.Fatalf("read %+v", view)
	}
	m := of(t, view, managed)
	if want := (Health{Known: true, DiskUsed: 1.9, Load1: 0.53, Load5: 0.68, Load15: 0.37, Sessions: 7}); m.Health != want || m.Status != Available {
		t.Errorf("the managed host: %v %+v", m.Status, m.Health)
	}
	if m.Sync != "pending" || m.LastSeen.Year() != 2018 || m.Addresses[0].String() != "10.30.42.42" || m.Shown() != managed+" (managed-host.cluster)" {
		t.Errorf("the managed host: %+v", m)
	}
	if _, ssh := m.Port(SSH); ssh {
		t.Error("what the link says of a single gateway does not count")
	}
	c := of(t, view, central)
	if port, ok := c.Port(SSH); !ok || port != 22 || c.Addresses[0].String() != "10.30.42.41" {
		t.Errorf("the central manager: %+v", c)
	}
	if want := (Health{Known: true, DiskUsed: 2, Load1: 3, Load5: 5, Load15: 4, Sessions: 28}); c.Health != want {
		t.Errorf("the central manager's own health: %+v", c.Health)
	}
}

// The vendor's own sample has a null health for the central manager that answers. It is not down, with or without figures of its own.
func TestReport6NullHealthOfTheOneThatAnswersIsNotDown(t *testing.T) {
	for _, health := range []string{sampleHealth, "", "null", `{"health_status":null}`, "{", `[1]`} {
		a := sample()
		a.Health = []byte(health)
		c := of(t, mustRead(t, a, Expected{Central: central}), central)
		if c.Status != Available || c.Refuses() != "" || c.Health.Known != (health == sampleHealth) {
			t.Errorf("with the health %q it is %s (%s), health %+v", health, c.Status, c.Why, c.Health)
		}
	}
	a := sample()
	a.Status = []byte(strings.Replace(sampleStatus, `{"memory":62.5`, `null,"x":{"memory":62.5`, 1))
	if m := of(t, mustRead(t, a, Expected{}), managed); m.Status != Unavailable || m.Why != "the central manager says that it is down" {
		t.Errorf("a managed host with null health is %s", m.Status)
	}
}

// Safeguard documentation, "linking": a fleet whose only gateway is central manager and search primary links well, and every launch
// fails. It is told when it is linked.
func TestReport3OnlyASearchPrimary(t *testing.T) {
	a := Answers{
		Nodes:  []byte(`{"items":[{"key":"one","address":"10.0.0.1","roles":["central-management","search-master"]}]}`),
		Status: []byte(`{"items":[{"key":"one","health_status":null}]}`),
	}
	if got := mustRead(t, a, Expected{}).Hopeless(); got != "one: it is the search-primary, which takes no sessions" {
		t.Errorf("told: %q", got)
	}
	if got := mustRead(t, sample(), Expected{}).Hopeless(); got != "" {
		t.Errorf("of a good fleet: %q", got)
	}
	many := make([]Gateway, 8)
	for i := range many {
		many[i] = Gateway{Key: fmt.Sprint(i)}
	}
	view, err := NewView("0", many)
	if err != nil || !strings.HasSuffix(view.Hopeless(), "; and 3 more") {
		t.Errorf("of many: %v, %q", err, view.Hopeless())
	}
}

// item is one node as JSON.
func item(key, rest string) string {
	return fmt.Sprintf(`{"key":%q,"address":"10.0.0.1",%s}`, key, rest)
}

func answers(nodes, statuses []string, meta string) Answers {
	return Answers{
		Nodes:  []byte(`{"items":[` + strings.Join(nodes, ",") + `]}`),
		Status: []byte(`{"items":[` + strings.Join(statuses, ",") + `],"meta":{` + meta + `}}`),
	}
}

// What never becomes a view.
func TestAnswersThatAreNone(t *testing.T) {
	cm, mh := item("cm", `"roles":["central-management"]`), item("mh", `"roles":["managed-host"]`)
	cm2 := item("cm2", `"roles":["central-management"]`)
	st := `{"key":"cm","health_status":null}`
	body := func(nodes, status string) Answers { return Answers{Nodes: []byte(nodes), Status: []byte(status)} }
	many := make([]string, MaxGateways+1)
	for i := range many {
		many[i] = item(fmt.Sprint(i), `"roles":[]`)
	}
	tests := []struct {
		name   string
		in     Answers
		linked string
		kind   FailureKind
		says   string
	}{
		{"nothing", body("", ""), "", Garbled, "the answer of 0 bytes cannot be read"},
		{"a page", body("<html>", sampleStatus), "", Garbled, "invalid character"},
		{"a string", body(`"ok"`, sampleStatus), "", Garbled, "cannot unmarshal string"},
		{"cut off", body(sampleNodes[:len(sampleNodes)-30], sampleStatus), "", Garbled, "unexpected EOF"},
		{"the status cut off", body(sampleNodes, sampleStatus[:100]), "", Garbled, "/api/cluster/status"},
		{"two documents", body(sampleNodes+sampleNodes, sampleStatus), "", Garbled, "something else follows"},
		{"too long", body(strings.Repeat(" ", MaxAnswer+1), sampleStatus), "", Garbled, "longer than"},
		{"too many", answers(many, []string{st}, ""), "", Garbled, "lists 4097 gateways, at most 4096"},
		{"empty", body(`{"items":[]}`, sampleStatus), "", Empty, "/api/cluster/nodes: the answer lists no gateway"},
		{"null", body(`null`, sampleStatus), "", Empty, "lists no gateway"},
		{"an error as JSON", body(`{"error":{"message":"no"}}`, sampleStatus), "", Empty, "lists no gateway"},
		{"no status", body(sampleNodes, `{"items":[]}`), "", Empty, "/api/cluster/status"},
		{"no key that can be used", answers([]string{item("a b", `"roles":[]`), item("", `"roles":[]`), `7`}, []string{st}, ""), "", Empty, "lists 3 gateways, of which none"},
		{"no central manager", answers([]string{mh}, []string{st}, ""), "", Contradictory, "no gateway of the 1 listed has the role"},
		{"two, and none is linked", answers([]string{cm, cm2}, []string{st}, ""), "", Contradictory, "cm, cm2 all say"},
		{"the linked one is another", answers([]string{cm2, mh}, []string{st}, ""), "cm", Contradictory, "the linked central manager cm is not one in its own list; cm2 is"},
		{"another one answers", answers([]string{cm, cm2}, []string{st}, `"self":"/api/cluster/status/cm2"`), "cm", Contradictory, `the answer comes from "cm2", and the linked central manager is cm`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			view, failure := Read(test.in, Expected{Central: test.linked})
			if view != nil || failure == nil || failure.Kind != test.kind || !strings.Contains(failure.Error(), test.says) {
				t.Fatalf("got %v, %v (%v), want %s: %s", view, failure, failure.Kind, test.kind, test.says)
			}
			if strings.Contains(failure.Error(), "fleet.") || strings.Contains(failure.Error(), "Go ") {
				t.Errorf("the text names a type: %s", failure)
			}
		})
	}
}

// What is odd and does not matter, each with what is made of it.
func TestOddAnswers(t *testing.T) {
	cm := item("cm", `"roles":["central-management"]`)
	up := func(key string) string {
		return fmt.Sprintf(`{"key":%q,"health_status":{"disk":10,"load1":1,"load5":1,"load15":1}}`, key)
	}
	tests := []struct {
		name     string
		nodes    []string
		statuses []string
		status   Status
		refuses  string
		remark   string
	}{
		{"a new field", []string{item("x", `"roles":["managed-host"],"colour":{"a":[1]}`)}, []string{up("x")}, Available, "", ""},
		{"twice the same", []string{item("x", `"roles":["managed-host"]`), item("x", `"roles":["managed-host"]`)}, []string{up("x")}, Available, "", "gateway x is listed twice"},
		{"twice, not the same", []string{item("x", `"roles":["managed-host"]`), item("x", `"roles":["managed-host","search-primary"]`)}, []string{up("x")},
			Unavailable, "it is the search-primary, which takes no sessions", "of gateway x the answer says two different things"},
		{"two statuses", []string{item("x", `"roles":["managed-host"]`)}, []string{up("x"), `{"key":"x","health_status":null}`}, Unavailable, "", "of gateway x the answer says two different things"},
		{"the same status twice", []string{item("x", `"roles":["managed-host"]`)}, []string{up("x"), up("x")}, Available, "", ""},
		{"a status of nobody", []string{item("x", `"roles":["managed-host"]`)}, []string{up("x"), up("y")}, Available, "", `a status is of "y", which is not listed`},
		{"no status", []string{item("x", `"roles":["managed-host"]`)}, nil, Unknown, "", ""},
		{"no health", []string{item("x", `"roles":["managed-host"]`)}, []string{`{"key":"x"}`}, Unknown, "", ""},
		{"health of another shape", []string{item("x", `"roles":["managed-host"]`)}, []string{`{"key":"x","health_status":{"disk":"full"}}`}, Unknown, "", "the health of gateway x cannot be read: cannot unmarshal string"},
		{"figures that cannot be", []string{item("x", `"roles":["managed-host"]`)}, []string{`{"key":"x","health_status":{"disk":101,"load1":1,"load5":1,"load15":1}}`}, Available, "", "has figures that cannot be"},
		{"a load below zero", []string{item("x", `"roles":["managed-host"]`)}, []string{`{"key":"x","health_status":{"disk":1,"load1":1,"load5":-1,"load15":1}}`}, Available, "", "has figures that cannot be"},
		{"takes none", []string{item("x", `"roles":["managed-host"]`)}, []string{`{"key":"x","health_status":{"accepts_sessions":false,"why":"the disk is full"}}`}, Unavailable, "", ""},
		{"an unknown role", []string{item("x", `"roles":["session-host"]`)}, []string{up("x")}, Available, "it has session-host", ""},
		{"a role that cannot be printed", []string{item("x", `"roles":["managed-host","search\u0007"]`)}, []string{up("x")}, Available, "is not known", "has a role that cannot be printed"},
		{"a mix that cannot be", []string{item("x", `"roles":["managed-host","central-management"]`)}, []string{up("x")}, Available, "exclude each other", "has roles that cannot be"},
		{"no address", []string{`{"key":"x","roles":["managed-host"],"address":"nowhere"}`}, []string{up("x")}, Available, "neither an address nor a name", "has an address that cannot be used"},
		{"roles of another shape", []string{item("x", `"roles":["managed-host"]`), item("y", `"roles":"managed-host"`)}, []string{up("x")}, Available, "", "a gateway cannot be read: cannot unmarshal string"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			view := mustRead(t, answers(append(test.nodes, cm), append(test.statuses, `{"key":"cm","health_status":null}`), ""), Expected{Central: "cm"})
			x := of(t, view, "x")
			if x.Status != test.status || !strings.Contains(x.Refuses(), test.refuses) || (test.refuses == "") != (x.Refuses() == "") {
				t.Errorf("it is %s and refuses %q, want %s and %q", x.Status, x.Refuses(), test.status, test.refuses)
			}
			if all := strings.Join(view.Remarks, "\n"); !strings.Contains(all, test.remark) || (test.remark == "") != (all == "") {
				t.Errorf("remarks %q, want %q", all, test.remark)
			}
			if x.Status != Available && x.Why == "" {
				t.Error("it does not say why")
			}
		})
	}
}

// Two that say that they are the central manager: the linked one counts, and both are named.
func TestTwoClaims(t *testing.T) {
	a := answers([]string{item("cm", `"roles":["central-management"]`), item("cm2", `"roles":["central-management"]`)},
		[]string{`{"key":"cm","health_status":null}`, `{"key":"cm2","health_status":null}`}, `"self":"/api/cluster/status/cm"`)
	view := mustRead(t, a, Expected{Central: "cm"})
	if view.Central != "cm" || !cmp.Equal(view.Claims, []string{"cm", "cm2"}) {
		t.Errorf("%s speaks, claims %q", view.Central, view.Claims)
	}
	if of(t, view, "cm").Status != Available || of(t, view, "cm2").Status != Unavailable {
		t.Error("only the one that answers is up by answering")
	}
	if view := mustRead(t, a, Expected{}); view.Central != "cm" {
		t.Errorf("not linked by key, %s speaks although cm answers", view.Central)
	}
}

func TestOwnFieldsAndBounds(t *testing.T) {
	var roles []string
	for i := range MaxRoles + 5 {
		roles = append(roles, fmt.Sprintf("%q", fmt.Sprint("r", i)))
	}
	cm := item("cm", `"addresses":["10.0.0.1","::ffff:10.0.0.2","fe80::1%eth0","0.0.0.0","224.0.0.1"],"roles":["central-management"],"protocols":{"SSH":2222,"rdp":0,"x y":1}`)
	x := item("x", `"roles":["managed-host",`+strings.Join(roles, ",")+`]`)
	health := `{"key":"cm","health_status":{"disk":1,"load1":1,"load5":1,"load15":1,"cores":8}}`
	view := mustRead(t, answers([]string{cm, x}, []string{health}, ""), Expected{Services: []Service{{RDP, 3389}}})
	g := of(t, view, "cm")
	if got := fmt.Sprint(g.Addresses); got != "[10.0.0.1 10.0.0.2 fe80::1]" {
		t.Errorf("addresses %s", got)
	}
	if !cmp.Equal(g.Services, []Service{{SSH, 2222}}) || g.Health.Cores != 8 {
		t.Errorf("services %v, %d cores", g.Services, g.Health.Cores)
	}
	if got := of(t, view, "x").Refuses(); !strings.Contains(got, "search-unreadable is not known") {
		t.Errorf("with roles that nobody looked at it refuses %q", got)
	}
	nodes := []string{item("cm", `"roles":["central-management"]`)}
	for i := range 3 * MaxRemarks {
		nodes = append(nodes, fmt.Sprint(i))
	}
	view = mustRead(t, answers(nodes, []string{health}, ""), Expected{})
	if n := len(view.Remarks); n != MaxRemarks || view.Remarks[n-1] != "and 65 more" {
		t.Errorf("%d remarks, the last %q", n, view.Remarks[n-1])
	}
}

func TestNewViewRefuses(t *testing.T) {
	for want, gateways := range map[string][]Gateway{
		"1 to 4096 gateways, not 0": nil,
		"gateway a is there twice":  {{Key: "a"}, {Key: "a"}},
		"printable characters":      {{Key: "a\nb"}},
		"not 4097":                  make([]Gateway, MaxGateways+1),
	} {
		if _, err := NewView("a", gateways); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAlike(t *testing.T) {
	one, two := mustRead(t, sample(), Expected{}), mustRead(t, sample(), Expected{})
	two.Gateways[0].Health.Load5 = 9
	if !one.Alike(two) || one.Alike(nil) || !(*View)(nil).Alike(nil) {
		t.Error("figures make views differ, or nothing does")
	}
	two.Gateways[0].Status = Unavailable
	if one.Alike(two) {
		t.Error("a gateway that went down makes no difference")
	}
}

// FuzzRead: whatever comes, it is a view that keeps to the bounds or a failure that says why; and a gateway that takes sessions has the
// role for it, spelled out.
func FuzzRead(f *testing.F) {
	f.Add([]byte(sampleNodes), []byte(sampleStatus), []byte(sampleHealth), central)
	f.Add([]byte(`{"items":[{"key":"a","roles":["managed-host"]},{"key":"a","roles":["central-management"]}]}`), []byte(`{"items":[{"key":"a","health_status":{}}]}`), []byte(""), "")
	f.Add([]byte(`{"items":[{"key":"a","address":"::1","roles":["central-management","search-primary"]}]}`), []byte(`{"items":[1]}`), []byte("null"), "a")
	f.Add([]byte(`null`), []byte(`{"items":null}`), []byte(`{`), "b")
	f.Fuzz(func(t *testing.T, nodes, status, health []byte, linked string) {
		view, failure := Read(Answers{Nodes: nodes, Status: status, Health: health}, Expected{Central: linked})
		if (view == nil) == (failure == nil) {
			t.Fatalf("%v and %v", view, failure)
		}
		if failure != nil {
			if failure.Evidence == "" || len(failure.Evidence) > 1<<20 {
				t.Fatalf("evidence of %d bytes", len(failure.Evidence))
			}
			return
		}
		checkView(t, view, string(nodes))
		if i, found := view.Find(view.Central); !found || linked != "" && view.Central != linked {
			t.Fatalf("%q speaks, %q is linked", view.Central, linked)
		} else if g := &view.Gateways[i]; g.Status == Unavailable && !strings.HasPrefix(g.Why, takesNone) {
			t.Fatalf("the one that answers is down: %s", g.Why)
		}
	})
}

func checkView(t *testing.T, view *View, nodes string) {
	t.Helper()
	if len(view.Gateways) == 0 || len(view.Gateways) > MaxGateways || len(view.Remarks) > MaxRemarks {
		t.Fatalf("%d gateways, %d remarks", len(view.Gateways), len(view.Remarks))
	}
	for i := range view.Gateways {
		g := &view.Gateways[i]
		if j, found := view.Find(g.Key); !found || j != i || !validKey(g.Key) || len(g.Addresses) > MaxAddresses || len(g.Name) > MaxName {
			t.Fatalf("gateway %d: %+v", i, g)
		}
		if g.Status != Available && g.Why == "" {
			t.Fatalf("%s is %s without a reason", g.Key, g.Status)
		}
		if g.Refuses() == "" && (g.Roles.Has(SearchPrimary) || !g.Roles.managed()) {
			t.Fatalf("%s takes sessions with %s, read of %q", g.Key, g.Roles, nodes)
		}
		if _, err := json.Marshal(g.Health); err != nil {
			t.Fatalf("health %+v", g.Health)
		}
	}
}
