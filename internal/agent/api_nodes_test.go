package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/cluster"
)

// Nodes are taken as operators write them, and what means none is refused and says what to write.
func TestFindNodes(t *testing.T) {
	config, err := cluster.Parse("test", []byte(`
cluster: {name: test}
nodes:
  - {name: node1, lnn: 1, addresses: [10.0.0.1]}
  - {name: node2, lnn: 2, addresses: [10.0.0.2]}
  - {name: 1-2, lnn: 5, addresses: [10.0.0.5]}
  - {name: node-7, lnn: 7, addresses: [10.0.0.7]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words string // with | between the arguments
		want  string
	}{
		{"node1", "[1]"}, {"2", "[2]"}, {"node1,node2", "[1 2]"}, {"node1,|node2", "[1 2]"}, {"node1, node2", "[1 2]"}, {"2|1", "[1 2]"},
		{"1-7", "[1 2 5 7]"}, {"2-6,node1", "[1 2 5]"}, {"7-7", "[7]"}, {"1,NODE1,1-1", "[1]"}, {"node-7", "[7]"},
		{"1-2", "[5]"}, // a node of that name
		{"3-4", "there is no node with a number from 3 to 4"}, {"7-1", "write 1-7"}, {"node1,node9", `no node "node9"`}, {"9", `no node "9"`},
		{"1-", `no node "1-"`}, {"1-x", `no node "1-x"`}, {"", "no node was named"}, {",|,", "no node was named"},
	} {
		lnns, err := findNodes(config, strings.Split(c.words, "|"))
		got := fmt.Sprint(lnns)
		if err != nil {
			got = api.Text(err)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.words, got, c.want)
		}
	}
}

// What cannot be taken back is not done to a part of what was named.
func TestEveryNodeOfARange(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig)) // nodes 1 to 4
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"2-4": "[2 3 4]", "node2,3-4": "[2 3 4]", "2-9": "2-9 names node 5, which there is not", "0-1": "0-1 names node 0", "node1,3-2000000000": "names node 5",
	} {
		lnns, err := findEveryNode(config, []string{words})
		got := fmt.Sprint(lnns)
		if err != nil {
			got = api.Text(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", words, got, want)
		}
	}
}
