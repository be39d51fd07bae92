package grants

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// noon is a Wednesday.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func window(t testing.TB, days, hours string) Window {
	t.Helper()
	w, err := ParseWindow(days, hours)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// examples are grants of which each shows one thing.
func examples(t testing.TB) []Grant {
	ssh := []Ports{{22, 22}}
	berlin := time.FixedZone("Europe/Berlin", 3600)
	return []Grant{
		{Name: "dba", Who: []Pattern{"anna", "bob"}, Targets: []Pattern{"db1", "*.db.company.com"}, Accounts: []Pattern{"postgres"}, Protocols: []string{SSH}, Ports: ssh, May: token.Shell | token.SFTP},
		{Name: "lab", Who: []Pattern{"*@company.com"}, Subnets: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}, Accounts: []Pattern{SameAsWho, "dev-*"}, Protocols: []string{SSH}, Ports: []Ports{{22, 22}, {2200, 2299}}, May: token.AllChannels, Proof: token.ForwardedAgent},
		{Name: "night", Who: []Pattern{"carol"}, Targets: []Pattern{Any}, Accounts: []Pattern{"root"}, Protocols: []string{SSH}, Ports: ssh, May: token.Shell, Windows: []Window{window(t, "mon-fri", "22:00-06:00")}, Zone: berlin},
		{Name: "sql", Who: []Pattern{"anna"}, Targets: []Pattern{"db1"}, Protocols: []string{TCP}, Ports: []Ports{{5432, 5432}}},
	}
}

// TestDecide: who gets in, by which grant, and what the others read.
func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name, who, account, host string
		port                     uint16
		protocol                 string
		want                     token.Channels
		now                      time.Time
		grant, says              string
	}{
		{"by name", "anna", "postgres", "db1", 22, SSH, 0, noon, "dba", "grant dba lets anna log in as postgres on db1"},
		{"by pattern", "bob", "postgres", "a.db.company.com", 22, SSH, token.Shell, noon, "dba", "for shell"},
		{"a name around the pattern's", "bob", "postgres", "a.db.company.com.evil.org", 22, SSH, 0, noon, "", "it does not lead to a.db.company.com.evil.org"},
		{"another user", "eve", "postgres", "db1", 22, SSH, 0, noon, "", "none is for eve"},
		{"nobody", "", "postgres", "db1", 22, SSH, 0, noon, "", "none is for"},
		{"case counts in names of users", "Anna", "postgres", "db1", 22, SSH, 0, noon, "", "none is for Anna"},
		{"another account", "anna", "root", "db1", 22, SSH, 0, noon, "", "the nearest is dba, and it is not for the account root"},
		{"no account", "anna", "", "db1", 22, SSH, 0, noon, "", "it is not for the account"},
		{"more rights", "anna", "postgres", "db1", 22, SSH, token.Shell | token.Jump, noon, "", "the nearest is dba, and it does not allow jump"},
		{"another port", "anna", "postgres", "db1", 2222, SSH, 0, noon, "", "it is not for port 2222"},
		{"by subnet", "dora@company.com", "dora@company.com", "10.1.2.3", 2250, SSH, 0, noon, "lab", ""},
		{"by subnet, IPv6", "dora@company.com", "dev-7", "2001:db8::1", 22, SSH, 0, noon, "lab", ""},
		{"beside the subnet", "dora@company.com", "dev-7", "10.2.2.3", 22, SSH, 0, noon, "", "it does not lead to 10.2.2.3"},
		{"a subnet does not mean names", "dora@company.com", "dev-7", "db1", 22, SSH, 0, noon, "", "it does not lead to db1"},
		{"a pattern does not mean addresses", "bob", "postgres", "10.1.2.3", 22, SSH, 0, noon, "", "it does not lead to 10.1.2.3"},
		{"everybody's own account, and no other's", "dora@company.com", "eric@company.com", "10.1.2.3", 22, SSH, 0, noon, "", "not for the account"},
		{"at night", "carol", "root", "anything", 22, SSH, 0, noon.Add(10 * time.Hour), "night", ""},
		{"the same night, after midnight", "carol", "root", "10.9.9.9", 22, SSH, 0, noon.Add(16 * time.Hour), "night", ""},
		{"by day", "carol", "root", "anything", 22, SSH, 0, noon, "", "it is for mon-fri 22:00-06:00 (Europe/Berlin), and there it is wed 13:00"},
		{"the night after Saturday", "carol", "root", "anything", 22, SSH, 0, noon.Add(3*24*time.Hour + 16*time.Hour), "", "there it is sun 05:00"},
		{"a tunnel", "anna", "", "db1", 5432, TCP, 0, noon, "sql", "open a tunnel to db1:5432"},
		{"a tunnel with an account", "anna", "postgres", "db1", 5432, TCP, 0, noon, "", "a tunnel has no account"},
		{"a tunnel with rights", "anna", "", "db1", 5432, TCP, token.Shell, noon, "", "no rights beside it"},
		{"a tunnel elsewhere", "anna", "", "db1", 22, TCP, 0, noon, "", "it is not for port 22"},
		{"a tunnel by a grant for ssh", "bob", "", "db1", 22, TCP, 0, noon, "", "it is not for the protocol tcp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(examples(t), Request{Who: c.who, Target: token.Target{Host: c.host, Port: c.port}, Account: c.account, Protocol: c.protocol, Want: c.want, Now: c.now})
			got := ""
			if d.Grant != nil {
				got = d.Grant.Name
			}
			if got != c.grant || !strings.Contains(d.Reason, c.says) {
				t.Errorf("by %q: %s; want by %q, saying %q", got, d.Reason, c.grant, c.says)
			}
			switch {
			case d.Grant == nil && d.May != 0:
				t.Errorf("it is refused and allows %s", d.May)
			case d.Grant != nil && c.protocol == TCP && d.May != token.Tunnel, d.Grant != nil && c.want != 0 && d.May != c.want:
				t.Errorf("it allows %s", d.May)
			}
		})
	}
	if d := Decide(nil, Request{Who: "root", Target: token.Target{Host: "db1", Port: 22}, Account: "root", Protocol: SSH, Now: noon}); d.Grant != nil || !strings.Contains(d.Reason, "there are no grants") {
		t.Errorf("without grants: %+v", d)
	}
}

// TestExplain: the whole of a decision.
func TestExplain(t *testing.T) {
	d := Decide(examples(t), Request{Who: "anna", Target: token.Target{Host: "db1", Port: 5432}, Protocol: TCP, Now: noon})
	const want = `grant: grant sql lets anna open a tunnel to db1:5432 (tunnel)
not: grant dba: it is not for the protocol tcp
not: grant lab: it is not for anna
not: grant night: it is not for anna
`
	if got := d.Explain(); got != want {
		t.Errorf("got:\n%s", got)
	}
}

func anyRequest(t *rapid.T) Request {
	r := Request{
		Who: rapid.SampledFrom([]string{"anna", "bob", "carol", "dora@company.com", "eve", ""}).Draw(t, "who"), Account: rapid.SampledFrom([]string{"postgres", "root", "dev-1", "", "dora@company.com"}).Draw(t, "account"),
		Target:   token.Target{Host: rapid.SampledFrom([]string{"db1", "a.db.company.com", "10.1.2.3", "10.2.0.1", "other"}).Draw(t, "host"), Port: rapid.SampledFrom([]uint16{22, 2222, 5432}).Draw(t, "port")},
		Protocol: rapid.SampledFrom([]string{SSH, TCP, "rdp"}).Draw(t, "protocol"), Now: noon.Add(time.Duration(rapid.IntRange(0, 7*24*60).Draw(t, "minutes")) * time.Minute),
	}
	if rapid.Bool().Draw(t, "wants") {
		r.Want = token.Channels(rapid.Uint16Range(1, uint16(token.Everything)).Draw(t, "want"))
	}
	return r
}

// TestNothingIsAddedUp: what is allowed is allowed by one grant alone; taking a grant away, or asking for more, never allows what was not.
func TestNothingIsAddedUp(t *testing.T) {
	list := examples(t)
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		d := Decide(list, r)
		alone := 0
		for i := range list {
			if one := Decide(list[i:i+1], r); one.Grant != nil {
				alone++
			}
		}
		if (d.Grant != nil) != (alone > 0) || d.Grant != nil && len(d.Passed) >= len(list) || d.Grant == nil && len(d.Passed) != len(list) {
			t.Fatalf("%d grants allow it alone, and all together: %+v", alone, d)
		}
		if d.Grant == nil {
			return
		}
		if r.Protocol == SSH && (d.May == 0 || !d.Grant.May.Has(d.May)) || r.Protocol == TCP && d.May != token.Tunnel || r.Protocol == "rdp" {
			t.Fatalf("%s allows %s: %+v", d.Grant.Name, d.May, r)
		}
		more := r
		if more.Want |= token.X11 | token.Jump; r.Protocol == SSH && !d.Grant.May.Has(more.Want) {
			if got := Decide([]Grant{*d.Grant}, more); got.Grant != nil {
				t.Fatalf("asking for more gets it: %+v", got)
			}
		}
	})
}

// TestPattern: against the slow obvious rule.
func TestPattern(t *testing.T) {
	var slow func(p, s string) bool
	slow = func(p, s string) bool {
		if p == "" {
			return s == ""
		}
		if p[0] == '*' {
			return slow(p[1:], s) || s != "" && slow(p, s[1:])
		}
		return s != "" && p[0] == s[0] && slow(p[1:], s[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		p, s := rapid.StringMatching(`[ab*]{1,8}`).Draw(t, "pattern"), rapid.StringMatching(`[ab]{0,10}`).Draw(t, "name")
		if got, want := Pattern(p).Matches(s), slow(p, s); got != want {
			t.Fatalf("%s matches %s: %t", p, s, got)
		}
	})
}

// TestWindow: every minute of a week, against the sum of its days.
func TestWindow(t *testing.T) {
	for _, c := range []struct {
		days, hours string
		minutes     int
	}{
		{"", "", 7 * 24 * 60}, {"mon-fri", "08:00-18:00", 5 * 600}, {"sat,sun", "", 2 * 1440}, {"fri-mon", "00:00-24:00", 4 * 1440}, {"mon", "22:00-06:00", 480}, {"daily", "23:59-00:01", 14}, {"sun", "12:00-24:00", 720},
	} {
		w, count := window(t, c.days, c.hours), 0
		for m := range 7 * 24 * 60 {
			if w.Has(noon.Add(time.Duration(m) * time.Minute)) {
				count++
			}
		}
		if count != c.minutes {
			t.Errorf("%s %s has %d minutes, want %d", c.days, c.hours, count, c.minutes)
		}
	}
	for _, bad := range [][2]string{{"monday", ""}, {"mon-", ""}, {"", "8-18"}, {"", "08:00"}, {"", "08:00-08:00"}, {"", "24:00-06:00"}, {"", "08:60-09:00"}, {"", "-1:00-09:00"}, {"mon;tue", ""}} {
		if w, err := ParseWindow(bad[0], bad[1]); err == nil {
			t.Errorf("%q is read as %v", bad, w)
		}
	}
}

// TestCleanHost: what a token may name, however it was written.
func TestCleanHost(t *testing.T) {
	for text, want := range map[string]string{
		"DB1.": "db1", "10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "[2001:DB8::1]": "2001:db8::1", "2001:db8:0:0::1": "2001:db8::1", "a_b-c.d": "a_b-c.d",
		"": "", "-db1": "", "db 1": "", "db1\n": "", "fe80::1%eth0": "", "db1/..": "", "10.1.2": "", "167837955": "", "0x0a010203": "", "010.001.002.003": "", ".db1": "", "db\u00e41": "", "a..": "",
	} {
		if got, err := CleanHost(text); got != want || (err != nil) != (want == "") {
			t.Errorf("%q becomes %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestParseTarget: what cannot mean what it seems to mean is refused.
func TestParseTarget(t *testing.T) {
	for text, good := range map[string]bool{
		"db1": true, "*.prod": true, "*": true, "10.1.2.3": true, "10.1.0.0/16": true, "2001:db8::/32": true, "10.*": false, "10.1.2.3/16": false, "::ffff:10.0.0.0/104": false, "fe80::1%a": false, "": false, "a b": false,
		"1.2.3/8": false, strings.Repeat("*a", 9): false,
	} {
		if _, _, err := ParseTarget(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"db1", "*.prod", "10.1.0.0/16", "mon-fri", "08:00-18:00", "8000-8100", "[::1]", "0x1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePattern(text); err == nil {
			p.Matches(text)
		}
		if _, subnet, err := ParseTarget(text); err == nil && subnet.IsValid() && subnet != subnet.Masked() {
			t.Errorf("%q has bits beyond its length", text)
		}
		if p, err := ParsePorts(text); err == nil && (p.First == 0 || p.Last < p.First) {
			t.Errorf("%q becomes %v", text, p)
		}
		if w, err := ParseWindow(text, ""); err == nil {
			w.Has(noon)
		}
		if w, err := ParseWindow("", text); err == nil && text != "" && w.Begin == w.End {
			t.Errorf("%q becomes %v", text, w)
		}
		if host, err := CleanHost(text); err == nil {
			if again, err := CleanHost(host); err != nil || again != host || host == "" || strings.ToLower(host) != host {
				t.Errorf("%q becomes %q, and that %q, %v", text, host, again, err)
			}
		}
	})
}

func ExampleDecide() {
	list := []Grant{{Name: "dba", Who: []Pattern{"anna"}, Targets: []Pattern{"db*"}, Accounts: []Pattern{"postgres"}, Protocols: []string{SSH}, Ports: []Ports{{22, 22}}, May: token.Shell}}
	d := Decide(list, Request{Who: "anna", Target: token.Target{Host: "db1", Port: 22}, Account: "root", Protocol: SSH})
	fmt.Println(d.Reason)
	// Output: no grant lets anna log in as root on db1: the nearest is dba, and it is not for the account root
}

// TestPatternsAreForNames: a pattern that looks like the end of an address does not lead to addresses.
func TestPatternsAreForNames(t *testing.T) {
	g := Grant{Name: "a", Who: []Pattern{Any}, Targets: []Pattern{"*a"}, Accounts: []Pattern{Any}, Protocols: []string{SSH}, Ports: []Ports{{22, 22}}, May: token.Shell}
	for host, want := range map[string]bool{"dba": true, "2001:db8::a": false} {
		if d := Decide([]Grant{g}, Request{Who: "anna", Target: token.Target{Host: host, Port: 22}, Account: "x", Protocol: SSH}); (d.Grant != nil) != want {
			t.Errorf("%s: %s", host, d.Reason)
		}
	}
}
