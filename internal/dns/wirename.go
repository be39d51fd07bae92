package dns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits of names (RFC 1035 section 3.1, RFC 2181 section 11).
const (
	maxLabel     = 63
	maxWireName  = 255
	maxNameParts = 127
)

// wireName is a domain name in uncompressed wire form, ending with the root label.
type wireName []byte

// encodeName turns a name as operators write it, with or without the trailing dot, into lower-case wire form. Labels have
// letters, digits, hyphens and underscores only.
func encodeName(text string) (wireName, error) {
	text = strings.ToLower(strings.TrimSuffix(text, "."))
	if text == "" {
		return nil, errors.New("the name is empty")
	}
	wire := make(wireName, 0, len(text)+2)
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > maxLabel {
			return nil, fmt.Errorf("name %q: the label %q must have 1 to %d characters", text, label, maxLabel)
		}
		if i := strings.IndexFunc(label, notHostRune); i >= 0 {
			return nil, fmt.Errorf("name %q: the label %q has a character that no host name may have", text, label)
		}
		wire = append(wire, byte(len(label)))
		wire = append(wire, label...)
	}
	wire = append(wire, 0)
	if len(wire) > maxWireName {
		return nil, fmt.Errorf("name %q is longer than %d octets", text, maxWireName)
	}
	return wire, nil
}

func notHostRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// parent is the name without its first label. The root has none: it returns an empty name.
func (n wireName) parent() wireName {
	if len(n) <= 1 {
		return nil
	}
	return n[1+int(n[0]):]
}

// without is what stands before domain in n, with a root of its own; ok is false where n is not below domain.
func (n wireName) without(domain wireName) (relative wireName, ok bool) {
	for rest := n; len(rest) > len(domain); {
		rest = rest.parent()
		if len(rest) == len(domain) && string(rest) == string(domain) {
			relative = slices.Clone(n[:len(n)-len(rest)+1])
			relative[len(relative)-1] = 0
			return relative, true
		}
	}
	return nil, false
}

// String writes the name with escapes as zone files do (RFC 1035 section 5.1), without the trailing dot.
func (n wireName) String() string {
	var b strings.Builder
	for len(n) > 1 {
		label := n[1 : 1+int(n[0])]
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		for _, c := range label {
			switch {
			case c == '.' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c <= ' ' || c > '~':
				fmt.Fprintf(&b, "\\%03d", c)
			default:
				b.WriteByte(c)
			}
		}
		n = n.parent()
	}
	if b.Len() == 0 {
		return "."
	}
	return b.String()
}

// lower is c in lower case, for ASCII letters only (RFC 4343).
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
