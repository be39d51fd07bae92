package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// writeJSON writes a tree with two blanks of indentation, or on one line.
func writeJSON(b *strings.Builder, tree any, indent string, pretty bool) {
	inner, open, sep := indent+"  ", "\n"+indent+"  ", ",\n"+indent+"  "
	closing, colon := "\n"+indent, ": "
	if !pretty {
		open, sep, closing, colon = "", ",", "", ":"
	}
	switch t := tree.(type) {
	case object:
		if len(t) == 0 {
			b.WriteString("{}")
			return
		}
		b.WriteString("{" + open)
		for i, m := range t {
			if i > 0 {
				b.WriteString(sep)
			}
			b.WriteString(quoted(m.name) + colon)
			writeJSON(b, m.value, inner, pretty)
		}
		b.WriteString(closing + "}")
	case list:
		if len(t) == 0 {
			b.WriteString("[]")
			return
		}
		b.WriteString("[" + open)
		for i, v := range t {
			if i > 0 {
				b.WriteString(sep)
			}
			writeJSON(b, v, inner, pretty)
		}
		b.WriteString(closing + "]")
	default:
		b.WriteString(scalar(t))
	}
}

// writeYAML writes a tree as block YAML. Strings that could be read as anything else are quoted as in JSON, which YAML
// 1.2 reads the same.
func writeYAML(b *strings.Builder, tree any, indent string) {
	switch t := tree.(type) {
	case object:
		for _, m := range t {
			b.WriteString(indent + plainOrQuoted(m.name) + ":")
			writeYAMLValue(b, m.value, indent)
		}
	case list:
		for _, v := range t {
			item := &strings.Builder{}
			if nested(v) {
				writeYAML(item, v, indent+"  ")
				b.WriteString(indent + "- " + strings.TrimPrefix(item.String(), indent+"  "))
			} else {
				b.WriteString(indent + "- " + yamlScalar(v) + "\n")
			}
		}
	default:
		b.WriteString(indent + yamlScalar(t) + "\n")
	}
}

func writeYAMLValue(b *strings.Builder, value any, indent string) {
	switch {
	case nested(value):
		b.WriteString("\n")
		writeYAML(b, value, indent+"  ")
	default:
		b.WriteString(" " + yamlScalar(value) + "\n")
	}
}

// nested reports whether a value needs lines of its own.
func nested(value any) bool {
	switch t := value.(type) {
	case object:
		return len(t) > 0
	case list:
		return len(t) > 0
	}
	return false
}

func yamlScalar(value any) string {
	switch t := value.(type) {
	case object:
		return "{}"
	case list:
		return "[]"
	case string:
		return plainOrQuoted(t)
	default:
		return scalar(t)
	}
}

// plain is what YAML takes as a string without quotes, whatever the schema: it starts with a letter, and has nothing that
// means something in a flow or ends a scalar.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)

// words that some YAML reader takes for a boolean or null.
var yamlWords = map[string]bool{"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true,
	"null": true, "y": true, "n": true}

func plainOrQuoted(s string) string {
	if plain.MatchString(s) && !yamlWords[strings.ToLower(s)] {
		return s
	}
	return quoted(s)
}

func scalar(value any) string {
	switch t := value.(type) {
	case nil:
		return "null"
	case string:
		return quoted(t)
	case bool:
		return strconv.FormatBool(t)
	case float64:
		if math.IsNaN(t) || math.IsInf(t, 0) {
			return "null" // neither JSON nor our contract has them
		}
		return strconv.FormatFloat(t, 'f', -1, 64)
	default:
		return fmt.Sprint(t) // whole numbers
	}
}

func quoted(s string) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(s) != nil {
		return `""` // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
