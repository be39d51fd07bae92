package cluster

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Print writes a configuration as YAML. What has its default is left out. For a configuration that passed Validate,
// Parse(Print(c)) equals c.
func Print(c *Config) []byte {
	var b bytes.Buffer
	printMapping(&b, configTable.write(c, false), 0)
	return b.Bytes()
}

// PrintAll is Print with the defaults written out.
func PrintAll(c *Config) []byte {
	var b bytes.Buffer
	printMapping(&b, configTable.write(c, true), 0)
	return b.Bytes()
}

func printMapping(b *bytes.Buffer, n *node, depth int) {
	for _, e := range n.entries {
		b.WriteString(strings.Repeat("  ", depth))
		printEntry(b, e, depth)
	}
}

// printEntry writes "key: value" whose line has been indented already.
func printEntry(b *bytes.Buffer, e entry, depth int) {
	b.WriteString(scalarText(e.key) + ":")
	switch {
	case e.value.kind == kindMapping && len(e.value.entries) > 0:
		b.WriteString("\n")
		printMapping(b, e.value, depth+1)
	case e.value.kind == kindList && slices.ContainsFunc(e.value.items, func(i *node) bool { return i.kind == kindMapping }):
		b.WriteString("\n")
		for _, item := range e.value.items {
			printItem(b, item, depth+1)
		}
	default:
		b.WriteString(" " + flow(e.value) + "\n")
	}
}

func printItem(b *bytes.Buffer, n *node, depth int) {
	b.WriteString(strings.Repeat("  ", depth) + "-")
	if n.kind != kindMapping || len(n.entries) == 0 {
		b.WriteString(" " + flow(n) + "\n")
		return
	}
	for i, e := range n.entries {
		if i == 0 {
			b.WriteString(" ")
		} else {
			b.WriteString(strings.Repeat("  ", depth+1))
		}
		printEntry(b, e, depth+1)
	}
}

// flow writes a value on one line.
func flow(n *node) string {
	var parts []string
	switch n.kind {
	case kindList:
		for _, item := range n.items {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case kindMapping:
		for _, e := range n.entries {
			parts = append(parts, scalarText(e.key)+": "+flow(e.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return scalarText(n)
}

// Text that every YAML reader takes for text, without quotes: words, addresses, networks and ranges.
var (
	plainWord    = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_./-]*$`)
	plainAddress = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+[0-9./-]*$`)
)

// Words that some YAML reader takes for something else than text.
var notPlain = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}

func scalarText(n *node) string {
	if n.kind == kindNumber || n.kind == kindBoolean {
		return n.text
	}
	if (plainWord.MatchString(n.text) || plainAddress.MatchString(n.text)) && !slices.Contains(notPlain, strings.ToLower(n.text)) {
		return n.text
	}
	return quoted(n.text)
}

// quoted is YAML's double-quoted form (YAML 1.2 section 7.3.1).
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
