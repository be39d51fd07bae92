package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// list is a setting with several values of one form.
type list[T, V any] struct {
	name, help string
	form       form[V]
	field      func(*T) *[]V
	def        []V
	most       int
	required   bool
	repeats    bool                     // the same value may stand there twice
	words      bool                     // values on a command line are separated by spaces instead of commas
	idle       string                   // why the setting has no effect yet; empty: it has
	order      func([]V) []V            // brings the list into its one order; nil: the order written counts
	add        func([]V, V) ([]V, bool) // for commands; nil: append what is not there
	remove     func([]V, V) ([]V, bool)
}

func (s list[T, V]) about() Setting {
	return Setting{Name: s.name, Type: typeOf(s.form.kind), List: true, Help: helpOf(s.help, s.idle), Value: s.form.noun, Words: s.form.words,
		Default: strings.Join(s.texts(s.def), ","), Required: s.required}
}

func (s list[T, V]) editable() bool { return true }

func (s list[T, V]) texts(values []V) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = s.form.format(v)
	}
	return out
}

func (s list[T, V]) reset(t *T) { *s.field(t) = slices.Clone(s.def) }

func (s list[T, V]) read(r *reader, n *node, _, at place, t *T) {
	r.mark(at, n)
	if n.kind != kindList && n.kind != kindNull {
		r.fault(at, n, "is %s; write a list, such as [A, B], in which each item is %s", n.kind, s.form.noun)
		return
	}
	var values []V
	for i, item := range n.items {
		r.mark(at.item(i), item)
		if v, ok := readScalar(r, item, at.item(i), s.form); ok {
			values = append(values, v)
		} else {
			values = append(values, *new(V)) // keeps the indexes of the rest
		}
	}
	*s.field(t) = values
}

// settle brings the list into its one order, after its faults have been reported by index.
func (s list[T, V]) settle(t *T) {
	if s.order != nil {
		*s.field(t) = s.order(*s.field(t))
	}
}

func (s list[T, V]) write(t *T, full bool) *node {
	texts := s.texts(*s.field(t))
	isDefault := slices.Equal(texts, s.texts(s.def))
	if isDefault && !full {
		return nil
	}
	out := &node{kind: kindList, isDefault: isDefault}
	for _, text := range texts {
		out.items = append(out.items, &node{kind: s.form.kind, text: text})
	}
	return out
}

func (s list[T, V]) check(v *validator, _, at place, t *T) {
	values := *s.field(t)
	if s.required && len(values) == 0 {
		v.fault(at, "needs at least one item: %s", s.form.noun)
	}
	if len(values) > s.most {
		v.fault(at, "has %d items; at most %d are taken", len(values), s.most)
		return
	}
	faults, seen := len(v.faults), map[string]int{}
	for i, value := range values {
		if s.form.check != nil {
			if err := s.form.check(value); err != nil {
				v.fault(at.item(i), "%v", err)
				continue
			}
		}
		text := s.form.format(value)
		if first, dup := seen[text]; dup && !s.repeats && !v.broken(at.item(i)) {
			v.collision(at.item(i), at.item(first), "%s is listed twice", shown(text))
		} else if !dup {
			seen[text] = i
		}
	}
	if len(values) > 0 && len(v.faults) == faults {
		warnIdle(v, at, s.name, s.idle)
	}
}

func (s list[T, V]) schema() map[string]any {
	out := map[string]any{"type": "array", "items": s.form.schema, "maxItems": s.most, "description": helpOf(s.help, s.idle)}
	if s.required {
		out["minItems"] = 1
	} else {
		out["default"] = s.defaults()
	}
	if !s.repeats {
		out["uniqueItems"] = true
	}
	return out
}

// defaults are the items that the list has when it is left out, as a JSON schema shows them.
func (s list[T, V]) defaults() []any {
	out := []any{}
	for _, text := range s.texts(s.def) {
		if s.form.kind == kindNumber {
			out = append(out, jsonNumber(text))
		} else {
			out = append(out, text)
		}
	}
	return out
}

// parseAll reads the values of a flag.
func (s list[T, V]) parseAll(value string) ([]V, error) {
	parts := strings.Split(value, ",")
	if s.words {
		parts = strings.Fields(value)
	}
	var out []V
	for _, part := range parts {
		v, err := s.form.fromFlag(part)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (s list[T, V]) edit(t *T, e Edit) error {
	field := s.field(t)
	defer s.settle(t)
	if e.Op == Clear {
		*field = slices.Clone(s.def)
		return nil
	}
	values, err := s.parseAll(e.Value)
	if err != nil {
		return err
	}
	switch e.Op {
	case Set:
		*field = values
		return nil
	case Add:
		return s.each(field, values, s.adder(), "is already in %s")
	case Remove:
		return s.each(field, values, s.remover(), "is not in %s")
	}
	return fmt.Errorf("cannot be changed in that way")
}

func (s list[T, V]) each(field *[]V, values []V, do func([]V, V) ([]V, bool), refusal string) error {
	for _, v := range values {
		next, ok := do(slices.Clone(*field), v)
		if !ok {
			present := "it is empty"
			if len(*field) > 0 {
				present = "it has " + shown(strings.Join(s.texts(*field), ", "))
			}
			return fmt.Errorf("%s "+refusal+"; %s", shown(s.form.format(v)), s.name, present)
		}
		*field = next
	}
	return nil
}

func (s list[T, V]) adder() func([]V, V) ([]V, bool) {
	if s.add != nil {
		return s.add
	}
	return func(values []V, v V) ([]V, bool) {
		return append(values, v), !slices.Contains(s.texts(values), s.form.format(v))
	}
}

func (s list[T, V]) remover() func([]V, V) ([]V, bool) {
	if s.remove != nil {
		return s.remove
	}
	return func(values []V, v V) ([]V, bool) {
		i := slices.Index(s.texts(values), s.form.format(v))
		if i < 0 {
			return values, false
		}
		values = slices.Delete(values, i, i+1)
		if len(values) == 0 {
			values = nil
		}
		return values, true
	}
}
