package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultGroupnet is the groupnet that short ids mean.
const DefaultGroupnet = "groupnet0"

// ParseSubnetID reads "groupnet0.subnet0", or "subnet0" for a subnet of the default groupnet. The subnet must exist. A
// short id is refused when another groupnet has a subnet of that name too.
func ParseSubnetID(c *Config, s string) (SubnetID, error) {
	parts, err := idParts(s, "subnet", "groupnet0.subnet0")
	if err != nil {
		return SubnetID{}, err
	}
	switch len(parts) {
	case 1:
		return choose(c.Subnets(), SubnetID{DefaultGroupnet, parts[0]}, s, "subnet",
			func(id SubnetID) (string, string) { return id.Groupnet, id.Subnet })
	case 2:
		return exists(c.Subnets(), SubnetID{parts[0], parts[1]}, s, "subnet")
	}
	return SubnetID{}, fmt.Errorf("%s has too many dots for a subnet; write it as groupnet0.subnet0", shown(s))
}

// ParsePoolID reads "groupnet0.subnet0.pool0", or "subnet0.pool0" for a pool of the default groupnet. The pool must
// exist. A short id is refused when another groupnet has such a pool too.
func ParsePoolID(c *Config, s string) (PoolID, error) {
	parts, err := idParts(s, "pool", "groupnet0.subnet0.pool0")
	if err != nil {
		return PoolID{}, err
	}
	switch len(parts) {
	case 2:
		return choose(c.Pools(), PoolID{DefaultGroupnet, parts[0], parts[1]}, s, "pool",
			func(id PoolID) (string, string) { return id.Groupnet, id.Subnet + "." + id.Pool })
	case 3:
		return exists(c.Pools(), PoolID{parts[0], parts[1], parts[2]}, s, "pool")
	case 1:
		var same []string
		for _, id := range c.Pools() {
			if id.Pool == s {
				same = append(same, id.String())
			}
		}
		if len(same) > 0 {
			return PoolID{}, fmt.Errorf("%s does not say the subnet; write %s", shown(s), listed(same, "or"))
		}
	}
	return PoolID{}, fmt.Errorf("%s is not a pool; write it as groupnet0.subnet0.pool0%s", shown(s), didYouMean(s, idTexts(c.Pools())))
}

// NewSubnetID reads the id of a subnet that is to be created; a short one means the default groupnet.
func NewSubnetID(s string) (SubnetID, error) {
	parts, err := idParts(s, "subnet", "groupnet0.subnet0")
	if err != nil {
		return SubnetID{}, err
	}
	switch len(parts) {
	case 1:
		return SubnetID{DefaultGroupnet, parts[0]}, nil
	case 2:
		return SubnetID{parts[0], parts[1]}, nil
	}
	return SubnetID{}, fmt.Errorf("%s has too many dots for a subnet; write it as groupnet0.subnet0", shown(s))
}

// NewPoolID reads the id of a pool that is to be created; a short one means the default groupnet.
func NewPoolID(s string) (PoolID, error) {
	parts, err := idParts(s, "pool", "groupnet0.subnet0.pool0")
	if err != nil {
		return PoolID{}, err
	}
	switch len(parts) {
	case 2:
		return PoolID{DefaultGroupnet, parts[0], parts[1]}, nil
	case 3:
		return PoolID{parts[0], parts[1], parts[2]}, nil
	}
	return PoolID{}, fmt.Errorf("%s is not the id of a pool; write it as groupnet0.subnet0.pool0", shown(s))
}

func idParts(s, noun, example string) ([]string, error) {
	parts := strings.Split(s, ".")
	for _, p := range parts {
		if checkObjectName(p) != nil {
			return nil, fmt.Errorf("%s is not the id of a %s; write it as %s", shown(s), noun, example)
		}
	}
	return parts, nil
}

func idTexts[ID fmt.Stringer](ids []ID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

func exists[ID interface {
	comparable
	fmt.Stringer
}](ids []ID, id ID, written, noun string) (ID, error) {
	if slices.Contains(ids, id) {
		return id, nil
	}
	var none ID
	texts := idTexts(ids)
	hint := didYouMean(written, texts)
	if hint == "" && len(texts) > 0 && len(texts) <= 8 {
		hint = "; there are " + listed(texts, "and")
	}
	return none, fmt.Errorf("there is no %s %s%s", noun, id, hint)
}

// choose finds the id that a short one means: the one in the default groupnet, unless the same name stands in another
// groupnet too, where a guess could change the wrong tenant.
func choose[ID interface {
	comparable
	fmt.Stringer
}](ids []ID, id ID, written, noun string, split func(ID) (groupnet, rest string)) (ID, error) {
	var none ID
	var same []string
	_, rest := split(id)
	for _, other := range ids {
		if _, otherRest := split(other); otherRest == rest {
			same = append(same, other.String())
		}
	}
	switch {
	case len(same) > 1:
		return none, fmt.Errorf("%s is ambiguous; write %s", shown(written), listed(same, "or"))
	case len(same) == 1 && !slices.Contains(ids, id):
		return none, fmt.Errorf("there is no %s %s in %s; write %s if you mean that one", noun, rest, DefaultGroupnet, same[0])
	}
	return exists(ids, id, written, noun)
}
