package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Question is what a DNS server is asked.
type Question struct {
	Name    string // with or without the trailing dot
	Type    dnsmessage.Type
	Recurse bool // ask the server to find the answer elsewhere
}

// Reply is what a DNS server said.
type Reply struct {
	Silence  string // not empty: it said nothing, and this is how
	RCode    dnsmessage.RCode
	Recurses bool // the server finds answers elsewhere for whoever asks it to
	Answers  []dnsmessage.Resource
	Beside   []dnsmessage.Resource // the authority section
}

// Ask puts one question to a DNS server: over UDP, where it is repeated once at half the time that ctx leaves, and over TCP if the
// reply was too long. A nil dial uses the system's. A reply with an error code is a Reply, and so is silence; an error says that
// what came cannot be read.
func Ask(ctx context.Context, dial Dialer, at netip.AddrPort, question Question) (Reply, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	name, err := dnsmessage.NewName(strings.TrimSuffix(question.Name, ".") + ".")
	if err != nil {
		return Reply{}, fmt.Errorf("the name %q cannot be asked for: %w", question.Name, err)
	}
	p := dnsQuery{at: at, name: name, kind: question.Type, dial: dial, recurse: question.Recurse}
	message, _, err := p.send(ctx)
	if err != nil {
		return Reply{Silence: fmt.Sprintf("%s: %v", p, err)}, nil
	}
	if truncated(message) {
		if message, err = p.sendTCP(ctx); err != nil {
			return Reply{}, fmt.Errorf("%s, over TCP because the reply is long: %w", p, err)
		}
	}
	reply, err := readReply(message)
	if err != nil {
		return Reply{}, fmt.Errorf("%s: the reply is malformed: %w", p, err)
	}
	return reply, nil
}

func truncated(message []byte) bool {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	return err == nil && header.Truncated
}

// sendTCP asks over TCP, where a message comes after its length (RFC 1035 section 4.2.2).
func (p dnsQuery) sendTCP(ctx context.Context) (message []byte, err error) {
	id := uint16(rand.Uint32()) //nolint:gosec // tells replies apart; nothing rests on its secrecy
	query, err := p.pack(id)
	if err != nil {
		return nil, err
	}
	err = converse(ctx, p.dial, "tcp", p.at, func(conn net.Conn) error {
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(query)))
		if _, err := conn.Write(append(framed, query...)); err != nil {
			return fmt.Errorf("sending the query: %w", err)
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return fmt.Errorf("waiting for the reply: %w", err)
		}
		message = make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, message); err != nil {
			return fmt.Errorf("reading the reply: %w", err)
		}
		if !p.ours(message, id) {
			return errors.New("the reply is to another question")
		}
		return nil
	})
	return message, err
}

func readReply(message []byte) (Reply, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil {
		return Reply{}, err
	}
	r := Reply{RCode: header.RCode, Recurses: header.RecursionAvailable}
	if err := parser.SkipAllQuestions(); err != nil {
		return Reply{}, err
	}
	if r.Answers, err = parser.AllAnswers(); err != nil {
		return Reply{}, err
	}
	r.Beside, err = parser.AllAuthorities()
	return r, err
}
