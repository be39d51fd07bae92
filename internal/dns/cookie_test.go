package dns

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func fromHex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSipHash is the first and last vector of the authors' paper (appendix A: 15 octets) and of their reference code.
func TestSipHash(t *testing.T) {
	key := [16]byte(fromHex(t, "000102030405060708090a0b0c0d0e0f"))
	data := fromHex(t, "000102030405060708090a0b0c0d0e")
	if got := sipHash(&key, data); got != 0xa129ca6149be45e5 {
		t.Errorf("15 octets: %x", got)
	}
	if got := sipHash(&key, nil); got != 0x726fdb47dd0e0e31 {
		t.Errorf("nothing: %x", got)
	}
}

// TestServerCookiesOfRFC9018 are the vectors of its appendix A, as "client cookie, server cookie".
func TestServerCookiesOfRFC9018(t *testing.T) {
	const first, rolled = "e5e973e5a6b2a43f48e7dc849e37bfcf", "445536bcd2513298075a5d379663c962"
	for _, c := range []struct {
		section, secret, from string
		at                    int64
		want                  string
	}{
		{"A.1", first, "198.51.100.100", 1559731985, "2464c4abcf10c957010000005cf79f111f8130c3eee29480"},
		{"A.2", first, "198.51.100.100", 1559734385, "2464c4abcf10c957010000005cf7a871d4a564a1442aca77"},
		{"A.3", first, "203.0.113.203", 1559734700, "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"},
		{"A.4", rolled, "2001:db8:220:1:59de:d0f4:8769:82b8", 1559741961, "22681ab97d52c298010000005cf7c609a6bb79d16625507a"},
	} {
		jar := cookieJar{secrets: []CookieSecret{CookieSecret(fromHex(t, c.secret))}}
		whole := fromHex(t, c.want)
		from, at := netip.MustParseAddr(c.from), time.Unix(c.at, 0)
		if got := jar.make([8]byte(whole), from, at); hex.EncodeToString(got[:]) != c.want[16:] {
			t.Errorf("%s: server cookie %x, want %s", c.section, got, c.want[16:])
		}
	}
}

// TestCookieAge: a server cookie is good for an hour, renewed after half of it, and may be five minutes from the future
// (RFC 9018 section 4.3); it is good for its client only; one made before a change of the secret is good, and renewed.
func TestCookieAge(t *testing.T) {
	jar := cookieJar{secrets: []CookieSecret{{1}}}
	next := cookieJar{secrets: []CookieSecret{{2}, {1}}}
	stranger := cookieJar{secrets: []CookieSecret{{3}}}
	client := [8]byte{'c', 'l', 'i', 'e', 'n', 't'}
	server := jar.make(client, testClient, testNow)
	option := cookieOption{present: true, client: client, serverLen: serverCookieSize}
	copy(option.server[:], server[:])
	for _, c := range []struct {
		why          string
		jar          cookieJar
		from         netip.Addr
		after        time.Duration
		valid, young bool
	}{
		{"at once", jar, testClient, 0, true, true},
		{"in half an hour", jar, testClient, 30 * time.Minute, true, true},
		{"later", jar, testClient, 31 * time.Minute, true, false},
		{"in an hour", jar, testClient, time.Hour, true, false},
		{"too late", jar, testClient, time.Hour + time.Second, false, false},
		{"the clock was set back a little", jar, testClient, -5 * time.Minute, true, true},
		{"the clock was set back far", jar, testClient, -6 * time.Minute, false, false},
		{"from elsewhere", jar, testService, 0, false, false},
		{"after a change of the secret", next, testClient, 0, true, false},
		{"of another cluster", stranger, testClient, 0, false, false},
	} {
		if valid, young := c.jar.check(&option, c.from, testNow.Add(c.after)); valid != c.valid || young != c.young {
			t.Errorf("%s: valid %v, young %v", c.why, valid, young)
		}
	}
	option.client[0]++
	if valid, _ := jar.check(&option, testClient, testNow); valid {
		t.Error("valid for another client cookie")
	}
}

// cookieOf is the COOKIE option of a response.
func cookieOf(t *testing.T, m dnsmessage.Message) string {
	t.Helper()
	for _, r := range m.Additionals {
		if opt, ok := r.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				if o.Code == optionCookie {
					return string(o.Data)
				}
			}
		}
	}
	return ""
}

// TestCookieExchange: a client learns its server cookie, keeps it while it is young, and gets a new one for a forged
// one; without a question it can still ask for it (RFC 7873 sections 5.2 and 5.4).
func TestCookieExchange(t *testing.T) {
	a := newTestAnswerer(t, testView(), AnswererOptions{})
	exchange := func(cookie string) (string, dnsmessage.Message) {
		m := ask(t, a, udp(asked{name: "cluster.example.com.", qtype: dnsmessage.TypeA, edns: true,
			options: []dnsmessage.Option{{Code: optionCookie, Data: []byte(cookie)}}}.pack(t)))
		return cookieOf(t, m), m
	}
	learned, m := exchange("12345678")
	if len(learned) != 24 || learned[:8] != "12345678" || len(m.Answers) != 1 {
		t.Fatalf("learned %q, %d answers", learned, len(m.Answers))
	}
	if again, _ := exchange(learned); again != learned {
		t.Errorf("the cookie changes from %x to %x", learned, again)
	}
	forged := learned[:23] + string(learned[23]^1)
	if answer, m := exchange(forged); answer != learned || len(m.Answers) != 1 {
		t.Errorf("for a forged cookie: %x, %d answers", answer, len(m.Answers))
	}
	if answer, _ := exchange("12345678" + "not-one-of-ours-but-legal"); answer != learned {
		t.Errorf("for another maker's cookie: %x", answer)
	}
	empty := append([]byte("\x12\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"), "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x0812345678"...)
	if m := ask(t, a, udp(empty)); cookieOf(t, m) != learned || m.RCode != dnsmessage.RCodeSuccess || len(m.Questions) != 0 {
		t.Errorf("without a question: %+v", m)
	}
}
