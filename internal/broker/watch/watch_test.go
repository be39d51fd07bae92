package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// view is a fleet of a central manager cm and managed hosts, whose reports have a time that goes on with n.
func view(t testing.TB, n int, hosts ...string) *fleet.View {
	t.Helper()
	gateways := []fleet.Gateway{{Key: "cm", Name: "cm", Roles: fleet.NewRoles(fleet.CentralManagement), Status: fleet.Available}}
	for _, host := range hosts {
		g := fleet.Gateway{
			Key: strings.TrimSuffix(host, "-"), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Roles: fleet.NewRoles(fleet.ManagedHost),
			Status: fleet.Available, LastSeen: time.Unix(int64(n), 0),
		}
		if g.Key != host {
			g.Status, g.Why = fleet.Unavailable, "the central manager says that it is down"
		}
		gateways = append(gateways, g)
	}
	v, err := fleet.NewView("cm", gateways)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// player passes events to a watch and keeps the time.
type player struct {
	t     *testing.T
	watch *Watch
	now   time.Time
}

func play(t *testing.T, link Link) *player {
	link.Fleet, link.Address = "f", "cm:443"
	return &player{t, New(link, start), start}
}

// after lets time pass and then passes an event on.
func (p *player) after(d time.Duration, e Event) Actions {
	p.now = p.now.Add(d)
	return p.watch.Step(e, p.now)
}

func failed(kind fleet.FailureKind) Failed {
	return Failed{Failure: fleet.Failure{Kind: kind, Evidence: "it was " + kind.String()}}
}

func codes(alarms []Alarm) string {
	var list []string
	for _, a := range alarms {
		list = append(list, strings.TrimPrefix(a.Kind.Code, "broker."))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func keys(gateways []*fleet.Gateway) (list []string) {
	for _, g := range gateways {
		list = append(list, g.Key)
	}
	return list
}

func (p *player) standing(key string) *fleet.Standing {
	i, found := p.watch.picture.View.Find(key)
	if !found {
		p.t.Fatalf("there is no %s", key)
	}
	return &p.watch.picture.Standings[i]
}

// Each kind of failure: after how many in a row the last good view counts, and whether the central manager is taken for down then.
func TestFailures(t *testing.T) {
	for _, test := range []struct {
		kind   fleet.FailureKind
		misses int
		down   bool
		alarm  string
	}{
		{fleet.Refused, 2, true, "central-manager-down"},
		{fleet.TimedOut, 3, true, "central-manager-down"},
		{fleet.Unreachable, 3, true, "central-manager-down"},
		{fleet.Untrusted, 3, true, "central-manager-down"},
		{fleet.Unwell, 3, true, "central-manager-down"},
		{fleet.Garbled, 3, false, "answer-refused"},
		{fleet.Empty, 3, false, "answer-refused"},
		{fleet.Contradictory, 3, false, "answer-refused central-manager-contested"},
	} {
		t.Run(test.kind.String(), func(t *testing.T) {
			p := play(t, Link{})
			good := view(t, 1, "a", "b")
			p.after(0, Answered{good})
			for i := 1; i < test.misses; i++ {
				p.after(10*time.Second, failed(test.kind))
				if pic := p.watch.Picture(); p.watch.State() != Faltering || pic.Source != fleet.Live || pic.CentralDown {
					t.Fatalf("after %d: %s, %s", i, p.watch.State(), pic.Source)
				}
			}
			a := p.after(10*time.Second, failed(test.kind))
			pic := p.watch.Picture()
			if p.watch.State() != Lost || pic.Source != fleet.LastGood || pic.CentralDown != test.down || pic.View != good {
				t.Errorf("after %d: %s, %s, down %v", test.misses, p.watch.State(), pic.Source, pic.CentralDown)
			}
			if got := pic.Age(p.now); got != time.Duration(test.misses)*10*time.Second {
				t.Errorf("the view is %s old", got)
			}
			want := fmt.Sprintf("the central manager of fleet f was faltering and is lost: %d failed polls, the last one %s: it was %s", test.misses, test.kind, test.kind)
			if a.Told != want || codes(p.watch.Alarms()) != test.alarm {
				t.Errorf("told %q, alarms %q", a.Told, codes(p.watch.Alarms()))
			}
			p.after(10*time.Second, Answered{view(t, 2, "a", "b")})
			if p.watch.State() != Live || pic.CentralDown || pic.Age(p.now) != 0 || len(p.watch.Alarms()) != 0 {
				t.Errorf("after an answer: %s, alarms %q", p.watch.State(), codes(p.watch.Alarms()))
			}
		})
	}
}

// One refused poll between others is not two in a row.
func TestRefusalsInARow(t *testing.T) {
	p := play(t, Link{Misses: 9})
	p.after(0, Answered{view(t, 1, "a")})
	for _, kind := range []fleet.FailureKind{fleet.Refused, fleet.TimedOut, fleet.Refused} {
		if p.after(10*time.Second, failed(kind)); p.watch.State() != Faltering {
			t.Fatalf("after %s it is %s", kind, p.watch.State())
		}
	}
	if p.after(10*time.Second, failed(fleet.Refused)); p.watch.State() != Lost {
		t.Errorf("after two in a row it is %s", p.watch.State())
	}
}

// Nothing known: what is told, and that it ends by an answer.
func TestNeverSeen(t *testing.T) {
	p := play(t, Link{})
	if a := p.after(0, Tick{}); !a.Poll || len(p.watch.Alarms()) != 0 || p.watch.State() != Unheard {
		t.Errorf("at the start: %+v", a)
	}
	if p.after(3*time.Second, failed(fleet.TimedOut)); codes(p.watch.Alarms()) != "fleet-never-seen" || p.watch.Picture().Source != fleet.None {
		t.Errorf("after a failure: %q", codes(p.watch.Alarms()))
	}
	for range 5 {
		p.after(10*time.Second, failed(fleet.TimedOut))
	}
	if p.watch.State() != Lost || p.watch.Picture().Source != fleet.None || codes(p.watch.Alarms()) != "central-manager-down fleet-never-seen" {
		t.Errorf("after six: %s, %q", p.watch.State(), codes(p.watch.Alarms()))
	}
	if a := p.after(time.Second, Answered{view(t, 1, "a")}); !a.Keep || len(p.watch.Alarms()) != 0 {
		t.Errorf("after an answer: %+v", a)
	}
}

// Polls come every ten seconds, one at a time; one that never comes back is given up after three times its timeout.
func TestPolls(t *testing.T) {
	p := play(t, Link{})
	if a := p.after(0, Tick{}); !a.Poll || !a.Next.Equal(start.Add(9*time.Second)) {
		t.Errorf("at the start: %v, next %s", a.Poll, a.Next.Sub(start))
	}
	if a := p.after(8*time.Second, Tick{}); a.Poll {
		t.Error("a second poll began beside the first")
	}
	if a := p.after(time.Second, Tick{}); a.Poll || p.watch.failures != 1 || !a.Next.Equal(start.Add(10*time.Second)) {
		t.Errorf("after 9 s: %+v, %d failures", a, p.watch.failures)
	}
	if a := p.after(time.Second, Tick{}); !a.Poll {
		t.Error("after 10 s no poll is due")
	}
	if a := p.after(time.Second, Answered{view(t, 1, "a")}); a.Poll || !a.Next.Equal(start.Add(20*time.Second)) {
		t.Errorf("after the answer: %+v", a)
	}
	if got := p.watch.Picture().CentralWhy; got != "" {
		t.Errorf("after the answer it is still told: %s", got)
	}
}

// The warning age and the hard limit, each at its moment, and no step of a clock but that which is passed in.
func TestAges(t *testing.T) {
	p := play(t, Link{HardLimit: 20 * time.Minute})
	p.after(0, Answered{view(t, 1, "a")})
	for range 3 {
		p.after(time.Second, failed(fleet.TimedOut))
	}
	p.now = start
	for _, step := range []struct {
		at    time.Duration
		alarm string
	}{
		{10*time.Minute - time.Second, "central-manager-down"},
		{10 * time.Minute, "central-manager-down view-old"},
		{20*time.Minute - time.Second, "central-manager-down view-old"},
		{20 * time.Minute, "central-manager-down view-expired"},
		{5 * time.Minute, "central-manager-down view-expired"}, // time does not run backwards
	} {
		p.watch.Step(Tick{}, start.Add(step.at))
		if got := codes(p.watch.Alarms()); got != step.alarm {
			t.Errorf("at %s: %q, want %q", step.at, got, step.alarm)
		}
		if usable := p.watch.Picture().Usable(start.Add(step.at)); usable != (step.at < 20*time.Minute) {
			t.Errorf("at %s the view is usable: %v", step.at, usable)
		}
	}
}

// A second central manager raises an alarm; the linked one counts. An answer that speaks for another one changes nothing.
func TestContested(t *testing.T) {
	p := play(t, Link{})
	two := view(t, 1, "a", "b")
	two.Gateways[0].Roles = fleet.NewRoles(fleet.CentralManagement)
	two, err := fleet.NewView("cm", two.Gateways)
	if err != nil {
		t.Fatal(err)
	}
	p.after(0, Answered{two})
	if got := p.watch.Alarms(); codes(got) != "central-manager-contested" || got[0].Detail != "cm is linked; the role is also claimed by a" {
		t.Errorf("alarms %v", got)
	}
	other, _ := fleet.NewView("b", two.Gateways)
	if p.after(time.Second, Answered{other}); p.watch.Picture().View != two || p.watch.State() != Faltering || p.watch.Central() != "cm" {
		t.Errorf("an answer for another one: %s", p.watch.State())
	}
	if got := p.watch.Picture().CentralWhy; got != "the answer speaks for b, and the linked central manager is cm" {
		t.Errorf("told %q", got)
	}
	if got := codes(p.watch.Alarms()); got != "answer-refused central-manager-contested" {
		t.Errorf("alarms %q", got)
	}
	if p.after(time.Second, Answered{view(t, 2, "a", "b")}); len(p.watch.Alarms()) != 0 {
		t.Errorf("it stays: %q", codes(p.watch.Alarms()))
	}
}

// A view from disk: its age goes on, its central manager gets nothing until it answers, and it never replaces one from an answer.
func TestRestored(t *testing.T) {
	p := play(t, Link{})
	old := view(t, 1, "a")
	p.after(0, Restored{View: old, Age: time.Hour, AtLeast: true})
	pic := p.watch.Picture()
	if pic.Source != fleet.LastGood || pic.Age(p.now) != time.Hour || !pic.AtLeast || !pic.CentralDown || p.watch.Central() != "cm" || codes(p.watch.Alarms()) != "view-old" {
		t.Errorf("restored: %+v, %q", pic, codes(p.watch.Alarms()))
	}
	p.after(time.Second, Answered{view(t, 2, "a", "b")})
	if pic.AtLeast || pic.CentralDown || pic.Source != fleet.Live || pic.Age(p.now) != 0 {
		t.Errorf("after an answer: %+v", pic)
	}
	if p.after(time.Second, Restored{View: old, Age: 0}); len(pic.View.Gateways) != 3 {
		t.Error("a view from disk replaced a live one")
	}
	q := play(t, Link{Central: "other"})
	if q.after(0, Restored{View: old}); q.watch.Picture().View != nil {
		t.Error("a view from disk of another central manager was taken")
	}
}

// Launches count until a new sample comes; a sample that is the same one again is not new.
func TestLaunchesSinceTheSample(t *testing.T) {
	p := play(t, Link{})
	p.after(0, Answered{view(t, 1, "a", "b")})
	for range 5 {
		p.after(0, Launched{Gateway: "a", Outcome: Chosen})
	}
	p.after(0, Launched{Gateway: "gone", Outcome: Chosen})
	p.after(time.Second, Answered{view(t, 1, "a", "b")})
	if got := p.standing("a").Launches; got != 5 {
		t.Errorf("after the same sample: %d", got)
	}
	p.after(time.Second, Answered{view(t, 2, "a", "b")})
	if got := p.standing("a").Launches; got != 0 {
		t.Errorf("after a new one: %d", got)
	}
}

// Reports are judged by whether they change, not by what their clocks show: a gateway whose report stays the same is silent after three
// beats and a poll, however far its clock is off.
func TestSilentGateways(t *testing.T) {
	p := play(t, Link{})
	for i := range 8 {
		v := view(t, -1000+i, "a", "b")
		a := &v.Gateways[0]
		a.LastSeen = time.Unix(1<<40, 0) // far in the future, and always the same
		p.after(10*time.Second, Answered{v})
		if silent, want := !p.standing("a").SilentSince.IsZero(), i >= 5; silent != want || !p.standing("b").SilentSince.IsZero() || !p.standing("cm").SilentSince.IsZero() {
			t.Fatalf("after %d polls: silent %v", i+1, silent)
		}
	}
	if got := p.standing("a").SilentSince; !got.Equal(start.Add(10 * time.Second)) {
		t.Errorf("silent since %s", got)
	}
	v := view(t, 99, "a", "b")
	if p.after(10*time.Second, Answered{v}); !p.standing("a").SilentSince.IsZero() {
		t.Error("a new report does not end it")
	}
}

func TestDownSince(t *testing.T) {
	p := play(t, Link{})
	p.after(0, Answered{view(t, 1, "a", "b")})
	p.after(10*time.Second, Answered{view(t, 2, "a-", "b")})
	p.after(10*time.Second, Answered{view(t, 3, "a-", "b")})
	if got := p.standing("a").DownSince; !got.Equal(start.Add(10 * time.Second)) {
		t.Errorf("down since %s", got)
	}
	if codes(p.watch.Alarms()) != "" {
		t.Errorf("alarms %q", codes(p.watch.Alarms()))
	}
	p.after(10*time.Second, Answered{view(t, 4, "a", "b")})
	if !p.standing("a").DownSince.IsZero() {
		t.Error("back, and still down")
	}
}

func TestAlarmsOfGateways(t *testing.T) {
	only := func(roles fleet.Roles, status fleet.Status) *fleet.View {
		v, err := fleet.NewView("cm", []fleet.Gateway{
			{Key: "cm", Name: "cm", Roles: fleet.NewRoles(fleet.CentralManagement, fleet.SearchPrimary), Status: fleet.Available},
			{Key: "a", Name: "a", Roles: roles, Status: status, Why: "why"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	p := play(t, Link{})
	p.after(0, Answered{only(fleet.Roles{}, fleet.Available)})
	if got := p.watch.Alarms(); codes(got) != "fleet-hopeless" || !strings.HasPrefix(got[0].Detail, "a: it has no role") {
		t.Errorf("of a fleet that never launches: %v", got)
	}
	p.after(time.Second, Answered{only(fleet.NewRoles(fleet.ManagedHost), fleet.Unavailable)})
	if got := p.watch.Alarms(); codes(got) != "all-gateways-down" || got[0].Detail != "a" {
		t.Errorf("of a fleet that is down: %v", got)
	}
	p.after(time.Second, Answered{only(fleet.NewRoles(fleet.ManagedHost), fleet.Available)})
	p.after(time.Second, Launched{Gateway: "a", Outcome: Missed, Evidence: "refused"})
	if got := codes(p.watch.Alarms()); got != "all-gateways-down gateway-suspected" {
		t.Errorf("of one that does not answer: %q", got)
	}
	odd := only(fleet.NewRoles(fleet.ManagedHost), fleet.Available)
	odd.Remarks = []string{"a gateway is odd"}
	p.after(time.Second, Launched{Gateway: "a", Outcome: Reached})
	p.after(time.Second, Answered{odd})
	if got := p.watch.Alarms(); codes(got) != "answer-odd" || got[0].Detail != "a gateway is odd" {
		t.Errorf("of an odd answer: %v", got)
	}
}

// Keep is due with an answer that differs, and each minute otherwise, so that the age on disk follows also during an outage.
func TestKeep(t *testing.T) {
	p := play(t, Link{})
	if a := p.after(0, Answered{view(t, 1, "a")}); !a.Keep {
		t.Error("the first view is not kept")
	}
	if a := p.after(10*time.Second, Answered{view(t, 2, "a")}); a.Keep {
		t.Error("a view with new figures only is kept at once")
	}
	if a := p.after(10*time.Second, Answered{view(t, 3, "a-")}); !a.Keep {
		t.Error("a view that differs is not kept")
	}
	if a := p.after(10*time.Second, failed(fleet.TimedOut)); a.Keep {
		t.Error("a failure is kept")
	}
	if a := p.after(50*time.Second, Tick{}); !a.Keep {
		t.Error("after a minute nothing is kept")
	}
}
