package dns

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// EDNS options that are understood. All others are ignored and not echoed (RFC 6891 section 6.1.2).
const (
	optionClientSubnet = 8  // RFC 7871
	optionCookie       = 10 // RFC 7873
	optionKeepalive    = 11 // RFC 7828
)

// What an OPT record takes without options, and what a COOKIE option with both cookies adds to it.
const (
	optSize     = 11
	cookiesSize = 4 + clientCookieSize + serverCookieSize
)

// Families of the client-subnet option (RFC 7871 section 6).
const (
	familyNone = 0
	familyIPv4 = 1
	familyIPv6 = 2
)

// edns is the OPT record of a query (RFC 6891).
type edns struct {
	present   bool
	udpSize   uint16
	version   uint8
	do        bool
	cookie    cookieOption
	subnet    subnetOption
	keepalive bool // the client asks how long its connection may be idle
}

// cookieOption is the COOKIE option of a query (RFC 7873 section 4).
type cookieOption struct {
	present   bool
	client    [clientCookieSize]byte
	server    [maxServerCookie]byte
	serverLen int
}

// subnetOption is the client-subnet option of a query (RFC 7871 section 6).
type subnetOption struct {
	present bool
	family  uint16
	prefix  netip.Prefix // zero for family 0
	raw     []byte       // the option's data, to be echoed with our scope
}

// read takes the OPT record out of the additional section, which p stands at. Records of other types are passed over.
func (e *edns) read(p *dnsmessage.Parser) error {
	for {
		h, err := p.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return e.fail()
		}
		if h.Type != dnsmessage.TypeOPT {
			if err := p.SkipAdditional(); err != nil {
				return e.fail()
			}
			continue
		}
		if e.present || h.Name.Length != 1 {
			return e.fail() // two of them, or an owner that is not the root (RFC 6891 section 6.1.1)
		}
		data, err := recordData(p)
		if err != nil {
			return e.fail()
		}
		e.present = true
		e.udpSize = uint16(h.Class)
		e.version = uint8(h.TTL >> 16)
		e.do = h.TTL&0x8000 != 0
		if e.version != 0 {
			continue // what the options of another version mean is not known
		}
		if !e.readOptions(data) {
			return e.fail()
		}
	}
}

// fail forgets what was read, so that FORMERR carries no OPT: some clients take an OPT in it for support of what they
// sent (public report: dns-violations 58 and 59).
func (e *edns) fail() error {
	*e = edns{}
	return errMalformed
}

// recordData is the data of the record whose header was just read. The library makes room for as many octets as a record or an option
// claims to have before it looks whether they came, so that sixty octets would cost 64 KiB: whether they came is asked first.
func recordData(p *dnsmessage.Parser) ([]byte, error) {
	ahead := *p
	if err := ahead.SkipAdditional(); err != nil {
		return nil, err
	}
	record, err := p.UnknownResource()
	return record.Data, err
}

// nextOption splits the first option off; false: it is cut short.
func nextOption(data []byte) (o dnsmessage.Option, rest []byte, ok bool) {
	if len(data) < 4 {
		return o, nil, false
	}
	o.Code = binary.BigEndian.Uint16(data)
	end := 4 + int(binary.BigEndian.Uint16(data[2:]))
	if len(data) < end {
		return o, nil, false
	}
	o.Data = data[4:end]
	return o, data[end:], true
}

func (e *edns) readOptions(data []byte) bool {
	for len(data) > 0 {
		o, rest, ok := nextOption(data)
		if !ok {
			return false
		}
		data = rest
		switch o.Code {
		case optionCookie:
			// Several COOKIE options: the first counts (RFC 7873 section 5.2).
			if !e.cookie.present && !e.cookie.read(o.Data) {
				return false
			}
		case optionClientSubnet:
			if e.subnet.present || !e.subnet.read(o.Data) {
				return false
			}
		case optionKeepalive:
			e.keepalive = e.keepalive || len(o.Data) == 0 // a query names no time (RFC 7828 section 3.2.1)
		}
	}
	return true
}

func (c *cookieOption) read(data []byte) bool {
	n := len(data) - clientCookieSize
	if n != 0 && (n < 8 || n > maxServerCookie) {
		return false // RFC 7873 section 5.2.2
	}
	c.present = true
	copy(c.client[:], data)
	c.serverLen = copy(c.server[:], data[clientCookieSize:])
	return true
}

func (s *subnetOption) read(data []byte) bool {
	if len(data) < 4 {
		return false
	}
	family, source, scope, address := binary.BigEndian.Uint16(data), int(data[2]), data[3], data[4:]
	if scope != 0 || len(address) != (source+7)/8 {
		return false // RFC 7871 section 7.1.1: queries have scope 0 and no octet more than the prefix needs
	}
	prefix, ok := subnetPrefix(family, source, address)
	if !ok {
		return false
	}
	*s = subnetOption{present: true, family: family, prefix: prefix, raw: data}
	return true
}

func subnetPrefix(family uint16, source int, address []byte) (netip.Prefix, bool) {
	var full netip.Addr
	switch {
	case family == familyNone:
		return netip.Prefix{}, source == 0
	case family == familyIPv4 && source <= 32:
		var four [4]byte
		copy(four[:], address)
		full = netip.AddrFrom4(four)
	case family == familyIPv6 && source <= 128:
		var sixteen [16]byte
		copy(sixteen[:], address)
		full = netip.AddrFrom16(sixteen)
	default:
		return netip.Prefix{}, false
	}
	prefix := netip.PrefixFrom(full, source)
	return prefix, prefix.Masked() == prefix // bits beyond the prefix must be zero
}
