package agent

import (
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// A reverse zone of a subnet is in what names are answered from, is printed with the others and alone, and its absence is said.
func TestReverseZones(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.apply("sc-service-name: ssip.test", "sc-service-name: ssip.test\n        sc-reverse-zones: [0.0.10.in-addr.arpa]")
		c.eventually("the reverse zone is answered", func() bool {
			view := c.nodes[2].names.seen.Load()
			return view != nil && len(view.Reverse) == 1
		})
		r := c.nodes[2].names.seen.Load().Reverse[0]
		var names []string
		for _, n := range r.Names {
			names = append(names, n.Range.String()+"="+n.Name)
		}
		if got := strings.Join(names, " "); r.Service != "ssip.test" || r.Zone.Name != "0.0.10.in-addr.arpa" || got != "10.0.0.4-10.0.0.6=ssip.test 10.0.0.100-10.0.0.111=cluster.test" {
			t.Errorf("%s by %s: %s", r.Zone.Name, r.Service, got)
		}
		for asked, want := range map[string]string{"": "cluster.test 0.0.10.in-addr.arpa", "cluster.test": "cluster.test", "0.0.10.IN-ADDR.arpa.": "0.0.10.in-addr.arpa"} {
			answer, err := c.ask(1).Delegation(t.Context(), &holdfastv1.DelegationRequest{Zone: asked})
			if err != nil {
				t.Errorf("%q: %v", asked, err)
				continue
			}
			var zones []string
			for _, z := range answer.Zones {
				zones = append(zones, z.Zone)
			}
			if strings.Join(zones, " ") != want || strings.Contains(answer.Text, "0.0.10.in-addr.arpa.\t900\tIN\tNS\tssip.test.") != strings.Contains(want, "arpa") {
				t.Errorf("%q: %q\n%s", asked, zones, answer.Text)
			}
		}
		_, err := c.ask(1).Delegation(t.Context(), &holdfastv1.DelegationRequest{Zone: "1.0.10.in-addr.arpa"})
		if !api.IsNotFound(err) || !strings.Contains(err.Error(), "--add-sc-reverse-zones") {
			t.Errorf("a reverse zone that is not there: %v", err)
		}
	})
}
