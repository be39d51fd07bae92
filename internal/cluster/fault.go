package cluster

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fault is one thing that is wrong, or worth a warning, in a configuration.
type Fault struct {
	File    string // the name given to Parse; empty when the configuration did not come from a file
	Path    string // the setting, as operators name it: groupnet0.subnet0.pool0.ranges[1]; items are counted from 1
	Message string // what is wrong, why, and what to do
	Line    int    // 1-based; 0 when the configuration did not come from a file
	Column  int    // 1-based, in characters
	Excerpt string // the offending line with a caret under the offending value; empty without a file
	Warning bool   // the configuration works, but probably not as intended

	Unreadable bool // of an edit: the value cannot be read, whatever the configuration is

	at    string // where the value stands, by indexes: groupnets[0].subnets[0].pools[0].sc-ttl
	other string // where the value stands that this one collides with; empty: no collision
}

// String writes the fault with its place and excerpt, on several lines, without a newline at the end.
func (f Fault) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	}
	if f.Warning {
		b.WriteString("warning: ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	if f.Excerpt != "" {
		b.WriteString("\n" + f.Excerpt)
	}
	return b.String()
}

// Faults is all that is wrong with a configuration, in the order of the file.
type Faults []Fault

// Error writes every fault, each with its place and excerpt.
func (fs Faults) Error() string {
	texts := make([]string, 0, len(fs)+1)
	for _, f := range fs {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, "\n")
}

// Errors returns the faults for which the configuration is refused.
func (fs Faults) Errors() Faults { return fs.only(false) }

// Warnings returns the faults with which the configuration is accepted.
func (fs Faults) Warnings() Faults { return fs.only(true) }

func (fs Faults) only(warning bool) Faults {
	var out Faults
	for _, f := range fs {
		if f.Warning == warning {
			out = append(out, f)
		}
	}
	return out
}

// asError returns the faults that refuse the configuration as an error, nil when there is none.
func (fs Faults) asError() error {
	if errs := fs.Errors(); len(errs) > 0 {
		return errs
	}
	return nil
}

// capped keeps the first maxFaults faults and says how many more there are. Where there is that much to say, warnings give way to
// what refuses the configuration. Names from the file that stand in a fault are
// made harmless for terminals here, once.
func (fs Faults) capped() Faults {
	for i := range fs {
		fs[i].Path, fs[i].Message = printable(cut(fs[i].Path)), printable(cut(fs[i].Message))
	}
	if errs := fs.Errors(); len(fs) > maxFaults && len(errs) > 0 {
		fs = errs
	}
	if len(fs) <= maxFaults {
		return fs
	}
	last := Fault{
		File:    fs[0].File,
		Message: fmt.Sprintf("and %d more; mend these first", len(fs)-maxFaults),
		Warning: len(fs.Errors()) == 0,
	}
	return append(slices.Clone(fs[:maxFaults]), last)
}

// place is where a setting stands: by indexes, which is unique even in a wrong file, and as operators name it.
type place struct{ index, name string }

func (p place) field(name string) place {
	return place{dotted(p.index, name), dotted(p.name, name)}
}

func (p place) item(i int) place {
	return place{fmt.Sprintf("%s[%d]", p.index, i), fmt.Sprintf("%s[%d]", p.name, i+1)}
}

// object is the place of the i-th named object of the list p; parent is the place of the object that has the list.
// Groupnets, subnets and pools are known by their dotted ids, so their list's own name is left out (bare).
func (p place) object(parent place, i int, name string, bare bool) place {
	out := p.item(i)
	switch {
	case name == "":
	case bare:
		out.name = dotted(parent.name, name)
	default:
		out.name = dotted(p.name, name)
	}
	return out
}

func dotted(parent, name string) string {
	if parent == "" || name == "" {
		return parent + name
	}
	return parent + "." + name
}

// excerpt shows a line of the source and a caret under the column.
func excerpt(lines []string, line, column int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	text := strings.ReplaceAll(lines[line-1], "\t", " ")
	runes := []rune(text)
	start := 0
	const width = 100
	if column > width {
		start = min(column-width/2, len(runes))
	}
	runes = runes[start:]
	if len(runes) > width {
		runes = runes[:width]
	}
	number := fmt.Sprintf("%5d", line)
	margin := strings.Repeat(" ", utf8.RuneCountInString(number))
	caret := strings.Repeat(" ", max(0, column-1-start))
	return fmt.Sprintf("%s | %s\n%s | %s^", number, printable(string(runes)), margin, caret)
}

// cut bounds what a single fault can take on a screen: names in a wrong file may be of any length.
func cut(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// printable replaces what would move the cursor of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}

// shown is a value as messages show it: quoted, and not longer than a line.
func shown(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "..."
	}
	return `"` + printable(s) + `"`
}
