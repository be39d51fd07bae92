package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
)

// dnsQuery is good when the server answers the query without an error code. Whether there are records does not matter:
// a server that says "no such records" works. One datagram may be lost: the query is repeated once at half time.
type dnsQuery struct {
	at   netip.AddrPort
	name dnsmessage.Name
	kind dnsmessage.Type
	dial Dialer

	recurse bool // ask the server to find the answer elsewhere
}

// maxDatagram bounds the reply that is read. A query without EDNS gets at most 512 bytes (RFC 1035 section 4.2.1).
const maxDatagram = 4096

func newDNS(check cluster.Check, at netip.AddrPort, dial Dialer) (Probe, error) {
	name, err := dnsmessage.NewName(strings.TrimSuffix(check.Query, ".") + ".")
	if err != nil {
		return nil, fmt.Errorf("check %s: the name %q cannot be asked for: %w", check.Name, check.Query, err)
	}
	kind := dnsmessage.TypeA
	if at.Addr().Is6() && !at.Addr().Is4In6() {
		kind = dnsmessage.TypeAAAA
	}
	return dnsQuery{at: at, name: name, kind: kind, dial: dial}, nil
}

func (p dnsQuery) Try(ctx context.Context) (string, error) {
	datagram, id, err := p.send(ctx)
	answers := 0
	if err == nil {
		answers, _, err = p.judge(datagram, id)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", p, err)
	}
	return fmt.Sprintf("%s: no error, %d answers", p, answers), nil
}

func (p dnsQuery) String() string {
	return fmt.Sprintf("dns query %s %s to %s", p.name, strings.TrimPrefix(p.kind.String(), "Type"), p.at)
}

// send asks over UDP and returns the reply, with the number of the query.
func (p dnsQuery) send(ctx context.Context) (datagram []byte, id uint16, err error) {
	id = uint16(rand.Uint32()) //nolint:gosec // tells replies apart; nothing rests on its secrecy
	query, err := p.pack(id)
	if err != nil {
		return nil, id, err
	}
	err = converse(ctx, p.dial, "udp", p.at, func(conn net.Conn) error {
		for _, until := range halves(ctx) {
			if datagram, err = p.exchange(conn, query, id, until); !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
		return err
	})
	return datagram, id, err
}

// halves are the ends of the two halves of the time that ctx leaves.
func halves(ctx context.Context) []time.Time {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return []time.Time{{}}
	}
	return []time.Time{deadline.Add(-time.Until(deadline) / 2), deadline}
}

func (p dnsQuery) pack(id uint16) ([]byte, error) {
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: p.recurse},
		Questions: []dnsmessage.Question{{Name: p.name, Type: p.kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := message.Pack()
	if err != nil {
		return nil, fmt.Errorf("encoding the query: %w", err)
	}
	return packed, nil
}

// exchange sends the query and reads until its reply comes; replies to something else are skipped.
func (p dnsQuery) exchange(conn net.Conn, query []byte, id uint16, until time.Time) ([]byte, error) {
	if err := conn.SetDeadline(until); err != nil {
		return nil, fmt.Errorf("setting a deadline: %w", err)
	}
	if _, err := conn.Write(query); err != nil {
		return nil, fmt.Errorf("sending the query: %w", err)
	}
	buffer := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return nil, fmt.Errorf("waiting for the reply: %w", err)
		}
		if p.ours(buffer[:n], id) {
			return buffer[:n], nil
		}
	}
}

// ours reports whether a datagram is a response with our number to our question. What is not is junk from elsewhere, and no
// answer, good or bad.
func (p dnsQuery) ours(datagram []byte, id uint16) bool {
	var parser dnsmessage.Parser
	header, err := parser.Start(datagram)
	if err != nil || header.ID != id || !header.Response {
		return false
	}
	if header.RCode == dnsmessage.RCodeSuccess || header.RCode == dnsmessage.RCodeNameError {
		question, err := parser.Question()
		return err == nil && strings.EqualFold(question.Name.String(), p.name.String()) && question.Type == p.kind
	}
	return true // some servers leave the question out of an error
}

// judge reads one datagram.
func (p dnsQuery) judge(datagram []byte, id uint16) (answers int, ours bool, err error) {
	if !p.ours(datagram, id) {
		return 0, false, nil
	}
	var parser dnsmessage.Parser
	header, err := parser.Start(datagram)
	if err != nil {
		return 0, true, fmt.Errorf("the reply is malformed: %w", err)
	}
	if header.RCode != dnsmessage.RCodeSuccess {
		return 0, true, fmt.Errorf("the server answered %s", rcodeName(header.RCode))
	}
	if err := parser.SkipAllQuestions(); err != nil {
		return 0, true, fmt.Errorf("the reply is malformed: %w", err)
	}
	records, err := parser.AllAnswers()
	if err != nil {
		return 0, true, fmt.Errorf("the reply is malformed: %w", err)
	}
	return len(records), true, nil
}

// rcodeName is the mnemonic of RFC 1035 section 4.1.1 that operators know.
func rcodeName(code dnsmessage.RCode) string {
	names := map[dnsmessage.RCode]string{
		dnsmessage.RCodeFormatError: "FORMERR", dnsmessage.RCodeServerFailure: "SERVFAIL",
		dnsmessage.RCodeNameError: "NXDOMAIN", dnsmessage.RCodeNotImplemented: "NOTIMP", dnsmessage.RCodeRefused: "REFUSED",
	}
	if name, known := names[code]; known {
		return name
	}
	return fmt.Sprintf("response code %d", code)
}
