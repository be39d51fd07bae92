package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

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

// An address is explained with everybody that it was chosen among, everybody that was left out and why, and the age of what this node
// knows.
func TestExplainAnAddressSaysAmongWhom(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.apply("sc-dns-zone: cluster.test}", `sc-dns-zone: cluster.test}
          - {name: fixed, ranges: [10.0.0.50-10.0.0.53], ifaces: ["1:eth0", "2:eth0", "3:eth0", "4:eth0"], alloc-method: static}`)
		c.eventually("static addresses are given out", func() bool {
			answer, err := c.ask(1).Explain(t.Context(), &holdfastv1.ExplainRequest{Subject: "10.0.0.53"})
			return err == nil && strings.Contains(answer.Text, "is its owner")
		})
		c.drain(2, true)
		c.kill(3)
		c.eventually("service addresses are settled", func() bool {
			return len(c.services()) == 3 && c.node(1, 2).State == holdfastv1.NodeStatus_draining && c.spreadIs(6, 0, 0, 6)
		})
		c.pass(20 * time.Millisecond)
		for _, address := range []string{"10.0.0.4", "10.0.0.50", "10.0.0.53", "10.0.0.100"} {
			among, out, age := 0, map[string]string{}, int64(0)
			for _, d := range c.explain(1, address).Decisions {
				among += len(d.Among)
				age = max(age, d.DataAgeMs)
				for _, e := range d.LeftOut {
					out[e.Name] = e.Reason
				}
			}
			said := ""
			for name, why := range out {
				said += name + ": " + why + "\n"
			}
			if among != 2 || len(out) != 2 || !strings.Contains(said, "it is being drained") || !strings.Contains(said, "it is down") || age == 0 {
				t.Errorf("%s: among %d, on data %d ms old, left out:\n%s", address, among, age, said)
			}
		}
		if answer := c.explain(1, "groupnet0.subnet0"); len(answer.Decisions[0].Among) != 2 || len(answer.Decisions[0].LeftOut) != 2 {
			t.Errorf("the subnet: %v", answer.Decisions[0])
		}
	})
}

// Who mistypes a node's name is told so, not that a name of the DNS would be refused.
func TestExplainOfNothing(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for subject, says := range map[string]string{
			"node9": `"node9" is neither a node (there is node1, node2, node3, node4)`,
			"9":     `"9" is neither a node`,
			"":      "is neither a node",
		} {
			_, err := c.ask(1).Explain(t.Context(), &holdfastv1.ExplainRequest{Subject: subject})
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v", subject, err)
			}
		}
		if _, err := c.ask(1).Explain(t.Context(), &holdfastv1.ExplainRequest{Subject: "x.elsewhere"}); err != nil {
			t.Errorf("a name is not asked of the DNS: %v", err)
		}
		if got := firstOf([]string{"a", "b", "c"}, 2); got != "a, b and 1 more" {
			t.Error(got)
		}
	})
}

// What overrules or widens a policy is said where the pool is explained.
func TestExplainAPoolSaysWhatItsNameIsAnsweredBy(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pool0With("rebalance-policy: manual, client-affinity: prefix, max-answers: 3")
		text := c.explain(1, pool0).Text
		for _, says := range []string{"cluster.test is answered by the client's prefix (client-affinity)", "round_robin counts for none", "up to 3 addresses (max-answers)"} {
			if !strings.Contains(text, says) {
				t.Errorf("not said: %s\n%s", says, text)
			}
		}
	})
}
