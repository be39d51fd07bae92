package probe

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/bubble"
)

// replier is a DNS server over pipes: what it says by UDP and by TCP, and what it was asked. A nil reply is silence.
type replier struct {
	udp, tcp func(query dnsmessage.Message) *dnsmessage.Message
	asked    []string
}

func (r *replier) dial(_ context.Context, network, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer func() { _ = theirs.Close() }()
		for {
			buffer := make([]byte, 512)
			n, err := theirs.Read(buffer)
			if err != nil {
				return
			}
			raw, say := buffer[:n], r.udp
			if network == "tcp" {
				raw, say = raw[2:], r.tcp
			}
			var query dnsmessage.Message
			if query.Unpack(raw) != nil {
				return
			}
			r.asked = append(r.asked, network)
			said := say(query)
			if said == nil {
				continue
			}
			said.ID, said.Response, said.Questions = query.ID, true, query.Questions
			packed, err := said.Pack()
			if err != nil {
				return
			}
			if network == "tcp" {
				packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
			}
			if _, err := theirs.Write(packed); err != nil {
				return
			}
		}
	}()
	return ours, nil
}

func askReplier(t *testing.T, r *replier, question Question) (Reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	return Ask(ctx, r.dial, netip.MustParseAddrPort("192.0.2.53:53"), question)
}

// TestAsk reads the parts of a reply, and goes on over TCP with one that was cut.
func TestAsk(t *testing.T) {
	nameServer := func(name string) dnsmessage.Resource {
		return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("a."), Class: dnsmessage.ClassINET},
			Body: &dnsmessage.NSResource{NS: dnsmessage.MustNewName(name)}}
	}
	referral := func(query dnsmessage.Message) *dnsmessage.Message {
		return &dnsmessage.Message{Header: dnsmessage.Header{RecursionAvailable: query.RecursionDesired}, Authorities: []dnsmessage.Resource{nameServer("b.")}}
	}
	cut := func(dnsmessage.Message) *dnsmessage.Message {
		return &dnsmessage.Message{Header: dnsmessage.Header{Truncated: true}}
	}
	long := func(dnsmessage.Message) *dnsmessage.Message {
		return &dnsmessage.Message{Answers: []dnsmessage.Resource{nameServer("b."), nameServer("c.")}}
	}
	refuse := func(dnsmessage.Message) *dnsmessage.Message {
		return &dnsmessage.Message{Header: dnsmessage.Header{RCode: dnsmessage.RCodeRefused}}
	}
	silent := func(dnsmessage.Message) *dnsmessage.Message { return nil }
	for _, c := range []struct {
		why             string
		server          replier
		recurse         bool
		answers, beside int
		code            dnsmessage.RCode
		asked           string
		silence, fault  string
	}{
		{why: "a referral", server: replier{udp: referral}, beside: 1, asked: "udp"},
		{why: "a question to a resolver", server: replier{udp: referral}, recurse: true, beside: 1, asked: "udp"},
		{why: "an error code is a reply", server: replier{udp: refuse}, code: dnsmessage.RCodeRefused, asked: "udp"},
		{why: "a long reply", server: replier{udp: cut, tcp: long}, answers: 2, asked: "udp tcp"},
		{why: "silence", server: replier{udp: silent}, asked: "udp udp", silence: "dns query a. NS to 192.0.2.53:53: no answer within the timeout"},
		{why: "silence over TCP", server: replier{udp: cut, tcp: silent}, asked: "udp tcp", fault: "over TCP because the reply is long: no answer within the timeout"},
	} {
		t.Run(c.why, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r, err := askReplier(t, &c.server, Question{Name: "a", Type: dnsmessage.TypeNS, Recurse: c.recurse})
				synctest.Wait()
				if got := strings.Join(c.server.asked, " "); got != c.asked {
					t.Errorf("asked over %s, want %s", got, c.asked)
				}
				if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
					t.Errorf("error %v, want %q", err, c.fault)
				}
				if r.Silence != c.silence || r.RCode != c.code || len(r.Answers) != c.answers || len(r.Beside) != c.beside || r.Recurses != c.recurse {
					t.Errorf("%+v", r)
				}
			})
		})
	}
	if _, err := askReplier(t, &replier{}, Question{Name: strings.Repeat("x", 300)}); err == nil {
		t.Error("a name that is too long can be asked for")
	}
}

// TestAskReadsNoMore than a reply that ends early has.
func TestAskReadsNoMore(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, 2))
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		_, _ = theirs.Write([]byte{0xff, 0xff, 1, 2, 3})
		_ = theirs.Close()
	}()
	p := dnsQuery{name: dnsmessage.MustNewName("a."), kind: dnsmessage.TypeNS, dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	if message, err := p.sendTCP(t.Context()); err == nil {
		t.Errorf("read %x", message)
	}
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte{0, 7, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0})
	f.Add([]byte{0, 7, 0x80, 3})
	f.Fuzz(func(t *testing.T, message []byte) {
		if r, err := readReply(message); err == nil && len(r.Answers)+len(r.Beside) > len(message) {
			t.Errorf("%d records in %d octets", len(r.Answers)+len(r.Beside), len(message))
		}
	})
}
