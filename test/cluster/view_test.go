package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// holding is one address as `holdfast network interfaces list` shows it.
type holding struct {
	Address, Kind, Node, Interface, State, Why string
	NextNode                                   string `json:"next_node"`
}

// holdings asks a node who holds what.
func (l *lab) holdings(node string) ([]holding, error) {
	var list struct{ Addresses []holding }
	err := l.read(node, &list, "network", "interfaces", "list")
	return list.Addresses, err
}

// holders is the same as address -> node, for each kind; an address that nobody holds has "". They are read at once, for the nodes are
// asked all the time.
func (l *lab) holders(node string) (pool, service map[string]string, err error) {
	list, err := l.holdings(node)
	pool, service = map[string]string{}, map[string]string{}
	for _, h := range list {
		switch h.Kind {
		case "dynamic":
			pool[h.Address] = h.Node
		case "service":
			service[h.Address] = h.Node
		default:
			continue
		}
		if h.State != "held" {
			err = errors.Join(err, fmt.Errorf("%s is %s, not held", h.Address, h.State))
		}
	}
	return pool, service, err
}

// kernel lists the moving addresses that a node's kernel has, on any interface: those that are host prefixes.
func (l *lab) kernel(node string) ([]string, error) {
	out, err := l.get(node, "ip", "-j", "addr")
	if err != nil {
		return nil, err
	}
	var links []struct {
		Addresses []struct {
			Local  string
			Length int `json:"prefixlen"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		return nil, err
	}
	var found []string
	for _, link := range links {
		for _, address := range link.Addresses {
			if address.Length == 32 && !strings.HasPrefix(address.Local, "127.") {
				found = append(found, address.Local)
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// counts is how many addresses each node has of those that holders names.
func counts(holders map[string]string, nodes []string) map[string]int {
	c := map[string]int{}
	for _, node := range nodes {
		c[node] = 0
	}
	for _, node := range holders {
		c[node]++
	}
	return c
}

// agreed returns who holds every address, if all of nodes say the same and their kernels have exactly that.
func (l *lab) agreed(nodes []string) (pool, service map[string]string, err error) {
	for i, node := range nodes {
		p, s, err := l.holders(node)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 && (!maps.Equal(p, pool) || !maps.Equal(s, service)) {
			return nil, nil, fmt.Errorf("%s says %v %v, %s says %v %v", nodes[0], pool, service, node, p, s)
		}
		pool, service = p, s
	}
	for _, node := range nodes {
		var want []string
		for _, holders := range []map[string]string{pool, service} {
			for address, holder := range holders {
				if holder == node {
					want = append(want, address)
				}
			}
		}
		slices.Sort(want)
		have, err := l.kernel(node)
		if err != nil {
			return nil, nil, err
		}
		if !slices.Equal(have, want) {
			return nil, nil, fmt.Errorf("%s should have %v and its kernel has %v", node, want, have)
		}
	}
	return pool, service, nil
}

// spread waits until nodes hold the pool's addresses in these numbers (sorted, the largest first) and nobody else holds any,
// by every node's word and by the kernels, and returns the holders.
func (l *lab) spread(t *testing.T, nodes []string, want ...int) (pool, service map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v hold %v", nodes, want), func() (err error) {
		if pool, service, err = l.agreed(nodes); err != nil {
			return err
		}
		c := counts(pool, nodes)
		have := slices.Sorted(maps.Values(c))
		slices.Reverse(have)
		if !slices.Equal(have, want) {
			return fmt.Errorf("the addresses lie %v", c)
		}
		for address, node := range service {
			if !slices.Contains(nodes, node) {
				return fmt.Errorf("service address %s is with %q", address, node)
			}
		}
		return nil
	})
	return pool, service
}

// without is a list with some entries left out.
func without(list []string, out ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(entry string) bool { return slices.Contains(out, entry) })
}

// problems lists what a node says is wrong.
type problemEntry struct{ Code, Severity, Subject, Detail, Remedy string }

func (l *lab) problems(node string) ([]problemEntry, error) {
	var list struct{ Problems []problemEntry }
	err := l.read(node, &list, "problems", "list")
	return list.Problems, err
}

// problem returns nil if a node reports a problem with this code whose subject or detail contains about.
func (l *lab) problem(node, code, about string) error {
	list, err := l.problems(node)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Code == code && strings.Contains(p.Subject+" "+p.Detail, about) {
			if p.Remedy == "" {
				return fmt.Errorf("problem %s says not what to do", code)
			}
			return nil
		}
	}
	return fmt.Errorf("%s reports no problem %s about %q but %v", node, code, about, list)
}

// status is the part of `holdfast status` that tests look at.
type status struct {
	Serving  bool
	Revision int64 `json:"config_revision"`
	Nodes    []struct {
		Name, State, Why string
		Incarnation      struct{ Start, Lapses int }
	}
	Store struct {
		Mode, Leader, Change string
		Members              []struct {
			Name, Endpoint   string
			Healthy, Learner bool
		}
	}
}

func (l *lab) status(node string) (status, error) {
	var s status
	err := l.read(node, &s, "status")
	return s, err
}

// state waits until a node says so of another.
func (l *lab) state(t *testing.T, asked, node, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s says that %s is %s", asked, node, want), func() error {
		s, err := l.status(asked)
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n.Name == node && n.State == want {
				return nil
			} else if n.Name == node {
				return fmt.Errorf("%s is %s: %s", node, n.State, n.Why)
			}
		}
		return fmt.Errorf("%s is not among %v", node, s.Nodes)
	})
}

// answers asks BIND, from a client, the same question many times and returns the addresses in order. It is an error if
// any question is not answered with exactly one address.
func (l *lab) answers(client, name string, count int, more ...string) ([]string, error) {
	argv := []string{"dig", "+short", "+tries=3", "+time=2"}
	argv = append(argv, more...)
	for range count {
		argv = append(argv, name, "A")
	}
	out, err := l.get(client, argv...)
	if err != nil {
		return nil, err
	}
	found := strings.Fields(out)
	if len(found) != count || strings.Contains(out, ";") {
		return found, fmt.Errorf("%d questions had the answers %q", count, out)
	}
	return found, nil
}
