package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
)

// A delegation comes as text and as data: for a zone with its aliases, or for one alias alone.
func TestDelegationAsData(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.pool0With("rebalance-policy: manual, sc-dns-zone-aliases: [old.test, older.test]")
		for _, example := range []struct {
			zone     string
			separate bool
			zones    string // with "alias<zone" for an alias
			names    string
		}{
			{"", false, "cluster.test old.test<cluster.test older.test<cluster.test", "ssip.test"},
			{"CLUSTER.test.", false, "cluster.test old.test<cluster.test older.test<cluster.test", "ssip.test"},
			{"older.test", false, "older.test<cluster.test", "ssip.test"},
			{"Old.Test.", true, "old.test<cluster.test", "ns1-ssip.test ns2-ssip.test ns3-ssip.test"},
		} {
			answer, err := c.ask(2).Delegation(t.Context(), &holdfastv1.DelegationRequest{Zone: example.zone, SeparateNames: example.separate})
			if err != nil {
				t.Errorf("%q: %v", example.zone, err)
				continue
			}
			var zones []string
			for _, z := range answer.Zones {
				said := z.Zone
				if z.AliasOf != "" {
					said += "<" + z.AliasOf
				}
				zones = append(zones, said)
				if strings.Join(z.Names, " ") != example.names || strings.Join(z.Addresses, " ") != "10.0.0.4 10.0.0.5 10.0.0.6" {
					t.Errorf("%q: %s is with %q at %q", example.zone, z.Zone, z.Names, z.Addresses)
				}
			}
			if strings.Join(zones, " ") != example.zones {
				t.Errorf("%q: zones %q, want %q", example.zone, zones, example.zones)
			}
			if example.zone == "older.test" && (!strings.Contains(answer.Text, "older") || strings.Contains(answer.Text, "cluster")) {
				t.Errorf("the delegation of an alias:\n%s", answer.Text)
			}
		}
		if _, err := c.ask(2).Delegation(t.Context(), &holdfastv1.DelegationRequest{Zone: "elsewhere.test"}); !api.IsNotFound(err) {
			t.Errorf("a zone that is not there: %v", err)
		}
		if _, err := c.ask(2).Delegation(t.Context(), &holdfastv1.DelegationRequest{Flavour: "nonsense"}); !api.IsInvalid(err) {
			t.Errorf("a flavour that is not there: %v", err)
		}
	})
}

// What is wrong with a pin is said in the order in which an operator can do something about it, and with commands that exist.
func TestPinsThatAreRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		pin := func(address, member string) error {
			_, err := c.ask(1).PinAddress(t.Context(), &holdfastv1.PinAddressRequest{Pool: pool0, Address: address, Member: member, Options: &holdfastv1.ChangeOptions{DryRun: true}})
			return err
		}
		if err := pin("10.0.0.250", ""); !api.IsNotFound(err) || !strings.Contains(err.Error(), "10.0.0.250 is not an address of groupnet0.subnet0.pool0") {
			t.Errorf("an address that is in no pool: %v", err)
		}
		if err := pin("nonsense", ""); !api.IsInvalid(err) {
			t.Errorf("no address: %v", err)
		}
		if err := pin("10.0.0.100", "eth0"); !api.IsInvalid(err) {
			t.Errorf("no member: %v", err)
		}
		if err := pin("10.0.0.100", "2:eth0"); err != nil {
			t.Errorf("a pin: %v", err)
		}
		c.apply("10.0.0.100-10.0.0.111", "10.0.0.100-10.0.0.112", `ifaces: ["1:eth0", "2:eth0", "3:eth0", "4:eth0"]`, "ifaces: []")
		c.eventually("nobody has the new address", func() bool {
			config := c.nodes[1].agent.view.Load().world.Config
			return slices.Contains(config.Addresses(config.Pools()[0]), netip.MustParseAddr("10.0.0.112"))
		})
		if err := pin("10.0.0.112", ""); err == nil || !strings.Contains(err.Error(), "holdfast network pools pin groupnet0.subnet0.pool0 10.0.0.112 LNN:INTERFACE") {
			t.Errorf("an address that nobody has: %v", err)
		}
	})
}
