package dns

import (
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"time"
)

// Sizes and ages of cookies (RFC 7873 section 4, RFC 9018 section 4.3).
const (
	clientCookieSize = 8
	serverCookieSize = 16
	maxServerCookie  = 32
	cookieMaxAge     = time.Hour
	cookieRenewAge   = 30 * time.Minute
	cookieMaxAhead   = 5 * time.Minute
)

// CookieSecret is the key of the server cookies. All holders of service addresses share it, so that a resolver which
// turns to another address is known there.
type CookieSecret [16]byte

// cookieJar makes and checks server cookies in the interoperable form of RFC 9018.
type cookieJar struct {
	// secrets[0] makes cookies; the others, from before a change of the secret, are still accepted (RFC 9018 section 5).
	secrets []CookieSecret
}

// make returns the server cookie for a client at an instant.
func (j *cookieJar) make(client [clientCookieSize]byte, from netip.Addr, now time.Time) [serverCookieSize]byte {
	var head [8]byte
	head[0] = 1 // version; three octets are reserved
	binary.BigEndian.PutUint32(head[4:], uint32(now.Unix()))
	return serverCookie(&j.secrets[0], client, head, from)
}

// check reports whether the query carries a server cookie of ours for this client that is neither too old nor from the
// future, and whether it is still young enough to be sent back as it is.
func (j *cookieJar) check(c *cookieOption, from netip.Addr, now time.Time) (valid, young bool) {
	if c.serverLen != serverCookieSize || c.server[0] != 1 {
		return false, false
	}
	head := [8]byte(c.server[:8]) // as received: what is reserved is part of the hash
	made := binary.BigEndian.Uint32(head[4:])
	age := time.Duration(int32(uint32(now.Unix())-made)) * time.Second // serial number arithmetic (RFC 1982)
	if age > cookieMaxAge || age < -cookieMaxAhead {
		return false, false
	}
	for i := range j.secrets {
		want := serverCookie(&j.secrets[i], c.client, head, from)
		if subtle.ConstantTimeCompare(want[:], c.server[:serverCookieSize]) == 1 {
			return true, age <= cookieRenewAge && i == 0
		}
	}
	return false, false
}

// serverCookie is head (version, reserved, time) and the hash over it and the client (RFC 9018 section 4).
func serverCookie(secret *CookieSecret, client [clientCookieSize]byte, head [8]byte, from netip.Addr) [serverCookieSize]byte {
	var input [clientCookieSize + 8 + 16]byte
	copy(input[:], client[:])
	n := clientCookieSize + copy(input[clientCookieSize:], head[:])
	if from.Is4() {
		four := from.As4()
		n += copy(input[n:], four[:])
	} else {
		sixteen := from.As16()
		n += copy(input[n:], sixteen[:])
	}
	var out [serverCookieSize]byte
	copy(out[:8], head[:])
	binary.LittleEndian.PutUint64(out[8:], sipHash((*[16]byte)(secret), input[:n]))
	return out
}
