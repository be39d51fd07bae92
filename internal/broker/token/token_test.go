package token

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// brokerKey makes the key of a broker from one byte.
func brokerKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func example() Grant {
	return Grant{
		ID: ID{1, 2, 3}, Gateway: "gw1", Who: "alice@example.com", Target: Target{Host: "db1.example.com", Port: 22}, Account: "postgres",
		May: Shell | SFTP, Issued: noon, Expires: noon.Add(2 * time.Minute), SessionLimit: 8 * time.Hour, Rule: "databases", Fitness: "71.5",
	}
}

func mustSign(t testing.TB, g Grant, key ed25519.PrivateKey) string {
	t.Helper()
	text, err := Sign(g, key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestToken: who may come in, with what, and what the others are told.
func TestToken(t *testing.T) {
	known := []ed25519.PublicKey{public(brokerKey(1)), public(brokerKey(2))}
	good := mustSign(t, example(), brokerKey(2))
	later := example()
	later.Issued, later.Expires = noon.Add(time.Minute), noon.Add(2*time.Minute)
	for _, c := range []struct {
		name, text, gateway string
		now                 time.Time
		why                 Refusal
		says                string
	}{
		{"good", good, "gw1", noon, 0, ""},
		{"good until the last second", good, "gw1", noon.Add(2*time.Minute - time.Second), 0, ""},
		{"expired", good, "gw1", noon.Add(3 * time.Minute), Expired, "expired 1m0s ago"},
		{"expired to the second", good, "gw1", noon.Add(2 * time.Minute), Expired, "expired 0s ago"},
		{"for another gateway", good, "gw2", noon, Elsewhere, "for the gateway gw1"},
		{"a clock a little behind", mustSign(t, later, brokerKey(1)), "gw1", noon.Add(31 * time.Second), 0, ""},
		{"from the future", mustSign(t, later, brokerKey(1)), "gw1", noon.Add(20 * time.Second), Early, "from the future by 40s"},
		{"by an unknown broker", mustSign(t, example(), brokerKey(9)), "gw1", noon, Unsigned, "No broker"},
		{"one letter changed", good[:40] + flip(good[40]) + good[41:], "gw1", noon, Unsigned, "No broker"},
		{"cut off", good[:len(good)-1], "gw1", noon, Unsigned, "damaged"},
		{"hardly begun", good[:20], "gw1", noon, Malformed, "cut off"},
		{"of a later version", strings.Replace(good, "hf1.A", "hf1.B", 1), "gw1", noon, Malformed, "version"},
		{"a user name", "postgres", "gw1", noon, Malformed, "not a session token"},
		{"nothing", "", "gw1", noon, Malformed, "not a session token"},
		{"endless", "hf1." + strings.Repeat("A", MaxText), "gw1", noon, Malformed, "not a session token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			grant, err := Parse(c.text, known)
			if err == nil {
				err = grant.Check(c.gateway, c.now)
			}
			var refused *Refused
			errors.As(err, &refused)
			switch {
			case c.why == 0 && err != nil:
				t.Errorf("refused: %v", err)
			case c.why != 0 && (refused == nil || refused.Why != c.why || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want %v saying %q", err, c.why, c.says)
			}
		})
	}
}

func flip(b byte) string {
	if b == 'A' {
		return "B"
	}
	return "A"
}

// TestTextIsAUserName: OpenSSH's client refuses user names that begin with '-' or hold what a shell would read, and people paste the text into URLs.
func TestTextIsAUserName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := Sign(anyGrant(t), brokerKey(1))
		if err != nil {
			return // too long in sum
		}
		if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || text[0] == '-' || len(text) > MaxText {
			t.Fatalf("%q", text)
		}
	})
}

// TestUsualLength: with usual names a token stays below 300 characters.
func TestUsualLength(t *testing.T) {
	if text := mustSign(t, example(), brokerKey(1)); len(text) > 300 {
		t.Errorf("%d characters: %s", len(text), text)
	}
}

func anyName(t *rapid.T, label string, least int) string {
	return rapid.StringMatching(fmt.Sprintf(`[a-zü0-9@._-]{%d,40}`, least)).Draw(t, label)
}

func anyGrant(t *rapid.T) Grant {
	issued := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "issued"), 0)
	g := Grant{
		Gateway: anyName(t, "gateway", 1), Who: anyName(t, "who", 1), Account: anyName(t, "account", 1), Rule: anyName(t, "rule", 0), Fitness: anyName(t, "fitness", 0),
		Target: Target{Host: anyName(t, "host", 1), Port: rapid.Uint16Min(1).Draw(t, "port")},
		May:    Channels(rapid.Uint16Range(1, uint16(AllChannels)).Draw(t, "may")), Proof: Proof(rapid.Uint8Max(1).Draw(t, "proof")),
		Issued: issued, Expires: issued.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "validity")) * time.Second),
		SessionLimit: time.Duration(rapid.IntRange(0, 1e6).Draw(t, "limit")) * time.Second,
	}
	copy(g.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	if rapid.Bool().Draw(t, "tunnel") {
		g.May, g.Account, g.Proof = Tunnel, "", Certificate
	}
	if rapid.Bool().Draw(t, "bound") {
		copy(g.ClientKey[:], rapid.SliceOfN(rapid.ByteRange(1, 255), 32, 32).Draw(t, "key"))
	}
	return g
}

// TestRoundTrip: what is signed is what is read, whatever it is.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyGrant(t)
		text, err := Sign(want, brokerKey(1))
		if err != nil {
			if !strings.Contains(err.Error(), "characters, at most") {
				t.Fatal(err)
			}
			return
		}
		got, err := Parse(text, []ed25519.PublicKey{public(brokerKey(1))})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestNobodyElse: a token with any one bit changed is no token.
func TestNobodyElse(t *testing.T) {
	text := mustSign(t, example(), brokerKey(1))
	raw, err := encoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(raw) * 8 {
		changed := bytes.Clone(raw)
		changed[bit/8] ^= 1 << (bit % 8)
		if grant, err := Parse(prefix+encoding.EncodeToString(changed), []ed25519.PublicKey{public(brokerKey(1))}); err == nil {
			t.Errorf("bit %d changed, and it is still good for %s", bit, grant.Target)
		}
	}
}

// TestOtherSignatures: what a broker's key signed for another purpose is no token.
func TestOtherSignatures(t *testing.T) {
	key := brokerKey(1)
	payload := example().payload(KeyID(public(key)))
	text := prefix + encoding.EncodeToString(append(payload, ed25519.Sign(key, payload)...))
	var refused *Refused
	if _, err := Parse(text, []ed25519.PublicKey{public(key)}); !errors.As(err, &refused) || refused.Why != Unsigned {
		t.Errorf("got %v", err)
	}
}

func TestNotSigned(t *testing.T) {
	for want, change := range map[string]func(*Grant){
		"no gateway":     func(g *Grant) { g.Gateway = "" },
		"no requester":   func(g *Grant) { g.Who = "" },
		"no account":     func(g *Grant) { g.Account = "" },
		"no host":        func(g *Grant) { g.Target.Host = "" },
		"no port":        func(g *Grant) { g.Target.Port = 0 },
		"allows nothing": func(g *Grant) { g.May = 0 },
		"allows nothing, or something that this version does not know": func(g *Grant) { g.May = 1 << 15 },
		"do not print":                      func(g *Grant) { g.Who = "alice\nroot" },
		"at most 128":                       func(g *Grant) { g.Who = strings.Repeat("a", 129) },
		"at most 15m0s":                     func(g *Grant) { g.Expires = g.Issued.Add(16 * time.Minute) },
		"good for 0s":                       func(g *Grant) { g.Expires = g.Issued },
		"not in lower case":                 func(g *Grant) { g.Target.Host = "DB1" },
		"session limit":                     func(g *Grant) { g.SessionLimit = -time.Second },
		"a way to log in":                   func(g *Grant) { g.Proof = 7 },
		"a tunnel, and something beside it": func(g *Grant) { g.May = Tunnel },
		"and something beside":              func(g *Grant) { g.May, g.Account = Tunnel|Shell, "postgres" },
		"nobody logs in there":              func(g *Grant) { g.May, g.Account, g.Proof = Tunnel, "", ForwardedAgent },
		"at most 1024": func(g *Grant) {
			g.Who, g.Rule, g.Fitness, g.Account, g.Target.Host, g.Gateway = long, long, long, long, long, long
		},
	} {
		g := example()
		change(&g)
		if _, err := Sign(g, brokerKey(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

var long = strings.Repeat("a", MaxName)

// TestOnce: a token is accepted once, and a memory that is full refuses rather than forgets.
func TestOnce(t *testing.T) {
	spent := NewSpent(2)
	grant := func(n byte) Grant {
		g := example()
		g.ID = ID{n}
		return g
	}
	outcome := func(g Grant, now time.Time) Refusal {
		var refused *Refused
		if errors.As(spent.Spend(g, now), &refused) {
			return refused.Why
		}
		return 0
	}
	for i, step := range []struct {
		token byte
		after time.Duration
		want  Refusal
	}{
		{1, 0, 0}, {1, 0, Used}, {2, 0, 0}, {3, 0, Full}, {1, time.Minute, Used},
		{3, 3 * time.Minute, Full}, // the first two have expired, but a clock that is set back would make them good again
		{3, 17 * time.Minute, 0},
	} {
		if got := outcome(grant(step.token), noon.Add(step.after)); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	if spent.Count() != 1 {
		t.Errorf("%d tokens are remembered, want 1", spent.Count())
	}
}

// TestSpentNeverForgets: whatever comes, no token is accepted twice while any could be good, and never more are kept than allowed.
func TestSpentNeverForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spent, accepted, now := NewSpent(4), map[ID]bool{}, noon
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seconds")) * time.Second)
			g := example()
			g.ID = ID{rapid.Byte().Draw(t, "id") % 12}
			g.Issued, g.Expires = noon.Add(time.Duration(g.ID[0])*time.Minute), noon.Add(time.Duration(g.ID[0])*time.Minute+time.Minute)
			if g.Check("gw1", now) != nil {
				continue
			}
			if spent.Spend(g, now) == nil {
				if accepted[g.ID] {
					t.Fatalf("%v was accepted twice", g.ID)
				}
				accepted[g.ID] = true
			}
			if spent.Count() > 4 {
				t.Fatalf("%d are kept", spent.Count())
			}
		}
	})
}

// TestTargetIs: what a client may write for the target, and what it may not.
func TestTargetIs(t *testing.T) {
	for _, c := range []struct {
		target Target
		host   string
		port   uint32
		want   bool
	}{
		{Target{"db1", 22}, "db1", 22, true},
		{Target{"db1", 22}, "DB1", 22, true},
		{Target{"db1", 22}, "db1.", 22, true},
		{Target{"db1", 22}, "db1", 23, false},
		{Target{"db1", 22}, "db1", 65536 + 22, false},
		{Target{"db1", 22}, "db2", 22, false},
		{Target{"db1", 22}, "127.0.0.1", 22, false},
		{Target{"10.0.0.1", 22}, "10.0.0.1", 22, true},
		{Target{"10.0.0.1", 22}, "::ffff:10.0.0.1", 22, true},
		{Target{"fe80::1", 22}, "FE80:0::1", 22, true},
		{Target{"fe80::1", 22}, "[fe80::1]", 22, true},
		{Target{"fe80::1", 22}, "fe80::2", 22, false},
	} {
		if got := c.target.Is(c.host, c.port); got != c.want {
			t.Errorf("%v is %s %d: %v", c.target, c.host, c.port, got)
		}
	}
}

func TestChannelNames(t *testing.T) {
	set, err := ParseChannels([]string{"shell", "jump"})
	if err != nil || set != Shell|Jump || set.String() != "shell,jump" {
		t.Errorf("%v %v", set, err)
	}
	if _, err := ParseChannels([]string{"telnet"}); err == nil || !strings.Contains(err.Error(), "write shell, exec") {
		t.Errorf("got %v", err)
	}
	if got := Everything.Names(); len(got) != len(channelNames) || got[len(got)-1] != "tunnel" {
		t.Errorf("all channels are %v", got)
	}
}

// FuzzParse: no text makes the parser fail, and what it accepts has one text only.
func FuzzParse(f *testing.F) {
	key := brokerKey(1)
	f.Add(mustSign(f, example(), key))
	bound := example()
	bound.ClientKey = [32]byte{1}
	f.Add(mustSign(f, bound, key))
	f.Add("hf1.")
	f.Add("root")
	f.Fuzz(func(t *testing.T, text string) {
		grant, err := Parse(text, []ed25519.PublicKey{public(key)})
		if err != nil {
			return
		}
		if again, err := Sign(grant, key); err != nil || again != text {
			t.Errorf("%q was read as what signs to %q, %v", text, again, err)
		}
	})
}

// FuzzRead: the fields are read without their signature, so that the fuzzer gets to them.
func FuzzRead(f *testing.F) {
	f.Add(example().payload([4]byte{})[5:])
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := read(data)
		if err == nil && !bytes.Equal(g.payload([4]byte{})[5:], data) {
			t.Errorf("%x was read as %+v", data, g)
		}
	})
}
