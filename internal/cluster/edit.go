package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// EditOp is how an edit changes a setting.
type EditOp string

// The four ways: --X=VALUE, --clear-X, --add-X=VALUE, --remove-X=VALUE. Clear brings the default back.
const (
	Set    EditOp = "set"
	Clear  EditOp = "clear"
	Add    EditOp = "add"
	Remove EditOp = "remove"
)

// Edit is one flag of a modify or create command.
type Edit struct {
	Setting string // its name in the YAML, such as sc-service-addrs
	Op      EditOp
	Value   string // empty for Clear; the items of a list are separated by commas, the words of a command by spaces
}

// ClusterSettings lists the cluster's settings that flags can change, in the order of the table. Those with Fixed are
// given at creation only.
func ClusterSettings() []Setting {
	out := settingsTable.editable()
	for _, s := range storeTable.editable() {
		s.Name = storeGroup + "." + s.Name
		out = append(out, s)
	}
	return out
}

// NodeSettings lists the settings of a node.
func NodeSettings() []Setting { return nodeTable.editable() }

// GroupnetSettings lists the settings of a groupnet.
func GroupnetSettings() []Setting { return groupnetTable.editable() }

// SubnetSettings lists the settings of a subnet.
func SubnetSettings() []Setting { return subnetTable.editable() }

// PoolSettings lists the settings of a pool.
func PoolSettings() []Setting { return poolTable.editable() }

// RuleSettings lists the settings of a rule.
func RuleSettings() []Setting { return ruleTable.editable() }

// CheckSettings lists the settings of a health check.
func CheckSettings() []Setting { return checkTable.editable() }

// ModifyCluster returns c with the cluster's settings edited. Errors of all the Modify functions are Faults: unknown
// settings and bad values, or what would be wrong with the configuration as edited. c itself is never changed.
func ModifyCluster(c *Config, edits []Edit) (*Config, error) {
	out := c.Clone()
	var inner, rest []Edit
	for _, e := range edits {
		if name, ok := strings.CutPrefix(e.Setting, storeGroup+"."); ok {
			inner = append(inner, Edit{name, e.Op, e.Value})
		} else {
			rest = append(rest, e)
		}
	}
	faults := applyEdits(settingsTable, &out.Settings, rest, "cluster", false)
	faults = append(faults, applyEdits(storeTable, &out.Settings, inner, "cluster."+storeGroup, false)...)
	return finished(out, faults)
}

// ModifyNode returns c with the settings of the node named name edited.
func ModifyNode(c *Config, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	i := slices.IndexFunc(out.Nodes, func(n Node) bool { return lowerASCII(n.Name) == lowerASCII(name) })
	if i < 0 {
		return nil, missing("node", name, namesOf(c.Nodes, func(n Node) string { return n.Name }))
	}
	return finished(out, applyEdits(nodeTable, &out.Nodes[i], edits, "nodes."+name, false))
}

// ModifyGroupnet returns c with the settings of a groupnet edited.
func ModifyGroupnet(c *Config, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	g, ok := out.Groupnet(name)
	if !ok {
		return nil, missing("groupnet", name, namesOf(c.Groupnets, func(g Groupnet) string { return g.Name }))
	}
	return finished(out, applyEdits(groupnetTable, g, edits, name, false))
}

// ModifySubnet returns c with the settings of a subnet edited.
func ModifySubnet(c *Config, id SubnetID, edits []Edit) (*Config, error) {
	out := c.Clone()
	s, ok := out.Subnet(id)
	if !ok {
		return nil, missing("subnet", id.String(), idTexts(c.Subnets()))
	}
	return finished(out, applyEdits(subnetTable, s, edits, id.String(), false))
}

// ModifyPool returns c with the settings of a pool edited.
func ModifyPool(c *Config, id PoolID, edits []Edit) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	return finished(out, applyEdits(poolTable, p, edits, id.String(), false))
}

// ModifyRule returns c with a rule of a pool edited.
func ModifyRule(c *Config, id PoolID, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	i := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.Name == name })
	if i < 0 {
		return nil, missing("rule", name, namesOf(p.Rules, func(r Rule) string { return r.Name }))
	}
	return finished(out, applyEdits(ruleTable, &p.Rules[i], edits, id.String()+".rules."+name, false))
}

// ModifyCheck returns c with a health check of a pool edited.
func ModifyCheck(c *Config, id PoolID, name string, edits []Edit) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	i := slices.IndexFunc(p.Checks, func(k Check) bool { return k.Name == name })
	if i < 0 {
		return nil, missing("check", name, namesOf(p.Checks, func(k Check) string { return k.Name }))
	}
	return finished(out, applyEdits(checkTable, &p.Checks[i], edits, id.String()+".checks."+name, false))
}

// SuspendNodes returns c with nodes suspended in a pool: new clients are not sent to them. Nodes that are suspended
// already stay so.
func SuspendNodes(c *Config, id PoolID, lnns []int) (*Config, error) {
	return editSuspended(c, id, func(present []int) []int {
		out := append(slices.Clone(present), lnns...)
		slices.Sort(out)
		return slices.Compact(out)
	})
}

// ResumeNodes returns c with nodes no longer suspended in a pool. Nodes that were not suspended stay so.
func ResumeNodes(c *Config, id PoolID, lnns []int) (*Config, error) {
	for _, number := range lnns {
		if _, ok := c.Node(number); !ok {
			return nil, Faults{{Path: id.String(), Message: fmt.Sprintf("there is no node with the number %d", number)}}
		}
	}
	return editSuspended(c, id, func(present []int) []int {
		var out []int
		for _, number := range present {
			if !slices.Contains(lnns, number) {
				out = append(out, number)
			}
		}
		return out
	})
}

func editSuspended(c *Config, id PoolID, edit func([]int) []int) (*Config, error) {
	out := c.Clone()
	p, _, _, ok := out.Pool(id)
	if !ok {
		return nil, missing("pool", id.String(), idTexts(c.Pools()))
	}
	p.SuspendedNodes = edit(p.SuspendedNodes)
	return finished(out, nil)
}

// applyEdits edits an object in place and reports everything that could not be done.
func applyEdits[T any](tb *table[T], t *T, edits []Edit, path string, creating bool) Faults {
	var faults Faults
	report := func(setting, format string, args ...any) {
		faults = append(faults, Fault{Path: printable(dotted(path, setting)), Message: printable(fmt.Sprintf(format, args...))})
	}
	for _, e := range edits {
		s := tb.find(e.Setting)
		switch {
		case s == nil:
			report("", "%s is not a setting of a %s%s", shown(e.Setting), tb.noun, didYouMean(e.Setting, tb.names()))
			continue
		case s.about().Fixed && !creating:
			report(e.Setting, "cannot be changed; create a new %s instead", tb.noun)
			continue
		case e.Op != Clear && strings.TrimSpace(e.Value) == "":
			report(e.Setting, "has no value; to bring back the default use --clear-%s", e.Setting)
			continue
		}
		if err := s.edit(t, e); err != nil {
			report(e.Setting, "%v", err)
			faults[len(faults)-1].Unreadable = errors.As(err, new(unreadable))
		}
	}
	return faults
}

// finished validates an edited configuration.
func finished(c *Config, faults Faults) (*Config, error) {
	if len(faults) == 0 {
		faults = c.Validate()
	}
	if err := faults.asError(); err != nil {
		return nil, err
	}
	return c, nil
}

func missing(noun, name string, names []string) error {
	hint := didYouMean(name, names)
	if hint == "" && len(names) <= 8 {
		hint = "; there are " + listed(names, "and")
	}
	return Faults{{Path: printable(name), Message: fmt.Sprintf("there is no such %s%s", noun, hint)}}
}

func namesOf[T any](list []T, name func(T) string) []string {
	out := make([]string, len(list))
	for i, t := range list {
		out[i] = name(t)
	}
	return out
}
