package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

func (c *testCluster) explain(lnn int, subject string) *holdfastv1.ExplainResponse {
	c.t.Helper()
	answer, err := nodeService{c.nodes[lnn].agent}.Explain(c.t.Context(), &holdfastv1.ExplainRequest{Subject: subject})
	if err != nil {
		c.t.Fatalf("explaining %s: %v", subject, err)
	}
	return answer
}

// onPool are the pool addresses on a node's kernel.
func (c *testCluster) onPool(lnn int) []netip.Addr {
	var pool []netip.Addr
	for _, addr := range c.onKernel(lnn) {
		if addr.As4()[3] >= 100 {
			pool = append(pool, addr)
		}
	}
	return pool
}

// Everything that an operator can name can be explained: what was chosen, among whom, who was left out, and why.
func TestExplainSubjects(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(3)
		c.eventually("taken over", func() bool { return c.spreadIs(4, 4, 0, 4) })
		for _, example := range []struct {
			subject string
			chosen  string // of the first decision
			says    []string
		}{
			{"groupnet0.subnet0.pool0", "3 of 4 members in the answers", []string{"- node3 on eth0: it is down", "cluster.test is answered by round_robin",
				"12 dynamic addresses, node1 has 4, node2 has 4, node4 has 4, node3 has 0", "it is as even as it can be", "10.0.0.100: node"}},
			{"subnet0.pool0", "3 of 4 members in the answers", nil},
			{"groupnet0.subnet0", "ssip.test", []string{"10.0.0.0/24; 3 of 3 service addresses are held", "10.0.0.4: node", "groupnet0.subnet0.pool0: 3 of 4"}},
			{"subnet0", "ssip.test", nil},
			{"SSIP.test.", "", []string{"10.0.0.4: node", "10.0.0.5: node", "10.0.0.6: node"}},
			{"node1", "up", []string{"groupnet0.subnet0.pool0 on eth0"}},
			{"3", "down", nil},
		} {
			answer := c.explain(1, example.subject)
			if len(answer.Decisions) == 0 || answer.Decisions[0].Chosen != example.chosen {
				t.Errorf("%s: %v, want %q chosen", example.subject, answer.Decisions, example.chosen)
			}
			for _, say := range example.says {
				if !strings.Contains(answer.Text, say) {
					t.Errorf("%s is explained without %q:\n%s", example.subject, say, answer.Text)
				}
			}
		}
	})
}
