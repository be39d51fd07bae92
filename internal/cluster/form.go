package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// form is how one value is written: its text, what it looks like in YAML, its bounds, its part of the JSON schema.
type form[V any] struct {
	noun   string // for messages and help: "an address such as 10.0.0.7"
	kind   kind   // how it is printed: text, number or boolean
	also   []kind // kinds that are read as well
	parse  func(string) (V, error)
	format func(V) string
	check  func(V) error // bounds that do not depend on other values; nil: none
	words  []string      // every value, when they are few
	schema map[string]any
}

func (f form[V]) accepts(k kind) bool { return k == f.kind || slices.Contains(f.also, k) }

// wholeNumber is an integer within inclusive bounds.
func wholeNumber[V ~int | ~uint16 | ~uint32](low, high int64) form[V] {
	noun := fmt.Sprintf("a whole number from %d to %d", low, high)
	return form[V]{
		noun: noun,
		kind: kindNumber,
		parse: func(s string) (V, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s is not %s", shown(s), noun)
			}
			if int64(V(n)) != n {
				return 0, fmt.Errorf("%d is not %s", n, noun)
			}
			return V(n), nil
		},
		format: func(v V) string { return strconv.FormatInt(int64(v), 10) },
		check: func(v V) error {
			if int64(v) < low || int64(v) > high {
				return fmt.Errorf("%d is not %s", v, noun)
			}
			return nil
		},
		schema: map[string]any{"type": "integer", "minimum": low, "maximum": high},
	}
}

// wholeUnits is a duration written as a whole number of a unit, whose name the setting's own name or help gives.
func wholeUnits(unit time.Duration, low, high int64) form[time.Duration] {
	name := "seconds"
	if unit == time.Millisecond {
		name = "milliseconds"
	}
	noun := fmt.Sprintf("a whole number of %s from %d to %d", name, low, high)
	return form[time.Duration]{
		noun: noun,
		kind: kindNumber,
		parse: func(s string) (time.Duration, error) {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n > int64(1<<62)/int64(unit) || n < -int64(1<<62)/int64(unit) {
				return 0, fmt.Errorf("%s is not %s", shown(s), noun)
			}
			return time.Duration(n) * unit, nil
		},
		format: func(d time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) },
		check: func(d time.Duration) error {
			if d%unit != 0 || int64(d/unit) < low || int64(d/unit) > high {
				return fmt.Errorf("%s is not %s", unitText(d, unit), noun)
			}
			return nil
		},
		schema: map[string]any{"type": "integer", "minimum": low, "maximum": high},
	}
}

// unitText writes a duration as operators wrote it, unless it came from elsewhere and is no whole number of units.
func unitText(d, unit time.Duration) string {
	if d%unit != 0 {
		return d.String()
	}
	return strconv.FormatInt(int64(d/unit), 10)
}

var boolean = form[bool]{
	noun:  "true or false",
	kind:  kindBoolean,
	words: []string{"true", "false"},
	parse: func(s string) (bool, error) {
		switch s {
		case "true", "True", "TRUE":
			return true, nil
		case "false", "False", "FALSE":
			return false, nil
		}
		return false, fmt.Errorf("%s is not true or false", shown(s))
	},
	format: strconv.FormatBool,
	schema: map[string]any{"type": "boolean"},
}

// oneOf is a word out of a fixed list.
func oneOf[V ~string](values ...V) form[V] {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return form[V]{
		noun:   listed(words, "or"),
		words:  words,
		parse:  func(s string) (V, error) { return V(s), nil },
		format: func(v V) string { return string(v) },
		check: func(v V) error {
			if slices.Contains(values, v) {
				return nil
			}
			return fmt.Errorf("%s is not one of %s%s", shown(string(v)), listed(words, "or"), didYouMean(string(v), words))
		},
		schema: map[string]any{"type": "string", "enum": words},
	}
}

// voterWord reads true and false as YAML's own booleans too.
func voterWord() form[Voter] {
	f := oneOf(VoterAuto, VoterTrue, VoterFalse)
	f.also = []kind{kindBoolean}
	f.schema = map[string]any{"enum": []any{"auto", "true", "false", true, false}}
	return f
}

// text is any string that check takes.
func text(noun string, check func(string) error, pattern string) form[string] {
	schema := map[string]any{"type": "string"}
	if pattern != "" {
		schema["pattern"] = pattern
	}
	return form[string]{
		noun:   noun,
		parse:  func(s string) (string, error) { return s, nil },
		format: func(s string) string { return s },
		check:  check,
		schema: schema,
	}
}

// dnsName is a host name without the trailing dot, in lower case: names compare without case (RFC 1035 section 2.3.3).
func dnsName(noun string) form[string] {
	f := text(noun, checkDNSName, "")
	f.parse = func(s string) (string, error) { return lowerASCII(strings.TrimSuffix(s, ".")), nil }
	f.schema = map[string]any{"type": "string", "maxLength": 254, "pattern": `^[^_\s]+$`}
	return f
}

// reverseZoneName is a zone of names of addresses.
func reverseZoneName(noun string) form[string] {
	f := dnsName(noun)
	f.check = checkReverseZone
	f.schema = map[string]any{"type": "string", "maxLength": 254, "pattern": `^[0-9A-Fa-f.-]+\.([iI][nN]-[aA][dD][dD][rR]|[iI][pP]6)\.[aA][rR][pP][aA]\.?$`}
	return f
}

// looseNumber lets 10.10, which YAML takes for a number, reach the parser that can say what is missing from it.
var looseNumber = []kind{kindNumber}

var address = form[netip.Addr]{
	noun:  "an address such as 10.0.0.7 or fd00::7",
	also:  looseNumber,
	parse: parseAddress,
	format: func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	},
	check:  checkAddress,
	schema: map[string]any{"type": "string"},
}

var network = form[netip.Prefix]{
	noun:  "a network such as 10.0.0.0/24",
	also:  looseNumber,
	parse: parseNetwork,
	format: func(p netip.Prefix) string {
		if !p.IsValid() {
			return ""
		}
		return p.String()
	},
	check: func(p netip.Prefix) error {
		if !p.IsValid() {
			return fmt.Errorf("is not a network; write one such as 10.0.0.0/24")
		}
		if p != p.Masked() {
			return fmt.Errorf("%s has bits beyond its mask; write %s", p, p.Masked())
		}
		return nil
	},
	schema: map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f.:]+/[0-9]+$`},
}

var addressRange = form[Range]{
	noun:   "a range of addresses such as 10.0.0.4-10.0.0.6, or one address",
	also:   looseNumber,
	parse:  ParseRange,
	format: Range.String,
	check:  checkRange,
	schema: map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f.:]+(\s*-\s*[0-9A-Fa-f.:]+)?$`},
}

var memberInterface = form[Member]{
	noun:  "an interface of a node such as 3:ext-1",
	also:  looseNumber,
	parse: ParseMember,
	format: func(m Member) string {
		return fmt.Sprintf("%d:%s", m.LNN, m.Interface)
	},
	check: func(m Member) error {
		if m.LNN < 1 || m.LNN > maxLNN {
			return fmt.Errorf("%d is not a node number; write a member as LNN:INTERFACE, such as 3:ext-1", m.LNN)
		}
		return checkInterfaceName(m.Interface)
	},
	schema: map[string]any{"type": "string", "pattern": `^[0-9]+:.+$`},
}

var route = form[Route]{
	noun:  "a route such as 10.1.0.0/16-10.0.0.1 (destination-gateway)",
	also:  looseNumber,
	parse: parseRoute,
	format: func(r Route) string {
		return network.format(r.Destination) + "-" + address.format(r.Gateway)
	},
	check: func(r Route) error {
		if err := network.check(r.Destination); err != nil {
			return err
		}
		if err := address.check(r.Gateway); err != nil {
			return err
		}
		if r.Destination.Addr().Is4() != r.Gateway.Is4() {
			return fmt.Errorf("the destination %s and the gateway %s are of different families", r.Destination, r.Gateway)
		}
		return nil
	},
	schema: map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f.:]+/[0-9]+\s*-\s*[0-9A-Fa-f.:]+$`},
}

// unreadable is the error of a value that cannot be read.
type unreadable struct{ error }

// fromFlag reads a value as it stands on a command line. What cannot be read, and what is none of the few possible words, is
// unreadable; whether the value fits into a configuration is looked at when that is whole.
func (f form[V]) fromFlag(text string) (V, error) {
	v, err := f.parse(strings.TrimSpace(text))
	if err == nil && len(f.words) > 0 && f.check != nil {
		err = f.check(v)
	}
	if err != nil {
		err = unreadable{err}
	}
	return v, err
}
