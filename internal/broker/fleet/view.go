package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MaxGateways bounds a View. Fleets have a few tens; a list that is longer is not a fleet's.
const MaxGateways = 4096

// View is what a central manager said of its fleet at one moment. It is never changed; make one with Read or NewView.
type View struct {
	Central  string    // key of the linked central manager, which is the one that answered
	Claims   []string  // keys of all that have the role central-management, sorted
	Gateways []Gateway // sorted by key, each key once; at least one
	Remarks  []string  // what was odd and did not matter; at most MaxRemarks

	index map[string]int32
}

// MaxRemarks bounds what is remarked of one answer; the last one says how many more there were.
const MaxRemarks = 32

// NewView makes a View of gateways that are known from elsewhere, as from a file. It refuses what Read would never have made.
func NewView(central string, gateways []Gateway) (*View, error) {
	if len(gateways) == 0 || len(gateways) > MaxGateways {
		return nil, fmt.Errorf("a fleet has 1 to %d gateways, not %d", MaxGateways, len(gateways))
	}
	v := &View{Central: central, Gateways: slices.Clone(gateways), index: make(map[string]int32, len(gateways))}
	slices.SortFunc(v.Gateways, func(a, b Gateway) int { return cmp.Compare(a.Key, b.Key) })
	for i := range v.Gateways {
		g := &v.Gateways[i]
		if !validKey(g.Key) {
			return nil, fmt.Errorf("a gateway's key is 1 to %d printable characters, not %q", MaxKey, g.Key)
		}
		if _, twice := v.index[g.Key]; twice {
			return nil, fmt.Errorf("gateway %s is there twice", g.Key)
		}
		v.index[g.Key] = int32(i)
		if g.Roles.Has(CentralManagement) {
			v.Claims = append(v.Claims, g.Key)
		}
		g.prepare()
	}
	return v, nil
}

// Find is the position of a gateway in Gateways; false if the fleet has none of that key.
func (v *View) Find(key string) (int, bool) {
	i, ok := v.index[key]
	return int(i), ok
}

// Alike reports whether two views name the same gateways with the same roles and statuses. How busy they are does not count.
func (v *View) Alike(other *View) bool {
	if v == nil || other == nil {
		return v == other
	}
	return v.Central == other.Central && slices.EqualFunc(v.Gateways, other.Gateways, func(a, b Gateway) bool { return a.equal(&b) })
}

// Hopeless says why no session could ever be launched on this fleet, whoever is alive; empty if one could. It is told when a fleet is
// linked, and not only when the first launch fails.
func (v *View) Hopeless() string {
	var reasons []string
	for i := range v.Gateways {
		g := &v.Gateways[i]
		if g.Refuses() == "" {
			return ""
		}
		if len(reasons) < shownReasons {
			reasons = append(reasons, g.Shown()+": "+g.Refuses())
		}
	}
	if more := len(v.Gateways) - len(reasons); more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}

// shownReasons is how many gateways one sentence names.
const shownReasons = 5

func validKey(key string) bool { return key != "" && len(key) <= MaxKey && printable(key) }

// printable keeps what could forge lines in a log or a terminal out of names.
func printable(s string) bool {
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r > 0x7e {
			return false
		}
	}
	return true
}
