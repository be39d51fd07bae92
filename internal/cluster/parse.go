package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Parse reads a configuration, fills in defaults and validates it. name is the file's name, for messages only. The error
// is of type Faults and has everything that is wrong, each with its line, column and an excerpt. Warnings alone are no
// error; ParseWithWarnings returns them.
func Parse(name string, data []byte) (*Config, error) {
	c, faults := ParseWithWarnings(name, data)
	if err := faults.asError(); err != nil {
		return nil, err
	}
	return c, nil
}

// ParseWithWarnings is Parse that returns the warnings as well, in the order of the file. The configuration is nil when
// one of the faults is not a warning.
func ParseWithWarnings(name string, data []byte) (*Config, Faults) {
	r := &reader{positions: map[string]spot{}}
	c := configTable.fresh()
	root, faults := readDocument(data)
	r.faults = faults
	if root != nil {
		configTable.read(r, root, place{}, &c)
		v := &validator{isBroken: r.isBroken}
		v.config(&c)
		r.faults = append(r.faults, v.faults...)
	}
	lines := strings.Split(plainLines(data), "\n")
	out := r.located(name, lines)
	if len(out.Errors()) > 0 {
		return nil, out
	}
	settle(&c)
	return &c, out
}

// settle brings those lists into one order whose order has no meaning.
func settle(c *Config) {
	for gi := range c.Groupnets {
		for si := range c.Groupnets[gi].Subnets {
			for pi := range c.Groupnets[gi].Subnets[si].Pools {
				slices.Sort(c.Groupnets[gi].Subnets[si].Pools[pi].SuspendedNodes)
			}
		}
	}
}

// spot is a position in the source.
type spot struct{ line, column int }

// reader collects faults while a document is read into a Config, and remembers where each setting stood.
type reader struct {
	faults    Faults
	positions map[string]spot // by index path
	bad       []string        // index paths of what could not be read
}

// mark remembers where a value stands, and that it was refused already if so.
func (r *reader) mark(at place, n *node) {
	r.positions[at.index] = spot{n.line, n.column}
	if n.kind == kindRefused {
		r.bad = append(r.bad, at.index)
	}
}

// fault reports a value that cannot be read. Nothing more will be said about it.
func (r *reader) fault(at place, n *node, format string, args ...any) {
	if n.kind == kindRefused {
		return
	}
	r.bad = append(r.bad, at.index)
	r.faults = append(r.faults, Fault{Path: at.name, Message: fmt.Sprintf(format, args...), Line: n.line, Column: n.column, at: at.index})
}

// unknown reports a key that no setting has.
func (r *reader) unknown(at place, key *node, noun string, names []string) {
	hint := didYouMean(key.text, names)
	for _, name := range names {
		if hint == fmt.Sprintf("; did you mean %s?", name) {
			r.bad = append(r.bad, at.field(name).index) // so that it is not reported as missing too
		}
	}
	if hint == "" {
		hint = "; a " + noun + " has " + listed(names, "and")
	}
	r.faults = append(r.faults, Fault{Path: at.name, Line: key.line, Column: key.column,
		Message: fmt.Sprintf("%s is not a setting of a %s%s", shown(key.text), noun, hint), at: at.index})
}

// isBroken reports whether the value at an index path, or something in or around it, could not be read.
func (r *reader) isBroken(index string) bool {
	for _, bad := range r.bad {
		if within(bad, index) || within(index, bad) {
			return true
		}
	}
	return false
}

// within reports whether the index path inner is outer or lies in it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}

// find is the position of an index path, or of the nearest object around it.
func (r *reader) find(index string) spot {
	for {
		if s, ok := r.positions[index]; ok && s.line > 0 {
			return s
		}
		cut := strings.LastIndexAny(index, ".[")
		if cut < 0 {
			return r.positions[""]
		}
		index = index[:cut]
	}
}

// located gives every fault its line, column and excerpt, and sorts them by where they stand.
func (r *reader) located(name string, lines []string) Faults {
	out := slices.Clone(r.faults)
	for i := range out {
		f := &out[i]
		f.File = name
		if f.Line == 0 {
			s := r.find(f.at)
			f.Line, f.Column = max(1, s.line), max(1, s.column)
		}
		f.Line = min(f.Line, len(lines))
		if s, ok := r.positions[f.other]; ok && f.other != "" {
			f.Message += fmt.Sprintf(" (line %d)", s.line)
		}
		f.Excerpt = excerpt(lines, f.Line, f.Column)
	}
	slices.SortStableFunc(out, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return out.capped()
}
