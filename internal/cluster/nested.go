package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func jsonNumber(s string) any { return json.Number(s) }

// pairs is a setting that maps keys to values, such as weights per node.
type pairs[T any, K comparable, V any] struct {
	name, help string
	key        form[K]
	value      form[V]
	compare    func(a, b K) int
	field      func(*T) *map[K]V
	most       int
}

func (s pairs[T, K, V]) about() Setting {
	return Setting{Name: s.name, Type: TypeText, List: true, Pairs: true, Help: s.help,
		Value: fmt.Sprintf("KEY=VALUE: %s = %s", s.key.noun, s.value.noun)}
}

func (s pairs[T, K, V]) editable() bool { return true }

func (s pairs[T, K, V]) reset(t *T) { *s.field(t) = nil }

func (s pairs[T, K, V]) keys(t *T) []K {
	return slices.SortedFunc(maps.Keys(*s.field(t)), s.compare)
}

// entryAt is the place of the value of one key.
func (s pairs[T, K, V]) entryAt(at place, k K) place {
	suffix := "[" + s.key.format(k) + "]"
	return place{at.index + suffix, at.name + suffix}
}

func (s pairs[T, K, V]) read(r *reader, n *node, _, at place, t *T) {
	r.mark(at, n)
	if n.kind != kindMapping && n.kind != kindNull {
		r.fault(at, n, "is %s; write it as KEY: VALUE lines, %s: %s", n.kind, s.key.noun, s.value.noun)
		return
	}
	out := map[K]V{}
	for _, e := range n.entries {
		k, err := s.key.parse(e.key.text)
		if err == nil && s.key.check != nil {
			err = s.key.check(k)
		}
		if err != nil {
			r.fault(at, e.key, "%v", err)
			continue
		}
		if _, dup := out[k]; dup {
			r.fault(at, e.key, "%s is written twice", shown(s.key.format(k)))
			continue
		}
		entry := s.entryAt(at, k)
		r.mark(entry, e.value)
		if v, ok := readScalar(r, e.value, entry, s.value); ok {
			out[k] = v
		}
	}
	if len(out) > 0 {
		*s.field(t) = out
	}
}

func (s pairs[T, K, V]) write(t *T, full bool) *node {
	if len(*s.field(t)) == 0 && !full {
		return nil
	}
	out := &node{kind: kindMapping, isDefault: len(*s.field(t)) == 0}
	for _, k := range s.keys(t) {
		key := &node{kind: s.key.kind, text: s.key.format(k)}
		value := &node{kind: s.value.kind, text: s.value.format((*s.field(t))[k])}
		out.entries = append(out.entries, entry{key, value})
	}
	return out
}

func (s pairs[T, K, V]) check(v *validator, _, at place, t *T) {
	if n := len(*s.field(t)); n > s.most {
		v.fault(at, "has %d entries; at most %d are taken", n, s.most)
		return
	}
	for _, k := range s.keys(t) {
		if err := s.key.check(k); err != nil {
			v.fault(s.entryAt(at, k), "%v", err)
		}
		if err := s.value.check((*s.field(t))[k]); err != nil {
			v.fault(s.entryAt(at, k), "%v", err)
		}
	}
}

func (s pairs[T, K, V]) schema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": s.value.schema, "maxProperties": s.most, "description": s.help,
		"default": map[string]any{}}
}

func (s pairs[T, K, V]) edit(t *T, e Edit) error {
	out := maps.Clone(*s.field(t))
	if out == nil || e.Op == Set || e.Op == Clear {
		out = map[K]V{}
	}
	if e.Op != Clear {
		for _, part := range strings.Split(e.Value, ",") {
			if err := s.editOne(out, strings.TrimSpace(part), e.Op); err != nil {
				return err
			}
		}
	}
	if len(out) == 0 {
		out = nil
	}
	*s.field(t) = out
	return nil
}

func (s pairs[T, K, V]) editOne(out map[K]V, part string, op EditOp) error {
	keyText, valueText, both := strings.Cut(part, "=")
	k, err := s.key.parse(strings.TrimSpace(keyText))
	if err != nil {
		return unreadable{err}
	}
	_, present := out[k]
	if op == Remove {
		if !present {
			return fmt.Errorf("%s is not in %s", shown(keyText), s.name)
		}
		delete(out, k)
		return nil
	}
	if !both {
		return unreadable{fmt.Errorf("%s has no value; write KEY=VALUE", shown(part))}
	}
	if present && op == Add {
		return fmt.Errorf("%s is already in %s; remove it first, or set the whole with --%s", shown(keyText), s.name, s.name)
	}
	v, err := s.value.parse(strings.TrimSpace(valueText))
	if err != nil {
		return unreadable{err}
	}
	out[k] = v
	return nil
}

// objects is a setting that holds named objects with a table of their own.
type objects[T, U any] struct {
	name, help string
	table      *table[U]
	field      func(*T) *[]U
	nameOf     func(*U) string // nil: the objects have no names
	bare       bool            // dotted ids leave the list's name out
	most       int
}

func (s objects[T, U]) about() Setting {
	return Setting{Name: s.name, Type: TypeText, List: true, Help: s.help}
}

func (s objects[T, U]) editable() bool { return false }

func (s objects[T, U]) reset(t *T) { *s.field(t) = nil }

func (s objects[T, U]) at(parent, at place, i int, u *U) place {
	name := ""
	if s.nameOf != nil {
		name = s.nameOf(u)
	}
	return at.object(parent, i, name, s.bare)
}

func (s objects[T, U]) read(r *reader, n *node, parent, at place, t *T) {
	r.mark(at, n)
	if n.kind != kindList && n.kind != kindNull {
		r.fault(at, n, "is %s; write a list, in which each %s begins with a hyphen", n.kind, s.table.noun)
		return
	}
	var out []U
	for i, item := range n.items {
		u := s.table.fresh()
		label := at.item(i)
		if name := item.get("name"); s.nameOf != nil && name != nil && name.kind == kindText {
			label = at.object(parent, i, printable(name.text), s.bare)
		}
		if item.kind == kindNull {
			r.mark(label, item)
			r.fault(label, item, "is empty; write the settings of the %s, or remove the hyphen", s.table.noun)
		} else {
			s.table.read(r, item, label, &u)
		}
		out = append(out, u)
	}
	*s.field(t) = out
}

func (s objects[T, U]) write(t *T, full bool) *node {
	list := *s.field(t)
	if len(list) == 0 {
		return nil
	}
	out := &node{kind: kindList}
	for i := range list {
		out.items = append(out.items, s.table.write(&list[i], full))
	}
	return out
}

func (s objects[T, U]) check(v *validator, parent, at place, t *T) {
	list := *s.field(t)
	if len(list) > s.most {
		v.fault(at, "has %d entries; at most %d are taken", len(list), s.most)
		return
	}
	seen := map[string]int{}
	for i := range list {
		here := s.at(parent, at, i, &list[i])
		s.table.check(v, here, &list[i])
		if s.nameOf == nil {
			continue
		}
		name := lowerASCII(s.nameOf(&list[i]))
		if first, dup := seen[name]; dup && name != "" {
			v.collision(here.field("name"), place{index: at.item(first).index + ".name"}, "%s is the name of another %s too", shown(name), s.table.noun)
		} else {
			seen[name] = i
		}
	}
}

func (s objects[T, U]) schema() map[string]any {
	return map[string]any{"type": "array", "items": s.table.schema(), "maxItems": s.most, "description": s.help, "default": []any{}}
}

func (s objects[T, U]) edit(*T, Edit) error {
	return fmt.Errorf("is not changed by a flag; create and delete each %s by its name", s.table.noun)
}

// group is a mapping inside an object whose settings belong to the object itself, such as store: {endpoints: [...]}.
type group[T any] struct {
	name, help string
	table      *table[T]
}

func (s group[T]) about() Setting { return Setting{Name: s.name, Type: TypeText, Help: s.help} }
func (s group[T]) editable() bool { return false }

func (s group[T]) reset(t *T) {
	for _, inner := range s.table.settings {
		inner.reset(t)
	}
}

func (s group[T]) read(r *reader, n *node, _, at place, t *T) { s.table.read(r, n, at, t) }

func (s group[T]) write(t *T, full bool) *node {
	out := s.table.write(t, full)
	if len(out.entries) == 0 {
		return nil
	}
	return out
}

func (s group[T]) check(v *validator, _, at place, t *T) { s.table.check(v, at, t) }

func (s group[T]) schema() map[string]any { return described(s.table.schema(), s.help) }

func (s group[T]) edit(*T, Edit) error {
	return fmt.Errorf("is a group of settings; set %s.%s", s.name, listed(s.table.names(), "or"))
}

// part is a mapping inside an object that is an object of its own, such as the cluster's settings.
type part[T, U any] struct {
	name, help string
	table      *table[U]
	field      func(*T) *U
}

func (s part[T, U]) about() Setting { return Setting{Name: s.name, Type: TypeText, Help: s.help} }
func (s part[T, U]) editable() bool { return false }
func (s part[T, U]) reset(t *T)     { *s.field(t) = s.table.fresh() }

func (s part[T, U]) read(r *reader, n *node, _, at place, t *T) { s.table.read(r, n, at, s.field(t)) }

func (s part[T, U]) write(t *T, full bool) *node {
	out := s.table.write(s.field(t), full)
	if len(out.entries) == 0 {
		return nil
	}
	return out
}

func (s part[T, U]) check(v *validator, _, at place, t *T) { s.table.check(v, at, s.field(t)) }

func (s part[T, U]) schema() map[string]any { return described(s.table.schema(), s.help) }

func (s part[T, U]) edit(*T, Edit) error { return fmt.Errorf("is not changed by one flag") }
