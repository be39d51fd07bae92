package agent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/cluster"
)

// findNode finds a node by name or by number.
func findNode(config *cluster.Config, name string) (cluster.Node, error) {
	if node, ok := config.NodeNamed(name); ok {
		return node, nil
	}
	if lnn, err := strconv.Atoi(name); err == nil {
		if node, ok := config.Node(lnn); ok {
			return node, nil
		}
	}
	return cluster.Node{}, api.NotFound("there is no node %q; `holdfast node list` lists them", name)
}

// findNodes reads nodes as operators write them: names, numbers, and ranges of numbers such as 1-3, each word one of them or several
// with commas between. A range means those of its numbers that are nodes. A name comes before what else it could be read as. The
// result is sorted and names each node once.
func findNodes(config *cluster.Config, words []string) ([]int, error) {
	var lnns []int
	for _, word := range separate(words) {
		if _, named := config.NodeNamed(word); !named {
			if first, last, ranged := lnnRange(word); ranged {
				found, err := nodesBetween(config, first, last, word)
				if err != nil {
					return nil, err
				}
				lnns = append(lnns, found...)
				continue
			}
		}
		node, err := findNode(config, word)
		if err != nil {
			return nil, err
		}
		lnns = append(lnns, node.LNN)
	}
	if len(lnns) == 0 {
		return nil, api.Invalid("no node was named; write names, numbers, or a range of numbers such as 1-3")
	}
	slices.Sort(lnns)
	return slices.Compact(lnns), nil
}

// findEveryNode is findNodes where a range may name only nodes that there are: what cannot be taken back is not done on a misreading.
func findEveryNode(config *cluster.Config, words []string) ([]int, error) {
	lnns, err := findNodes(config, words)
	if err != nil {
		return nil, err
	}
	for _, word := range separate(words) {
		first, last, ranged := lnnRange(word)
		if _, named := config.NodeNamed(word); named || !ranged {
			continue
		}
		for lnn := first; lnn <= last; lnn++ {
			if _, known := config.Node(lnn); !known {
				return nil, api.NotFound("%s names node %d, which there is not: say which nodes you mean; `holdfast node list` lists them", word, lnn)
			}
		}
	}
	return lnns, nil
}

// separate parts words that hold several with commas between.
func separate(words []string) []string {
	return strings.FieldsFunc(strings.Join(words, ","), func(r rune) bool { return r == ',' || r == ' ' })
}

// lnnRange reads "2-5".
func lnnRange(word string) (first, last int, ranged bool) {
	low, high, found := strings.Cut(word, "-")
	first, firstErr := strconv.Atoi(low)
	last, lastErr := strconv.Atoi(high)
	return first, last, found && firstErr == nil && lastErr == nil
}

func nodesBetween(config *cluster.Config, first, last int, word string) ([]int, error) {
	if first > last {
		return nil, api.Invalid("the range of nodes %s ends before it begins; write %d-%d", word, last, first)
	}
	var found []int
	for _, node := range config.Nodes {
		if first <= node.LNN && node.LNN <= last {
			found = append(found, node.LNN)
		}
	}
	if len(found) == 0 {
		return nil, api.NotFound("there is no node with a number from %d to %d; `holdfast node list` lists them", first, last)
	}
	return found, nil
}
