// Package token makes and checks the short texts by which a broker tells a session gateway what one launch may do.
//
// A token names one gateway, one target, one account and what may be done there, is good for minutes, and is signed by a
// broker. A gateway accepts it once. So a gateway needs nobody when a user comes: it knows the brokers' public keys, reads what
// was granted out of the token, and remembers which tokens it has seen until they would have expired anyway.
//
// The text is safe in a URL and as an SSH user name (letters, digits, '-', '_' and '.', and it never begins with '-'), and at
// most MaxText long. Its signature is Ed25519ctx (RFC 8032, section 5.1) over the bytes that the text carries, under a context of
// its own, so that a signature made for anything else is none for a token.
//
// Everything here is a value or a function of its arguments: time and randomness are passed in, nothing is locked. The package
// does not know how a broker decides, where keys are kept, or how a token travels.
package token

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Bounds of what a token may carry. A grant that is beyond them is not signed, and a text that is beyond them is not read.
const (
	// MaxText is the longest text, in bytes. It keeps well below what SSH clients accept as a user name.
	MaxText = 1024
	// MaxName bounds each of the names in a grant, in bytes.
	MaxName = 128
	// MaxHost bounds the target's host, in bytes: the longest name that DNS allows.
	MaxHost = 253
	// MaxValidity is the longest time that a token may be good for, and so the longest that a gateway has to remember one.
	MaxValidity = 15 * time.Minute
)

// ID tells one token from all others. It is drawn at random by the broker.
type ID [16]byte

// String is the ID as it stands in audit records.
func (id ID) String() string { return fmt.Sprintf("%x", id[:]) }

// Channels is a set of the things that a session may do.
type Channels uint16

// What a session may do. What is not in the set is refused by the gateway.
const (
	Shell         Channels = 1 << iota // an interactive shell
	Exec                               // any command
	SCP                                // the commands by which the old protocol of scp transfers files
	SFTP                               // the subsystem sftp, which today's scp uses as well
	LocalForward                       // connections from the client through the target (ssh -L, -D)
	RemoteForward                      // connections from the target to the client (ssh -R)
	AgentForward                       // the client's agent is there on the target (ssh -A)
	X11                                // windows of the target on the client (ssh -X)
	Jump                               // a connection to the target's own sshd that the gateway cannot look into (ssh -J)
	Tunnel                             // connections to a target of any TCP protocol, and nothing else; it stands alone

	// AllChannels is everything that a session with a target's sshd may do.
	AllChannels = Shell | Exec | SCP | SFTP | LocalForward | RemoteForward | AgentForward | X11 | Jump
	// Everything is that and tunnels. No one token allows it: a gateway does.
	Everything = AllChannels | Tunnel
)

var channelNames = []string{"shell", "exec", "scp", "sftp", "local-forward", "remote-forward", "agent-forward", "x11", "jump", "tunnel"}

// Has tells whether everything in want is in the set.
func (c Channels) Has(want Channels) bool { return c&want == want }

// Names lists the set as operators write it.
func (c Channels) Names() []string {
	var names []string
	for i, name := range channelNames {
		if c.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

func (c Channels) String() string { return strings.Join(c.Names(), ",") }

// ParseChannels reads names as Names writes them. A name that is none of them is an error that lists those that are.
func ParseChannels(names []string) (Channels, error) {
	var set Channels
next:
	for _, given := range names {
		for i, name := range channelNames {
			if given == name {
				set |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%q is nothing that a session does: write %s", given, strings.Join(channelNames, ", "))
	}
	return set, nil
}

// Proof is how the gateway proves itself to the target.
type Proof uint8

const (
	// Certificate: by a certificate of a few minutes from the fleet's SSH user CA.
	Certificate Proof = iota
	// ForwardedAgent: by the agent that the client forwards (ssh -A).
	ForwardedAgent
)

// Target is where a session goes.
type Target struct {
	// Host is a name or an address, in lower case and without brackets.
	Host string
	Port uint16
}

// String is host:port, with brackets around IPv6.
func (t Target) String() string {
	if strings.Contains(t.Host, ":") {
		return fmt.Sprintf("[%s]:%d", t.Host, t.Port)
	}
	return fmt.Sprintf("%s:%d", t.Host, t.Port)
}

// Is tells whether a host and a port, as a client writes them, mean this target. Letters' case does not matter, nor how an IPv6 address
// is written; a name is never resolved to compare.
func (t Target) Is(host string, port uint32) bool {
	if uint32(t.Port) != port {
		return false
	}
	if mine, err := netip.ParseAddr(t.Host); err == nil {
		theirs, err := netip.ParseAddr(strings.Trim(host, "[]"))
		return err == nil && mine.Unmap() == theirs.Unmap()
	}
	return strings.EqualFold(t.Host, strings.TrimSuffix(host, "."))
}

// Grant is what a broker allows for one launch.
type Grant struct {
	ID      ID
	Gateway string // the one gateway that may accept it: with it, one-time use needs no talk between gateways
	Who     string // the requester, as the broker knows him
	Target  Target
	Account string // on the target; of a tunnel none
	May     Channels
	Proof   Proof
	// Issued and Expires bound when a connection may begin with it, by the second. A session that has begun is not ended by them.
	Issued, Expires time.Time
	// SessionLimit ends the session after this time, in whole seconds; 0 leaves it to the gateway's own limit.
	SessionLimit time.Duration
	// ClientKey, if not zero, is the SHA-256 of the public key (in SSH's wire form) that the client has to prove. A token so bound is
	// of no use to whoever reads it over the user's shoulder.
	ClientKey [32]byte
	// Rule and Fitness say why the broker chose this gateway; they are for the audit record alone.
	Rule, Fitness string
}

// Bound tells whether the client must prove a key.
func (g Grant) Bound() bool { return g.ClientKey != [32]byte{} }

// signingContext is the context of RFC 8032, section 8.3. A new version gets a new one.
const signingContext = "holdfast session token v1"

// KeyID is how a token names the broker's key: the beginning of the key itself. It only spares trying all of them.
func KeyID(public ed25519.PublicKey) [4]byte { return [4]byte(public[:4]) }

// check tells why a grant is not one that may be signed or believed, whatever the time.
func (g Grant) check() error {
	for _, field := range []struct {
		name, value string
		most        int
		empty       bool
	}{
		{"gateway", g.Gateway, MaxName, false}, {"requester", g.Who, MaxName, false}, {"host", g.Target.Host, MaxHost, false},
		{"account", g.Account, MaxName, g.May == Tunnel}, {"rule", g.Rule, MaxName, true}, {"fitness", g.Fitness, MaxName, true},
	} {
		switch {
		case field.value == "" && !field.empty:
			return fmt.Errorf("the token has no %s", field.name)
		case len(field.value) > field.most:
			return fmt.Errorf("the token's %s has %d bytes, at most %d are allowed", field.name, len(field.value), field.most)
		case strings.ContainsFunc(field.value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
			return fmt.Errorf("the token's %s has characters that do not print", field.name)
		}
	}
	life := g.Expires.Sub(g.Issued)
	switch {
	case g.Target.Port == 0:
		return fmt.Errorf("the token has no port")
	case g.May == 0 || g.May&^Everything != 0:
		return fmt.Errorf("the token allows nothing, or something that this version does not know")
	case g.May.Has(Tunnel) && (g.May != Tunnel || g.Account != "" || g.Proof != Certificate):
		return fmt.Errorf("the token allows a tunnel, and something beside it: of a tunnel's target the gateway knows no account, and nobody logs in there for the user")
	case g.Proof > ForwardedAgent:
		return fmt.Errorf("the token wants a way to log in at the target that this version does not know")
	case life <= 0 || life > MaxValidity:
		return fmt.Errorf("the token is good for %v, more than nothing and at most %v are allowed", life, MaxValidity)
	case g.SessionLimit < 0 || g.SessionLimit > maxSessionLimit:
		return fmt.Errorf("the token's session limit is %v, at most %v are allowed", g.SessionLimit, maxSessionLimit)
	}
	return nil
}

const maxSessionLimit = 366 * 24 * time.Hour

// payload is the grant in bytes. Its form: a version, the fixed fields in network order, then the strings, each behind its length.
func (g Grant) payload(key [4]byte) []byte {
	out := append([]byte{version}, key[:]...)
	out = append(out, g.ID[:]...)
	out = binary.BigEndian.AppendUint64(out, uint64(g.Issued.Unix()))
	out = binary.BigEndian.AppendUint16(out, uint16(g.Expires.Sub(g.Issued)/time.Second))
	out = binary.BigEndian.AppendUint32(out, uint32(g.SessionLimit/time.Second))
	out = binary.BigEndian.AppendUint16(out, uint16(g.May))
	out = append(out, byte(g.Proof))
	out = binary.BigEndian.AppendUint16(out, g.Target.Port)
	if g.Bound() {
		out = append(append(out, 1), g.ClientKey[:]...)
	} else {
		out = append(out, 0)
	}
	for _, text := range []string{g.Gateway, g.Who, g.Target.Host, g.Account, g.Rule, g.Fitness} {
		out = append(append(out, byte(len(text))), text...)
	}
	return out
}
