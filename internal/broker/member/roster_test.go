package member

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/pin"
)

var begin = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is a number of seconds after the roster began.
func at(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }

func described(name string, roles ...string) Description {
	if len(roles) == 0 {
		roles = []string{"managed-host", "search-local"}
	}
	return Description{Address: "192.0.2.1", Roles: roles, Own: Own{Name: name, Protocols: map[string]uint16{"ssh": 2222}, HostKeys: []string{"ssh-ed25519 AAAA"}}}
}

// fingerprintOf is the certificate of the n-th member.
func fingerprintOf(n int) pin.Fingerprint { return pin.Fingerprint{byte(n)} }

func keyOf(n int) string { return fmt.Sprintf("gw%d", n) }

func newRoster(members int, roles ...string) *Roster {
	if len(roles) == 0 {
		roles = []string{"central-management", "search-local"}
	}
	var all []Member
	for n := 1; n <= members; n++ {
		all = append(all, Member{keyOf(n), fingerprintOf(n)})
	}
	return NewRoster("cm", described("cm", roles...), all, 10*time.Second, begin)
}

func beatOf(n int, process string, sequence uint64, roles ...string) Beat {
	return Beat{Key: keyOf(n), Process: process, Sequence: sequence, Description: described(keyOf(n), roles...), Health: Health{Disk: 20, Load5: 1, Accepts: true}}
}

var standingNames = map[Standing]string{Unknown: "?", Up: "up", Down: "down"}

// standings prints how it stands with the members, in their order.
func (r *Roster) standingsText(now time.Time) string {
	all := r.Standings(now)
	var texts []string
	for n := 1; n <= len(all); n++ {
		texts = append(texts, standingNames[all[keyOf(n)]])
	}
	return strings.Join(texts, " ")
}

// TestRoster tells stories of beats: who is up, down and unknown after each.
func TestRoster(t *testing.T) {
	type step struct {
		at   float64 // seconds
		by   int     // whose certificate; 0: nobody reports
		beat Beat
		want string // the standings, or of a beat that does not count the kind of refusal and the standings
	}
	for _, story := range []struct {
		name    string
		members int
		steps   []step
	}{
		{"who has not been heard yet is unknown, and down after three beats", 2, []step{
			{0, 0, Beat{}, "? ?"},
			{5, 1, beatOf(1, "a", 1), "up ?"},
			{29.9, 1, beatOf(1, "a", 2), "up ?"},
			{30, 1, beatOf(1, "a", 3), "up down"},
		}},
		{"one that is silent for three beats is down, and up again with the first", 2, []step{
			{1, 1, beatOf(1, "a", 1), "up ?"},
			{20, 2, beatOf(2, "b", 1), "up up"},
			{30.9, 2, beatOf(2, "b", 2), "up up"},
			{31, 0, Beat{}, "down up"},
			{40, 1, beatOf(1, "a", 2), "up up"},
		}},
		{"one that starts anew counts at once, and its earlier process not while it lives", 1, []step{
			{1, 1, beatOf(1, "a", 7), "up"},
			{2, 1, beatOf(1, "b", 1), "up"},
			{3, 1, beatOf(1, "a", 8), "3 up"},
			{32, 0, Beat{}, "down"},
			{33, 1, beatOf(1, "a", 9), "up"},
		}},
		{"a beat that comes twice, or after a later one, keeps nobody up", 2, []step{
			{0, 2, beatOf(2, "b", 1), "? up"},
			{1, 1, beatOf(1, "a", 5), "up up"},
			{20, 1, beatOf(1, "a", 5), "up up"},
			{21, 1, beatOf(1, "a", 4), "up up"},
			{25, 2, beatOf(2, "b", 2), "up up"},
			{31, 0, Beat{}, "down up"},
		}},
		{"nobody speaks for another", 2, []step{
			{1, 1, beatOf(2, "a", 1), "1 ? ?"},
			{2, 9, beatOf(1, "a", 1), "0 ? ?"},
		}},
		{"a fleet has one central manager and one search-primary", 2, []step{
			{1, 1, beatOf(1, "a", 1, "central-management", "search-local"), "2 ? ?"},
			{2, 1, beatOf(1, "a", 2, "managed-host", "search-primary"), "up ?"},
			{3, 2, beatOf(2, "b", 1, "managed-host", "search-primary"), "2 up ?"},
			{40, 2, beatOf(2, "b", 2, "managed-host", "search-primary"), "? up"},
		}},
		{"whoever has heard nobody was cut off itself: from the first beat on, the others are unknown", 3, []step{
			{1, 1, beatOf(1, "a", 1), "up ? ?"},
			{1, 2, beatOf(2, "b", 1), "up up ?"},
			{1, 3, beatOf(3, "c", 1), "up up up"},
			{31, 0, Beat{}, "down down down"},
			{60, 2, beatOf(2, "b", 2), "? up ?"},
			{61, 1, beatOf(1, "a", 2), "up up ?"},
			{89, 2, beatOf(2, "b", 3), "up up ?"},
			{90, 1, beatOf(1, "a", 3), "up up down"},
		}},
		{"a clock that steps back makes nobody younger", 1, []step{
			{20, 1, beatOf(1, "a", 1), "up"},
			{5, 0, Beat{}, "up"},
			{50, 0, Beat{}, "down"},
			{5, 0, Beat{}, "down"},
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			r := newRoster(story.members)
			for _, s := range story.steps {
				refused := ""
				if s.by != 0 {
					var refusal *Refusal
					if err := r.Hear(fingerprintOf(s.by), s.beat, at(s.at)); errors.As(err, &refusal) {
						refused = fmt.Sprint(refusal.Kind) + " "
					} else if err != nil {
						t.Fatal(err)
					}
				}
				if got := refused + r.standingsText(at(s.at)); got != s.want {
					t.Fatalf("at %v s: %s, want %s", s.at, got, s.want)
				}
			}
		})
	}
}

// TestBrokersReadTheRoster: what a central manager answers is what package fleet reads: unknown is neither up nor down.
func TestBrokersReadTheRoster(t *testing.T) {
	r := newRoster(3)
	for n := 1; n <= 2; n++ {
		if err := r.Hear(fingerprintOf(n), beatOf(n, "a", 1), at(float64(n))); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]fleet.Status{"cm": fleet.Available, "gw1": fleet.Unavailable, "gw2": fleet.Available, "gw3": fleet.Unavailable}
	if diff := cmp.Diff(want, statuses(t, r, at(31))); diff != "" {
		t.Errorf("after gw1 was silent (-want +got):\n%s", diff)
	}

	// The central manager starts anew, and remembers what they are.
	text, changed := r.Remember()
	if !changed {
		t.Fatal("nothing is to be remembered")
	}
	again := newRoster(3)
	if err := again.Recall(text); err != nil {
		t.Fatal(err)
	}
	want = map[string]fleet.Status{"cm": fleet.Available, "gw1": fleet.Unknown, "gw2": fleet.Unknown, "gw3": fleet.Unknown}
	if diff := cmp.Diff(want, statuses(t, again, at(1))); diff != "" {
		t.Errorf("after a start (-want +got):\n%s", diff)
	}
	if view := viewOf(t, again, at(1)); view.Gateways[1].Own == nil || view.Gateways[1].Own.Name != "gw1" || len(view.Gateways[1].Own.HostKeys) != 1 {
		t.Errorf("what gw1 is was not remembered: %+v", view.Gateways[1])
	}
	for _, damaged := range []string{"", "{}", `{"format":2,"members":{}}`, string(text) + "x", `{"format":1,"members":{"gw1":{"roles":["emperor"]}}}`} {
		if again.Recall([]byte(damaged)) == nil {
			t.Errorf("%q is taken for what was remembered", damaged)
		}
	}
}

func viewOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Roster, now time.Time) *fleet.View {
	t.Helper()
	view, failure := fleet.Read(fleet.Answers{Nodes: r.Nodes(), Status: r.Status(Health{Accepts: true}, now), Health: HealthAnswer("cm", Health{Accepts: true})}, fleet.Expected{})
	if failure != nil {
		t.Fatalf("the answers cannot be read: %v", failure)
	}
	return view
}

func statuses(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Roster, now time.Time) map[string]fleet.Status {
	t.Helper()
	all := map[string]fleet.Status{}
	for _, g := range viewOf(t, r, now).Gateways {
		all[g.Key] = g.Status
	}
	return all
}

// TestAnyBeats: whatever members send, in whatever order, one is up only if it has itself been heard within three beats, and a broker reads the same.
func TestAnyBeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 4).Draw(t, "members")
		r := newRoster(members)
		heard := map[int]time.Time{} // when a beat of one was last taken in hand, whether or not it counted
		now := begin
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 15000).Draw(t, "later")) * time.Millisecond)
			by, of := rapid.IntRange(1, members).Draw(t, "by"), rapid.IntRange(1, members).Draw(t, "of")
			process := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "process")
			err := r.Hear(fingerprintOf(by), beatOf(of, process, rapid.Uint64Range(1, 6).Draw(t, "sequence")), now)
			if by != of && err == nil {
				t.Fatalf("%s spoke for %s", keyOf(by), keyOf(of))
			}
			if err == nil {
				heard[by] = now
			}
			read := statuses(t, r, now)
			for n := 1; n <= members; n++ {
				standing := r.Standings(now)[keyOf(n)]
				if last, ever := heard[n]; standing == Up && (!ever || now.Sub(last) >= 30*time.Second) {
					t.Fatalf("%s is up, and was last heard at %v", keyOf(n), last)
				}
				want := map[Standing]fleet.Status{Unknown: fleet.Unknown, Up: fleet.Available, Down: fleet.Unavailable}[standing]
				if read[keyOf(n)] != want {
					t.Fatalf("%s is %s, and a broker reads %s", keyOf(n), standingNames[standing], read[keyOf(n)])
				}
			}
		}
	})
}

// TestMembersChange: one that is taken off the list is not listened to any more; one that gets another certificate has to be heard by that.
func TestMembersChange(t *testing.T) {
	r := newRoster(2)
	for n := 1; n <= 2; n++ {
		if err := r.Hear(fingerprintOf(n), beatOf(n, "a", 1), at(1)); err != nil {
			t.Fatal(err)
		}
	}
	r.SetMembers([]Member{{"gw1", fingerprintOf(7)}}, at(2))
	if got := r.standingsText(at(2)); got != "?" {
		t.Errorf("with another certificate: %s", got)
	}
	for _, by := range []int{1, 2} {
		if r.Hear(fingerprintOf(by), beatOf(by, "a", 2), at(3)) == nil {
			t.Errorf("certificate %d still counts", by)
		}
	}
	if err := r.Hear(fingerprintOf(7), beatOf(1, "b", 1), at(3)); err != nil || r.standingsText(at(3)) != "up" {
		t.Errorf("by its new certificate: %v, %s", err, r.standingsText(at(3)))
	}
}

// TestMembersThatCannotBe are lists that are refused, each with all that is wrong with it.
func TestMembersThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		want    string
		members []Member
	}{
		{"is this gateway itself", []Member{{"cm", fingerprintOf(1)}}},
		{"listed twice", []Member{{"gw1", fingerprintOf(1)}, {"gw1", fingerprintOf(2)}}},
		{"one fingerprint", []Member{{"gw1", fingerprintOf(1)}, {"gw2", fingerprintOf(1)}}},
		{"letters, digits", []Member{{"../x", fingerprintOf(1)}}},
		{"at most", make([]Member, MaxMembers+1)},
	} {
		if err := CheckMembers("cm", c.members); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

// TestRolesThatCannotBe: of each mix that is refused the reason, and of the others that they are not.
func TestRolesThatCannotBe(t *testing.T) {
	for roles, want := range map[string]string{
		"central-management search-local":              "",
		"central-management search-primary":            "",
		"managed-host search-minion":                   "",
		"managed-host search-primary":                  "",
		"managed-host emperor":                         "is no role",
		"managed-host central-management search-local": "central-management",
		"managed-host search-local search-minion":      "search",
		"search-local":                                 "managed-host",
		"managed-host search-primary search-minion":    "search",
		"": "needed",
	} {
		_, err := CheckRoles(strings.Fields(roles))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", roles, err, want)
		}
	}
}

// TestTheListStaysReadable: members that say more of themselves than brokers would read are refused, and the list stays as it was.
func TestTheListStaysReadable(t *testing.T) {
	r := newRoster(MaxMembers)
	big := beatOf(1, "a", 1)
	for range fleet.MaxHostKeys {
		big.Own.HostKeys = append(big.Own.HostKeys[:len(big.Own.HostKeys):len(big.Own.HostKeys)], strings.Repeat("A", fleet.MaxHostKey))
	}
	big.Own.HostKeys = big.Own.HostKeys[1:]
	refusedOnes := 0
	for n := 1; n <= 255; n++ { // as many as there are fingerprints here
		big.Key = keyOf(n)
		var refusal *Refusal
		if err := r.Hear(fingerprintOf(n), big, at(1)); errors.As(err, &refusal) && refusal.Kind == ListTooLong {
			refusedOnes++
		}
	}
	if size := len(r.Nodes()); size > fleet.MaxAnswer {
		t.Errorf("the list has %d bytes, and brokers read %d", size, fleet.MaxAnswer)
	}
	t.Logf("%d of 255 were refused", refusedOnes)
}

// FuzzParseBeat: whatever is read as a beat can be taken, and the answers that follow can be read by brokers.
func FuzzParseBeat(f *testing.F) {
	f.Add(written(beatOf(1, "a", 1)))
	f.Add([]byte(`{"key":"gw1","process":"p","sequence":1,"address":"::ffff:1.2.3.4","roles":["managed-host","search-minion"],"holdfast":{"name":"x"},"health_status":{"disk":100,"why":"full"}}`))
	f.Add([]byte(`{"key":"gw1","process":"p","sequence":1,"fqdn":"gw1.company.com","roles":["managed-host","search-local"],"holdfast":{"name":"x","protocols":{"ssh":1}},"health_status":{"load1":1e6,"sessions":{"ssh":3}}}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ParseBeat(text)
		if err != nil {
			return
		}
		b.Key = "gw1"
		r := newRoster(1)
		var refusal *Refusal
		if err := r.Hear(fingerprintOf(1), b, at(1)); err != nil && !errors.As(err, &refusal) {
			t.Fatal(err)
		}
		view := viewOf(t, r, at(1))
		if refusal == nil && view.Gateways[1].Status == fleet.Unknown {
			t.Fatalf("a broker cannot read what it says: %+v from %s", view.Gateways[1], text)
		}
	})
}
