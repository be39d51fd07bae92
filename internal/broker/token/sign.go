package token

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	version = 1
	// prefix begins every token, so that a person, a log filter and a gateway know one when they see it.
	prefix = "hf1."
)

// Looks tells whether a text is meant as a token, well made or not.
func Looks(text string) bool { return strings.HasPrefix(text, prefix) }

// Sign makes the text of a grant. Times are cut to seconds. A grant that no gateway would accept is an error, not a token.
func Sign(g Grant, key ed25519.PrivateKey) (string, error) {
	g.Issued, g.Expires = g.Issued.Truncate(time.Second), g.Expires.Truncate(time.Second)
	g.SessionLimit = g.SessionLimit.Truncate(time.Second)
	if err := g.check(); err != nil {
		return "", err
	}
	if strings.ToLower(g.Target.Host) != g.Target.Host {
		return "", fmt.Errorf("the token's host %q is not in lower case", g.Target.Host)
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("the broker's key is not an Ed25519 key")
	}
	payload := g.payload(KeyID(public))
	signature, err := key.Sign(nil, payload, &ed25519.Options{Context: signingContext})
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	text := prefix + encoding.EncodeToString(append(payload, signature...))
	if len(text) > MaxText {
		return "", fmt.Errorf("the token would have %d characters, at most %d are allowed: shorten the names in it", len(text), MaxText)
	}
	return text, nil
}

// encoding is strict: a token has one text, so that nobody can make a second one of it.
var encoding = base64.RawURLEncoding.Strict()

// Refusal says why a gateway does not accept a token.
type Refusal uint8

// Why a token is not accepted. Only the holder of a token that a known broker signed learns more than that it is not good.
const (
	Malformed    Refusal = iota + 1 // it is no token of a version that is known here
	Unsigned                        // no broker that this gateway knows has signed it
	Elsewhere                       // it is for another gateway
	Early                           // it is from the future: the clocks of broker and gateway differ
	Expired                         // its time is over
	Used                            // it was accepted before
	Full                            // so many tokens are remembered that no other can be accepted
	KeyUnproved                     // it is bound to a key that the client did not prove
	refusalCount = iota + 1
)

var refusalNames = [refusalCount]string{"", "malformed", "unsigned", "elsewhere", "early", "expired", "used", "full", "key"}

// String is a word, for counters and audit records.
func (r Refusal) String() string {
	if int(r) < len(refusalNames) {
		return refusalNames[r]
	}
	return "unknown"
}

// Refused is the error of a token that is not accepted. Its text is for the user: what, why, and what to do.
type Refused struct {
	Why  Refusal
	text string
}

func (r *Refused) Error() string { return r.text }

func refuse(why Refusal, format string, arguments ...any) error {
	return &Refused{Why: why, text: fmt.Sprintf(format, arguments...)}
}

const again = "Ask the broker for a new one: a token is good for one connection, within minutes."

// Leeway is how far the broker's clock may be ahead of the gateway's.
const Leeway = 30 * time.Second

// Parse reads a text and checks its form and its signature, with keys being the brokers that this gateway knows. It judges neither time nor
// place: Check does. What it returns was signed by one of them.
func Parse(text string, keys []ed25519.PublicKey) (Grant, error) {
	body, ok := strings.CutPrefix(text, prefix)
	if !ok || len(text) > MaxText {
		return Grant{}, refuse(Malformed, "This is not a session token. %s", again)
	}
	raw, err := encoding.DecodeString(body)
	if err != nil || len(raw) < ed25519.SignatureSize+5 {
		return Grant{}, refuse(Malformed, "The session token is damaged, perhaps cut off when it was copied. %s", again)
	}
	payload, signature := raw[:len(raw)-ed25519.SignatureSize], raw[len(raw)-ed25519.SignatureSize:]
	if payload[0] != version {
		return Grant{}, refuse(Malformed, "The session token is of version %d, and this gateway knows version %d. Upgrade the older of broker and gateway.", payload[0], version)
	}
	signed := false
	for _, key := range keys {
		if KeyID(key) == [4]byte(payload[1:5]) {
			signed = signed || ed25519.VerifyWithOptions(key, payload, signature, &ed25519.Options{Hash: crypto.Hash(0), Context: signingContext}) == nil
		}
	}
	if !signed {
		return Grant{}, refuse(Unsigned, "No broker that this gateway knows has signed the session token. It is damaged, or the broker's key is missing in the gateway's configuration (brokers).")
	}
	grant, err := read(payload[5:])
	if err != nil {
		return Grant{}, refuse(Malformed, "The session token cannot be used: %v. %s", err, again)
	}
	return grant, nil
}

// Check tells whether a grant may begin a session at this gateway at this time.
func (g Grant) Check(gateway string, now time.Time) error {
	switch {
	case g.Gateway != gateway:
		return refuse(Elsewhere, "The session token is for the gateway %s, and this is %s. Connect to that one, or ask the broker for a token for this one.", g.Gateway, gateway)
	case now.Before(g.Issued.Add(-Leeway)):
		return refuse(Early, "The session token is from the future by %v: the clocks of the broker and of the gateway %s differ. Tell your administrator.", g.Issued.Sub(now).Round(time.Second), gateway)
	case !now.Before(g.Expires):
		return refuse(Expired, "The session token expired %v ago. %s", now.Sub(g.Expires).Round(time.Second), again)
	}
	return nil
}

// Unproved is the refusal of a client that did not prove the key to which a token is bound.
func Unproved() error {
	return refuse(KeyUnproved, "The session token is bound to a key that this client did not prove. Connect with the key for which the token was made (ssh -i FILE), or ask the broker for another.")
}

// read takes the fields after version and key apart. Every byte counts: what is left over is an error.
func read(from []byte) (Grant, error) {
	cut := errors.New("it ends too early")
	var g Grant
	const fixed = 16 + 8 + 2 + 4 + 2 + 1 + 2 + 1
	if len(from) < fixed {
		return Grant{}, cut
	}
	g.ID = ID(from[:16])
	issued := binary.BigEndian.Uint64(from[16:])
	if issued > 1<<40 {
		return Grant{}, errors.New("it was made at an impossible time")
	}
	g.Issued = time.Unix(int64(issued), 0)
	g.Expires = g.Issued.Add(time.Duration(binary.BigEndian.Uint16(from[24:])) * time.Second)
	g.SessionLimit = time.Duration(binary.BigEndian.Uint32(from[26:])) * time.Second
	g.May = Channels(binary.BigEndian.Uint16(from[30:]))
	g.Proof = Proof(from[32])
	g.Target.Port = binary.BigEndian.Uint16(from[33:])
	bound := from[35]
	from = from[fixed:]
	switch {
	case bound > 1:
		return Grant{}, errors.New("it is bound in a way that this version does not know")
	case bound == 1:
		if len(from) < len(g.ClientKey) {
			return Grant{}, cut
		}
		g.ClientKey, from = [32]byte(from[:32]), from[32:]
		if !g.Bound() {
			return Grant{}, errors.New("it is bound to an empty key")
		}
	}
	for _, into := range []*string{&g.Gateway, &g.Who, &g.Target.Host, &g.Account, &g.Rule, &g.Fitness} {
		if len(from) == 0 || len(from) < 1+int(from[0]) {
			return Grant{}, cut
		}
		*into, from = string(from[1:1+int(from[0])]), from[1+int(from[0]):]
		if !utf8.ValidString(*into) {
			return Grant{}, errors.New("a name in it is not text")
		}
	}
	if len(from) > 0 {
		return Grant{}, fmt.Errorf("%d bytes follow its end", len(from))
	}
	return g, g.check()
}
