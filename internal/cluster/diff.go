package cluster

import "slices"

// Change is one difference between two configurations, in words that an operator writes.
type Change struct {
	Path string // the setting or object, such as groupnet0.subnet0.pool0.sc-ttl
	Old  string // as in YAML, on one line; empty: the object did not exist
	New  string // as in YAML, on one line; empty: the object is gone
}

// String writes the change on one line.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return "+ " + c.Path + ": " + c.New
	case c.New == "":
		return "- " + c.Path + ": " + c.Old
	}
	return "  " + c.Path + ": " + c.Old + " -> " + c.New
}

// Diff lists what changes from old to new, in the order of the settings. Objects are matched by their names; the order
// in which nodes, groupnets, subnets, pools, rules and checks are written has no meaning and makes no change. nil stands
// for no configuration at all.
func Diff(old, new *Config) []Change {
	before, after := &node{kind: kindMapping}, &node{kind: kindMapping}
	if old != nil {
		before = configTable.write(old, true)
	}
	if new != nil {
		after = configTable.write(new, true)
	}
	var out []Change
	diffMapping(&out, place{}, before, after)
	return out
}

// Lists of objects that dotted ids leave out.
var bareLists = []string{"groupnets", "subnets", "pools"}

func diffMapping(out *[]Change, at place, old, new *node) {
	for _, key := range keysOf(old, new) {
		before, after := old.get(key), new.get(key)
		here := at.field(key)
		switch {
		case isObjects(before) || isObjects(after):
			if slices.Contains(bareLists, key) {
				here = at
			}
			diffObjects(out, here, before, after)
		case isObject(before, key) && isObject(after, key):
			diffMapping(out, here, before, after)
		case flowOf(before) != flowOf(after):
			*out = append(*out, Change{here.name, flowOf(before), flowOf(after)})
		}
	}
}

// keysOf lists the keys of both, in the order of the settings.
func keysOf(old, new *node) []string {
	var out []string
	for _, n := range []*node{new, old} {
		for _, e := range n.entries {
			if !slices.Contains(out, e.key.text) {
				out = append(out, e.key.text)
			}
		}
	}
	return out
}

// isObjects reports whether n is a list of named objects.
func isObjects(n *node) bool {
	return n != nil && n.kind == kindList && len(n.items) > 0 && n.items[0].get("name") != nil
}

// isObject reports whether n has settings of its own; weights and pins are one value each.
func isObject(n *node, key string) bool {
	return n != nil && n.kind == kindMapping && key != weightSetting.name && key != pinSetting.name
}

func flowOf(n *node) string {
	if n == nil {
		return ""
	}
	return flow(n)
}

func diffObjects(out *[]Change, at place, old, new *node) {
	named := func(list *node, name string) *node {
		if list == nil {
			return nil
		}
		for _, item := range list.items {
			if item.get("name").text == name {
				return item
			}
		}
		return nil
	}
	var names []string
	for _, list := range []*node{old, new} {
		if list == nil {
			continue
		}
		for _, item := range list.items {
			if name := item.get("name").text; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		before, after := named(old, name), named(new, name)
		here := at.field(name)
		if before != nil && after != nil {
			diffMapping(out, here, before, after)
			continue
		}
		diffWhole(out, here, before, after)
	}
}

// diffWhole reports an object that came or went, and then each object in it.
func diffWhole(out *[]Change, at place, old, new *node) {
	*out = append(*out, Change{at.name, brief(old), brief(new)})
	for _, key := range bareLists {
		for _, n := range []*node{old, new} {
			if n == nil || !isObjects(n.get(key)) {
				continue
			}
			if n == old {
				diffObjects(out, at, old.get(key), nil)
			} else {
				diffObjects(out, at, nil, new.get(key))
			}
		}
	}
}

// brief is an object on one line, without its name, which the path has, without the objects that have dotted ids of
// their own, and without defaults.
func brief(n *node) string {
	if n == nil {
		return ""
	}
	return flow(withoutDefaults(n, true))
}

func withoutDefaults(n *node, top bool) *node {
	out := &node{kind: n.kind, text: n.text}
	for _, item := range n.items {
		out.items = append(out.items, withoutDefaults(item, false))
	}
	for _, e := range n.entries {
		if e.value.isDefault || top && (e.key.text == "name" || slices.Contains(bareLists, e.key.text)) {
			continue
		}
		out.entries = append(out.entries, entry{e.key, withoutDefaults(e.value, false)})
	}
	return out
}
