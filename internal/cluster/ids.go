package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultGroupnet is the groupnet that short ids mean, whatever other groupnets have. Only where a configuration has no groupnet of
// that name, a short id means the one object to which it fits, and is refused as ambiguous where it fits several.
const DefaultGroupnet = "groupnet0"

// ParseSubnetID reads "groupnet0.subnet0", or "subnet0" for a subnet of the default groupnet. The subnet must exist.
func ParseSubnetID(c *Config, s string) (SubnetID, error) {
	parts, err := idParts(s, "subnet", "groupnet0.subnet0")
	if err != nil {
		return SubnetID{}, err
	}
	switch len(parts) {
	case 1:
		return choose(c, c.Subnets(), SubnetID{DefaultGroupnet, parts[0]}, s, "subnet",
			func(id SubnetID) (string, string) { return id.Groupnet, id.Subnet })
	case 2:
		return exists(c.Subnets(), SubnetID{parts[0], parts[1]}, s, "subnet")
	}
	return SubnetID{}, fmt.Errorf("%s has too many dots for a subnet; write it as groupnet0.subnet0", shown(s))
}

// ParsePoolID reads "groupnet0.subnet0.pool0", or "subnet0.pool0" for a pool of the default groupnet. The pool must
// exist. The name of a pool alone is refused: a subnet that is added later must not change what it means.
func ParsePoolID(c *Config, s string) (PoolID, error) {
	parts, err := idParts(s, "pool", "groupnet0.subnet0.pool0")
	if err != nil {
		return PoolID{}, err
	}
	switch len(parts) {
	case 2:
		return choose(c, c.Pools(), PoolID{DefaultGroupnet, parts[0], parts[1]}, s, "pool",
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

// choose finds the id that a short one means.
func choose[ID interface {
	comparable
	fmt.Stringer
}](c *Config, ids []ID, id ID, written, noun string, split func(ID) (groupnet, rest string)) (ID, error) {
	var none ID
	var same []ID
	_, rest := split(id)
	for _, other := range ids {
		if _, otherRest := split(other); otherRest == rest {
			same = append(same, other)
		}
	}
	_, hasDefault := c.Groupnet(DefaultGroupnet)
	switch {
	case slices.Contains(ids, id):
		return id, nil
	case len(same) == 0:
		return exists(ids, id, written, noun)
	case hasDefault:
		return none, fmt.Errorf("there is no %s %s in %s; write %s if you mean that one", noun, rest, DefaultGroupnet, listed(idTexts(same), "or"))
	case len(same) > 1:
		return none, fmt.Errorf("%s is ambiguous: there is no %s, and several other groupnets have it; write %s", shown(written), DefaultGroupnet, listed(idTexts(same), "or"))
	}
	return same[0], nil
}
