package cluster

import (
	"bytes"
	"encoding/json"
	"strings"
)

// PrintJSON writes a configuration as JSON, with the names, the units and the order of the file; what has its default is left out.
// Parse reads it like the YAML that Print writes: JSON is YAML, too.
func PrintJSON(c *Config) []byte {
	var b bytes.Buffer
	jsonNode(&b, configTable.write(c, false), "\n")
	b.WriteByte('\n')
	return b.Bytes()
}

// jsonNode writes one value; newline begins a line that is indented as far as the value is.
func jsonNode(b *bytes.Buffer, n *node, newline string) {
	inner := newline + "  "
	switch n.kind {
	case kindMapping:
		b.WriteByte('{')
		for i, e := range n.entries {
			b.WriteString(separated(i, inner) + jsonText(e.key.text) + ": ")
			jsonNode(b, e.value, inner)
		}
		b.WriteString(closing(len(n.entries), newline) + "}")
	case kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			b.WriteString(separated(i, inner))
			jsonNode(b, item, inner)
		}
		b.WriteString(closing(len(n.items), newline) + "]")
	case kindNumber, kindBoolean:
		b.WriteString(n.text)
	default:
		b.WriteString(jsonText(n.text))
	}
}

func separated(i int, newline string) string {
	if i == 0 {
		return newline
	}
	return "," + newline
}

func closing(items int, newline string) string {
	if items == 0 {
		return ""
	}
	return newline
}

// jsonText is a JSON string (RFC 8259 section 7) without the escapes that only HTML needs.
func jsonText(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("text is always JSON: " + err.Error())
	}
	return strings.TrimSuffix(b.String(), "\n")
}
