package cluster

import (
	"fmt"
)

// ValueType is how the value of a setting looks to a command line.
type ValueType string

// The types of values.
const (
	TypeText    ValueType = "text"
	TypeNumber  ValueType = "number"
	TypeBoolean ValueType = "boolean"
)

// Setting describes one setting to whoever builds flags, help or completion from it.
type Setting struct {
	Name     string // as in YAML; the flag is --NAME
	Type     ValueType
	List     bool     // also gives --clear-NAME, --add-NAME and --remove-NAME; values are separated by commas
	Pairs    bool     // a List whose items are KEY=VALUE
	Fixed    bool     // given at creation only
	Required bool     // has no default
	Help     string   // one line, without a full stop at the end
	Value    string   // what a value looks like: "a whole number from 0 to 604800"
	Default  string   // empty: none
	Words    []string // every possible value, when they are few
}

// setting is one row of a table: how one field of T is read, defaulted, checked, printed, edited and described.
type setting[T any] interface {
	about() Setting
	editable() bool // by one flag; nested objects are not
	reset(t *T)
	read(r *reader, n *node, parent, at place, t *T)
	write(t *T, full bool) *node // nil when it has its default, unless full
	check(v *validator, parent, at place, t *T)
	schema() map[string]any
	edit(t *T, e Edit) error
}

// table is all the settings of one kind of object.
type table[T any] struct {
	noun     string // "pool"
	settings []setting[T]
}

// fresh is an object with every default.
func (tb *table[T]) fresh() T {
	var t T
	for _, s := range tb.settings {
		s.reset(&t)
	}
	return t
}

func (tb *table[T]) names() []string {
	out := make([]string, len(tb.settings))
	for i, s := range tb.settings {
		out[i] = s.about().Name
	}
	return out
}

func (tb *table[T]) find(name string) setting[T] {
	for _, s := range tb.settings {
		if s.about().Name == name {
			return s
		}
	}
	return nil
}

// editable lists what can be changed by a flag.
func (tb *table[T]) editable() []Setting {
	var out []Setting
	for _, s := range tb.settings {
		if s.editable() {
			out = append(out, s.about())
		}
	}
	return out
}

func (tb *table[T]) read(r *reader, n *node, at place, t *T) {
	r.mark(at, n)
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMapping {
		r.fault(at, n, "is %s; a %s is written as settings, one NAME: VALUE on each line", n.kind, tb.noun)
		return
	}
	for _, e := range n.entries {
		s := tb.find(e.key.text)
		if s == nil {
			r.unknown(at, e.key, tb.noun, tb.names())
			continue
		}
		s.read(r, e.value, at, at.field(e.key.text), t)
	}
}

func (tb *table[T]) write(t *T, full bool) *node {
	out := &node{kind: kindMapping}
	for _, s := range tb.settings {
		if value := s.write(t, full); value != nil {
			out.entries = append(out.entries, entry{&node{text: s.about().Name}, value})
		}
	}
	return out
}

func (tb *table[T]) check(v *validator, at place, t *T) {
	for _, s := range tb.settings {
		s.check(v, at, at.field(s.about().Name), t)
	}
}

func (tb *table[T]) schema() map[string]any {
	properties := map[string]any{}
	var required []string
	for _, s := range tb.settings {
		about := s.about()
		properties[about.Name] = s.schema()
		if about.Required {
			required = append(required, about.Name)
		}
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// described adds help and default to a schema.
func described(schema map[string]any, help string) map[string]any {
	out := map[string]any{"description": help}
	for k, v := range schema {
		out[k] = v
	}
	return out
}

// scalar is a setting with one value.
type scalar[T, V any] struct {
	name, help string
	form       form[V]
	field      func(*T) *V
	def        V
	required   bool
	fixed      bool
	idle       string // why the setting has no effect yet; empty: it has
}

func (s scalar[T, V]) about() Setting {
	out := Setting{Name: s.name, Type: typeOf(s.form.kind), Help: helpOf(s.help, s.idle), Value: s.form.noun, Words: s.form.words,
		Required: s.required, Fixed: s.fixed}
	if !s.required {
		out.Default = s.form.format(s.def)
	}
	return out
}

// helpOf says in the help of a setting without effect that it has none.
func helpOf(help, idle string) string {
	if idle == "" {
		return help
	}
	return help + "; has no effect yet"
}

// warnIdle says of a setting that somebody set on purpose that nothing acts on it, so that nobody relies on it. It is said once
// for each setting, however many nodes have it: what is wrong must not drown in it.
func warnIdle(v *validator, at place, name, idle string) {
	if idle == "" || v.idle[name] {
		return
	}
	v.idle[name] = true
	v.warn(at, "has no effect yet, wherever it is set: %s", idle)
}

func typeOf(k kind) ValueType {
	switch k {
	case kindNumber:
		return TypeNumber
	case kindBoolean:
		return TypeBoolean
	}
	return TypeText
}

func (s scalar[T, V]) editable() bool { return true }

func (s scalar[T, V]) reset(t *T) { *s.field(t) = s.def }

func (s scalar[T, V]) read(r *reader, n *node, _, at place, t *T) {
	r.mark(at, n)
	if v, ok := readScalar(r, n, at, s.form); ok {
		*s.field(t) = v
	}
}

// readScalar reads one value of a form; it has reported the fault when ok is false.
func readScalar[V any](r *reader, n *node, at place, f form[V]) (v V, ok bool) {
	switch {
	case n.kind == kindNull:
		r.fault(at, n, "has no value; write %s, or remove the line", f.noun)
	case n.unquoted() != "":
		r.fault(at, n, "%s is read as a mapping, because of its colon; put it in quotes: \"%[1]s\"", printable(n.unquoted()))
	case n.kind == kindList || n.kind == kindMapping:
		r.fault(at, n, "is %s; write %s", n.kind, f.noun)
	case f.accepts(n.kind):
		var err error
		if v, err = f.parse(n.text); err == nil {
			return v, true
		}
		r.fault(at, n, "%v", err)
	case f.kind == kindText:
		r.fault(at, n, "%s is read as %s where text is wanted; put it in quotes", n.text, n.kind)
	case n.kind == kindText:
		r.fault(at, n, "%s is text; write %s, without quotes", shown(n.text), f.noun)
	default:
		r.fault(at, n, "%s is %s; write %s", n.text, n.kind, f.noun)
	}
	return v, false
}

func (s scalar[T, V]) write(t *T, full bool) *node {
	text := s.form.format(*s.field(t))
	isDefault := text == s.form.format(s.def)
	if isDefault && (!full || text == "") {
		return nil
	}
	return &node{kind: s.form.kind, text: text, isDefault: isDefault}
}

func (s scalar[T, V]) check(v *validator, _, at place, t *T) {
	var zero V
	text := s.form.format(*s.field(t))
	switch {
	case s.required && text == s.form.format(zero):
		v.fault(at, "needs a value: %s", s.form.noun)
	case text == s.form.format(s.def) && !s.required:
	default:
		if s.form.check != nil {
			if err := s.form.check(*s.field(t)); err != nil {
				v.fault(at, "%v", err)
			}
		}
		warnIdle(v, at, s.name, s.idle)
	}
}

func (s scalar[T, V]) schema() map[string]any {
	out := described(s.form.schema, helpOf(s.help, s.idle))
	if def := s.form.format(s.def); !s.required && def != "" {
		switch d := any(s.def).(type) {
		case bool:
			out["default"] = d
		default:
			if s.form.kind == kindNumber {
				out["default"] = jsonNumber(def)
				if s.form.check != nil && s.form.check(s.def) != nil {
					out["minimum"] = jsonNumber(def) // 0 stands for "not set" below the bounds
				}
			} else {
				out["default"] = def
			}
		}
	}
	return out
}

func (s scalar[T, V]) edit(t *T, e Edit) error {
	switch e.Op {
	case Set:
		v, err := s.form.fromFlag(e.Value)
		if err != nil {
			return err
		}
		*s.field(t) = v
	case Clear:
		if s.required {
			return fmt.Errorf("cannot be cleared: it needs a value, %s", s.form.noun)
		}
		*s.field(t) = s.def
	default:
		return fmt.Errorf("has one value; set it with --%s", s.name)
	}
	return nil
}
