package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/verdict/probe"
)

// siteDNS is what the site's DNS servers do, by their address: "" leads to the cluster, "undelegated" knows of no zone, "dead" says nothing.
type siteDNS struct {
	does  map[string]string
	asked map[string]int // questions, by server
}

// siteDNS answers as the named server does. Each question takes ten milliseconds.
func (c *testCluster) siteDNS(ctx context.Context, at netip.AddrPort, q probe.Question) (probe.Reply, error) {
	server := at.Addr().String()
	c.net.Lock()
	does := c.site.does[server]
	if c.site.asked == nil {
		c.site.asked = map[string]int{}
	}
	c.site.asked[server]++
	c.net.Unlock()
	if does == "dead" {
		<-ctx.Done()
		return probe.Reply{Silence: "no answer within the timeout"}, nil
	}
	time.Sleep(10 * time.Millisecond)
	if does == "undelegated" {
		return probe.Reply{RCode: dnsmessage.RCodeNameError, Recurses: true}, nil
	}
	header := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(q.Name + "."), Type: q.Type}
	answer := func(body dnsmessage.ResourceBody) (probe.Reply, error) {
		return probe.Reply{Recurses: true, Answers: []dnsmessage.Resource{{Header: header, Body: body}}}, nil
	}
	switch {
	case q.Type == dnsmessage.TypeNS:
		return answer(&dnsmessage.NSResource{NS: dnsmessage.MustNewName("ssip.test.")})
	case q.Name == "ssip.test":
		return answer(&dnsmessage.AResource{A: [4]byte{10, 0, 0, 4}})
	}
	return answer(&dnsmessage.AResource{A: [4]byte{10, 0, 0, 100}})
}

func (c *testCluster) sites(does map[string]string) {
	c.net.Lock()
	defer c.net.Unlock()
	c.site.does = does
}

func (c *testCluster) questions() map[string]int {
	c.net.Lock()
	defer c.net.Unlock()
	return maps.Clone(c.site.asked)
}

// delegationProblems are the problems of a node with the site's DNS, as "SUBJECT: DETAIL".
func (c *testCluster) delegationProblems(lnn int) (found []string) {
	for _, active := range c.nodes[lnn].agent.board.List() {
		if active.Kind == problemDelegation {
			found = append(found, active.Subject+": "+active.Detail)
		}
	}
	return found
}

const siteSettings = "  - name: groupnet0\n    dns-servers: [192.0.2.1, 192.0.2.2, 192.0.2.3]\n"

// An operator's check asks every server about every zone and alias, and says for each what is wrong.
func TestDelegationCheckForAnOperator(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		check := func(zones ...string) (*holdfastv1.CheckDelegationResponse, error) {
			return c.ask(1).CheckDelegation(t.Context(), &holdfastv1.CheckDelegationRequest{Zones: zones})
		}
		if _, err := check(); err == nil || !strings.Contains(err.Error(), "no groupnet with a zone has dns-servers") || !strings.Contains(err.Error(), "--dns-servers") {
			t.Errorf("without servers: %v", err)
		}
		if _, err := check("cluster.test"); err == nil || !strings.Contains(err.Error(), "no groupnet of cluster.test has dns-servers") {
			t.Errorf("without servers, one zone: %v", err)
		}
		c.sites(map[string]string{"192.0.2.2": "undelegated", "192.0.2.3": "dead"})
		c.apply("  - name: groupnet0\n", siteSettings, "sc-dns-zone: cluster.test}", "sc-dns-zone: cluster.test, sc-dns-zone-aliases: [old.test]}")
		c.eventually("the servers are configured", func() bool {
			return len(c.nodes[1].agent.view.Load().world.Config.Groupnets[0].DNSServers) == 3
		})
		if _, err := check("cluster.test", "elsewhere.test"); !api.IsNotFound(err) {
			t.Errorf("a zone that is not there: %v", err)
		}
		for _, example := range []struct {
			zones []string
			want  []string
		}{
			{nil, []string{
				"cluster.test 192.0.2.1 good", "old.test 192.0.2.1 good",
				"cluster.test 192.0.2.2 NS: NXDOMAIN", "old.test 192.0.2.2 NS: NXDOMAIN",
				"cluster.test 192.0.2.3 no answer within the timeout; is it", "old.test 192.0.2.3 no answer within the timeout; is it",
			}},
			{[]string{"old.TEST."}, []string{"old.test 192.0.2.1 good", "old.test 192.0.2.2 NS: NXDOMAIN", "old.test 192.0.2.3 no answer"}},
		} {
			began := time.Now()
			answer, err := check(example.zones...)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 4*time.Second {
				t.Errorf("it took %v; the dead server's two questions take 4 s, beside the others", took)
			}
			var got []string
			for _, r := range answer.Checks {
				said := "good"
				if !r.Good {
					said = strings.Join(r.Wrong, "; ")
				}
				got = append(got, fmt.Sprintf("%s %s %s", r.Zone, r.Server, said))
				if delegate := r.Server == "192.0.2.2"; delegate != (r.Remedy == "holdfast network dns delegation "+r.Zone) || delegate == (r.Remedy == "") || r.Groupnet != "groupnet0" {
					t.Errorf("%+v", r)
				}
			}
			if !slices.EqualFunc(got, example.want, strings.HasPrefix) {
				t.Errorf("%q:\n%s\nwant:\n%s", example.zones, strings.Join(got, "\n"), strings.Join(example.want, "\n"))
			}
		}
	})
}

// The nodes that hold a service address ask by themselves, every five minutes; what is wrong is a problem until it is mended or not
// asked any more.
func TestDelegationsAreWatched(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pass(30 * time.Second)
		if asked := c.questions(); len(asked) > 0 {
			t.Fatalf("without servers these are asked: %v", asked)
		}
		c.sites(map[string]string{"192.0.2.2": "undelegated"})
		c.apply("  - name: groupnet0\n", siteSettings)
		const problem = "groupnet0 192.0.2.2: cluster.test: NS: NXDOMAIN: the server knows of no such name, so the zone is not delegated there"
		everybodySays := func(want ...string) func() bool {
			return func() bool {
				for lnn, n := range c.nodes {
					v := n.agent.view.Load()
					wanted := want
					if len(ownServiceAddresses(v.world, v.world.Config.Subnets()[0], v.world.Config.ServiceAddresses(v.world.Config.Subnets()[0]))) == 0 {
						wanted = nil
					}
					if !slices.Equal(c.delegationProblems(lnn), wanted) {
						return false
					}
				}
				return true
			}
		}
		c.eventually("the three holders say what is wrong, and the fourth node nothing", everybodySays(problem))
		before := c.questions()["192.0.2.1"]
		if before != 3*3 {
			t.Errorf("the first server was asked %d questions; three nodes have three", before)
		}
		c.pass(4 * time.Minute)
		if now := c.questions()["192.0.2.1"]; now != before {
			t.Errorf("after four minutes it was asked %d more", now-before)
		}
		c.sites(nil)
		c.pass(2 * time.Minute)
		if !everybodySays()() {
			t.Errorf("after it was mended: %q", c.delegationProblems(1))
		}
		if now := c.questions()["192.0.2.1"]; now != 2*before {
			t.Errorf("the second round asked it %d questions", now-before)
		}
		c.sites(map[string]string{"192.0.2.2": "undelegated"})
		c.apply("  - name: groupnet0\n", siteSettings, "sc-dns-zone: cluster.test}", "sc-dns-zone: cluster.test, sc-dns-zone-aliases: [old.test]}")
		c.eventually("another zone is asked about at once", everybodySays(problem+"; old.test"+strings.TrimPrefix(problem, "groupnet0 192.0.2.2: cluster.test")))
		c.apply()
		c.eventually("nobody to ask, no problem", everybodySays())
	})
}
