package cli

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"
)

// format is the value of --output.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String, Set and Type make format a flag.
func (f *format) String() string { return string(*f) }

// Set takes table, json or yaml.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatYAML:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("write table, json or yaml")
}

// Type is shown in help.
func (f *format) Type() string { return "table|json|yaml" }

// print writes one result: the tree as JSON or YAML, or what table lays out for people.
func (s *session) print(tree any, table func(*page)) error {
	var b strings.Builder
	switch s.format {
	case formatJSON:
		writeJSON(&b, tree, "", true)
		b.WriteByte('\n')
	case formatYAML:
		writeYAML(&b, tree, "")
	default:
		p := &page{out: &b, colour: s.colour(), now: s.Now()}
		table(p)
	}
	return s.write(b.String())
}

// show prints a message of the contract.
func (s *session) show(message proto.Message, table func(*page)) error {
	return s.print(treeOf(message), table)
}

// stream writes one of many results: a line of JSON, a YAML document, or what table lays out.
func (s *session) stream(message proto.Message, table func(*page)) error {
	var b strings.Builder
	switch s.format {
	case formatJSON:
		writeJSON(&b, treeOf(message), "", false)
		b.WriteByte('\n')
	case formatYAML:
		b.WriteString("---\n")
		writeYAML(&b, treeOf(message), "")
	default:
		table(&page{out: &b, colour: s.colour(), now: s.Now()})
	}
	return s.write(b.String())
}

func (s *session) write(text string) error {
	if _, err := io.WriteString(s.Out, text); err != nil {
		return failed("writing the result: %v", err)
	}
	return nil
}

// colour follows the terminal and the convention of no-color.org.
func (s *session) colour() bool { return s.OutTerminal && s.Environment("NO_COLOR") == "" }
