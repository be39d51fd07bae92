package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// lowerASCII lowers A to Z only: DNS names compare without case in ASCII and nowhere else (RFC 4343).
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func isLetterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// checkObjectName is the rule for names of groupnets, subnets, pools, rules and checks (spec section 1). Dots would make
// dotted ids ambiguous.
func checkObjectName(s string) error {
	if s == "" {
		return errors.New("is empty; give it a name")
	}
	if len(s) > 32 {
		return fmt.Errorf("%s has %d characters; a name has at most 32", shown(s), len(s))
	}
	for _, r := range s {
		if !isLetterOrDigit(r) && r != '_' && r != '-' {
			return fmt.Errorf("%s has the character %q; a name has only letters, digits, - and _", shown(s), r)
		}
	}
	return nil
}

// checkLabel is the rule for one label of a host name (RFC 1123 section 2.1).
func checkLabel(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; give it a name")
	case len(s) > 63:
		return fmt.Errorf("%s has %d characters; a label of a DNS name has at most 63 (RFC 1035)", shown(s), len(s))
	case strings.HasPrefix(s, "-") || strings.HasSuffix(s, "-"):
		return fmt.Errorf("%s begins or ends with a hyphen, which no host name may (RFC 1123)", shown(s))
	}
	for _, r := range s {
		switch {
		case r == '_':
			return fmt.Errorf("%s has an underscore, which host names may not have (RFC 1123) and some clients and certificates refuse; use a hyphen", shown(s))
		case r > 0x7f:
			return fmt.Errorf("%s has the character %q; write international names in their ASCII form (xn--...)", shown(s), r)
		case !isLetterOrDigit(r) && r != '-':
			return fmt.Errorf("%s has the character %q; a host name has only letters, digits and hyphens (RFC 1123)", shown(s), r)
		}
	}
	return nil
}

// checkDNSName is the rule for zones, aliases, service names and search domains.
func checkDNSName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; write a DNS name, or remove the setting")
	case len(s) > 253:
		return fmt.Errorf("%s has %d characters; a DNS name has at most 253 (RFC 1035)", shown(s), len(s))
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return fmt.Errorf("%s is an address; write a DNS name", shown(s))
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" {
			return fmt.Errorf("%s has an empty label (two dots in a row, or one at the start)", shown(s))
		}
		if err := checkLabel(label); err != nil {
			return err
		}
	}
	if strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return fmt.Errorf("%s ends in a number, which clients take for an address", shown(s))
	}
	return nil
}

// checkInterfaceName is the kernel's rule for names of network devices.
func checkInterfaceName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; write the name of a network interface")
	case s == "." || s == "..":
		return fmt.Errorf("%s cannot be the name of a network interface", shown(s))
	case len(s) > 15:
		return fmt.Errorf("%s has %d bytes; the name of a network interface has at most 15", shown(s), len(s))
	}
	for _, r := range s {
		if r <= ' ' || r >= 0x7f || r == '/' {
			return fmt.Errorf("%s has the character %q, which the name of a network interface may not have", shown(s), r)
		}
	}
	return nil
}

// checkInterfacePattern is the rule for the interface of a rule.
func checkInterfacePattern(s string) error {
	if s == "" {
		return errors.New("is empty; write a pattern such as ext-*")
	}
	if len(s) > 64 {
		return fmt.Errorf("%s is longer than 64 characters", shown(s))
	}
	if _, err := path.Match(s, "x"); err != nil {
		return fmt.Errorf("%s is not a pattern; use * for any characters, ? for one, and close every [", shown(s))
	}
	return checkPlainText(s)
}

// checkTag is the rule for node classes and racks; empty is allowed.
func checkTag(s string) error {
	if s == "" {
		return nil
	}
	return checkObjectName(s)
}

// checkPlainText refuses what would break lines, terminals or argument vectors.
func checkPlainText(s string) error {
	if len(s) > maxArgumentBytes {
		return fmt.Errorf("%s is longer than %d bytes", shown(s), maxArgumentBytes)
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return fmt.Errorf("%s has a control character or is not UTF-8", shown(s))
		}
	}
	return nil
}

// checkEndpoint is the rule for host:port of an external store.
func checkEndpoint(s string) error {
	if strings.Contains(s, "://") {
		return fmt.Errorf("%s has a scheme; write host:port, TLS is always used", shown(s))
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%s is not host:port; write for example 10.0.0.9:2379 or [fd00::9]:2379", shown(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%s has the port %s; a port is a number from 1 to 65535", shown(s), shown(port))
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return checkDNSName(lowerASCII(strings.TrimSuffix(host, ".")))
}

func errTooLong(s string, most int) error {
	return fmt.Errorf("%s has %d characters; at most %d are taken", shown(s), len(s), most)
}

// checkHTTPPath is the rule for the path of an http check; empty means "/".
func checkHTTPPath(s string) error {
	if !strings.HasPrefix(s, "/") {
		return fmt.Errorf("%s does not begin with /", shown(s))
	}
	if strings.ContainsAny(s, " #") {
		return fmt.Errorf("%s has a space or a #; write it in its encoded form", shown(s))
	}
	return checkPlainText(s)
}
