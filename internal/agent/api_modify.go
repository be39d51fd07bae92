package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

// modified is the configuration with one object created, changed or deleted.
func modified(c *cluster.Config, r *holdfastv1.ModifyRequest) (*cluster.Config, error) {
	edits := make([]cluster.Edit, 0, len(r.Edits))
	for _, e := range r.Edits {
		op, known := editOps[e.Op]
		if !known {
			return nil, fmt.Errorf("an edit of %s has no operation that this version knows", e.Setting)
		}
		edits = append(edits, cluster.Edit{Setting: e.Setting, Op: op, Value: e.Value})
	}
	switch r.ObjectKind {
	case holdfastv1.ModifyRequest_cluster:
		return cluster.ModifyCluster(c, edits)
	case holdfastv1.ModifyRequest_node:
		return modifiedNode(c, r.Verb, r.Id, edits)
	case holdfastv1.ModifyRequest_groupnet:
		return byVerb(r.Verb,
			func() (*cluster.Config, error) { return cluster.AddGroupnet(c, r.Id, edits) },
			func() (*cluster.Config, error) { return cluster.ModifyGroupnet(c, r.Id, edits) },
			func() (*cluster.Config, error) { return cluster.DeleteGroupnet(c, r.Id) })
	case holdfastv1.ModifyRequest_subnet:
		return modifiedSubnet(c, r.Verb, r.Id, edits)
	case holdfastv1.ModifyRequest_pool:
		return modifiedPool(c, r.Verb, r.Id, edits)
	case holdfastv1.ModifyRequest_rule:
		return modifiedPart(c, r.Verb, r.Id, edits, partOfPool{"rule", cluster.AddRule, cluster.ModifyRule, cluster.DeleteRule})
	case holdfastv1.ModifyRequest_check:
		return modifiedPart(c, r.Verb, r.Id, edits, partOfPool{"check", cluster.AddCheck, cluster.ModifyCheck, cluster.DeleteCheck})
	}
	return nil, fmt.Errorf("this version does not know what kind of object %q is", r.Id)
}

var editOps = map[holdfastv1.Edit_Op]cluster.EditOp{
	holdfastv1.Edit_set: cluster.Set, holdfastv1.Edit_clear: cluster.Clear,
	holdfastv1.Edit_add: cluster.Add, holdfastv1.Edit_remove: cluster.Remove,
}

func byVerb(verb holdfastv1.ModifyRequest_Verb, create, modify, del func() (*cluster.Config, error)) (*cluster.Config, error) {
	switch verb {
	case holdfastv1.ModifyRequest_create:
		return create()
	case holdfastv1.ModifyRequest_modify:
		return modify()
	case holdfastv1.ModifyRequest_delete:
		return del()
	}
	return nil, fmt.Errorf("this version does not know that kind of change")
}

// modifiedNode takes the number of a new node from its edits, or the lowest that is free.
func modifiedNode(c *cluster.Config, verb holdfastv1.ModifyRequest_Verb, name string, edits []cluster.Edit) (*cluster.Config, error) {
	return byVerb(verb,
		func() (*cluster.Config, error) {
			lnn := 1
			for {
				if _, taken := c.Node(lnn); !taken {
					break
				}
				lnn++
			}
			kept := edits[:0:0]
			for _, e := range edits {
				if e.Setting != "lnn" {
					kept = append(kept, e)
					continue
				}
				parsed, err := strconv.Atoi(e.Value)
				if err != nil {
					return nil, cluster.Faults{{Path: "nodes." + name + ".lnn", Message: fmt.Sprintf("%q is not a number", e.Value), Unreadable: true}}
				}
				lnn = parsed
			}
			return cluster.AddNode(c, name, lnn, kept)
		},
		func() (*cluster.Config, error) { return cluster.ModifyNode(c, name, edits) },
		func() (*cluster.Config, error) { return cluster.DeleteNode(c, name) })
}

func modifiedSubnet(c *cluster.Config, verb holdfastv1.ModifyRequest_Verb, name string, edits []cluster.Edit) (*cluster.Config, error) {
	if verb == holdfastv1.ModifyRequest_create {
		id, err := cluster.NewSubnetID(name)
		if err != nil {
			return nil, unreadableID("%v", err)
		}
		return cluster.AddSubnet(c, id, edits)
	}
	id, err := cluster.ParseSubnetID(c, name)
	if err != nil {
		return nil, err
	}
	if verb == holdfastv1.ModifyRequest_delete {
		return cluster.DeleteSubnet(c, id)
	}
	return cluster.ModifySubnet(c, id, edits)
}

func modifiedPool(c *cluster.Config, verb holdfastv1.ModifyRequest_Verb, name string, edits []cluster.Edit) (*cluster.Config, error) {
	if verb == holdfastv1.ModifyRequest_create {
		id, err := cluster.NewPoolID(name)
		if err != nil {
			return nil, unreadableID("%v", err)
		}
		return cluster.AddPool(c, id, edits)
	}
	id, err := cluster.ParsePoolID(c, name)
	if err != nil {
		return nil, err
	}
	if verb == holdfastv1.ModifyRequest_delete {
		return cluster.DeletePool(c, id)
	}
	return cluster.ModifyPool(c, id, edits)
}

// partOfPool is how one kind of named part of a pool is changed.
type partOfPool struct {
	kind        string
	add, modify func(*cluster.Config, cluster.PoolID, string, []cluster.Edit) (*cluster.Config, error)
	remove      func(*cluster.Config, cluster.PoolID, string) (*cluster.Config, error)
}

// modifiedPart splits the part's name off the pool's id.
func modifiedPart(c *cluster.Config, verb holdfastv1.ModifyRequest_Verb, id string, edits []cluster.Edit, part partOfPool) (*cluster.Config, error) {
	dot := strings.LastIndexByte(id, '.')
	if dot < 0 {
		return nil, unreadableID("%q is not the id of a %s; write it as groupnet0.subnet0.pool0.%s0", id, part.kind, part.kind)
	}
	pool, err := cluster.ParsePoolID(c, id[:dot])
	if err != nil {
		return nil, err
	}
	name := id[dot+1:]
	return byVerb(verb,
		func() (*cluster.Config, error) { return part.add(c, pool, name, edits) },
		func() (*cluster.Config, error) { return part.modify(c, pool, name, edits) },
		func() (*cluster.Config, error) { return part.remove(c, pool, name) })
}

// unreadableID refuses an id that could not be one in any configuration.
func unreadableID(format string, args ...any) error {
	return cluster.Faults{{Message: fmt.Sprintf(format, args...), Unreadable: true}}
}

// warningsOf are the warnings about a configuration that an edit brought, or that are about a setting that it sets.
func warningsOf(before, after *cluster.Config, edits []*holdfastv1.Edit) cluster.Faults {
	old := before.Validate().Warnings()
	var out cluster.Faults
	for _, w := range after.Validate().Warnings() {
		known := slices.ContainsFunc(old, func(o cluster.Fault) bool { return o.Path == w.Path && o.Message == w.Message })
		edited := slices.ContainsFunc(edits, func(e *holdfastv1.Edit) bool {
			return e.Op != holdfastv1.Edit_clear && e.Op != holdfastv1.Edit_remove && strings.HasSuffix(w.Path, "."+e.Setting)
		})
		if !known || edited {
			out = append(out, w)
		}
	}
	return out
}
