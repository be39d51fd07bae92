package grants

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Pattern is a name, with "*" for any characters. Case counts, but for targets, which are in lower case.
type Pattern string

// Any is the pattern that everything matches.
const Any = Pattern("*")

// SameAsWho is the account that has the requester's own name.
const SameAsWho = Pattern("{who}")

// maxPattern bounds a pattern, in bytes, and maxStars what one may leave open.
const (
	maxPattern = 253
	maxStars   = 8
)

// ParsePattern reads a pattern.
func ParsePattern(text string) (Pattern, error) {
	switch {
	case text == "" || len(text) > maxPattern:
		return "", fmt.Errorf("a name or pattern has 1 to %d characters", maxPattern)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }):
		return "", fmt.Errorf("%.60q has characters that do not print", text)
	case strings.Count(text, "*") > maxStars:
		return "", fmt.Errorf("%.60q has more than %d stars", text, maxStars)
	}
	return Pattern(text), nil
}

// ParseTarget reads a target: a name, a pattern, an address or a subnet.
func ParseTarget(text string) (Pattern, netip.Prefix, error) {
	if strings.Contains(text, "/") {
		subnet, err := netip.ParsePrefix(text)
		if err != nil {
			return "", netip.Prefix{}, fmt.Errorf("%.60q is no subnet: write an address and a length, as 10.1.0.0/16", text)
		}
		if subnet.Addr().Is4In6() || subnet != subnet.Masked() {
			return "", netip.Prefix{}, fmt.Errorf("%.60q has bits beyond its length, or an IPv4 address inside an IPv6 one: write %s", text, plainPrefix(subnet))
		}
		return "", subnet, nil
	}
	if address, err := netip.ParseAddr(text); err == nil {
		if address.Zone() != "" {
			return "", netip.Prefix{}, fmt.Errorf("%.60q has a zone, which means nothing to a gateway", text)
		}
		address = address.Unmap()
		return "", netip.PrefixFrom(address, address.BitLen()), nil
	}
	pattern, err := ParsePattern(strings.ToLower(text))
	if err != nil {
		return "", netip.Prefix{}, err
	}
	if pattern != Any && strings.Trim(text, "0123456789.*:") == "" {
		return "", netip.Prefix{}, fmt.Errorf("%.60q looks like addresses: write a subnet, as 10.1.0.0/16, since patterns are for names", text)
	}
	return pattern, netip.Prefix{}, nil
}

func plainPrefix(p netip.Prefix) string {
	if address := p.Addr(); address.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(address.Unmap(), p.Bits()-96).Masked().String()
	}
	return p.Masked().String()
}

// ParsePorts reads a port, or two with a dash between them.
func ParsePorts(text string) (Ports, error) {
	first, last, two := strings.Cut(text, "-")
	if !two {
		last = first
	}
	from, err1 := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if errors.Join(err1, err2) != nil || from == 0 || to < from {
		return Ports{}, fmt.Errorf("%.40q is no port and no range of ports: write 22, or 8000-8100", text)
	}
	return Ports{uint16(from), uint16(to)}, nil
}

// Matches tells whether a name is one that the pattern means.
func (p Pattern) Matches(name string) bool {
	parts := strings.Split(string(p), "*")
	if len(parts) == 1 {
		return string(p) == name
	}
	last := len(parts) - 1
	rest, found := strings.CutPrefix(name, parts[0])
	if !found || len(rest) < len(parts[last]) {
		return false
	}
	for _, part := range parts[1:last] {
		if _, rest, found = strings.Cut(rest, part); !found {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// CleanHost makes of a target as a user wrote it the one that a token names: lower case, without brackets and without a dot at the end. What is
// neither an address nor a name of letters, digits, '-', '_' and '.' is refused.
func CleanHost(text string) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(text, "."))
	if bare, open := strings.CutPrefix(host, "["); open {
		host = strings.TrimSuffix(bare, "]")
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if address.Zone() != "" {
			return "", fmt.Errorf("the target %.60q has a zone, which means nothing to a gateway", text)
		}
		return address.Unmap().String(), nil
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", fmt.Errorf("the target %.60q ends in a number, as an address does, and is none", text) // some resolvers would make an address of it
	}
	if host == "" || len(host) > maxPattern || host[0] == '-' || host[0] == '.' || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return "", fmt.Errorf("the target %.60q is neither a host name nor an address", text)
	}
	return host, nil
}
