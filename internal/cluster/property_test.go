package cluster

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var comparePlain = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func TestDrawnConfigsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if errs := drawConfig(t).Validate().Errors(); len(errs) > 0 {
			t.Fatalf("%v", errs)
		}
	})
}

// What is printed reads back as the same value, whether defaults are written or not, and prints as the same text.
func TestParsePrintRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawConfig(t)
		for _, text := range [][]byte{Print(want), PrintAll(want), PrintJSON(want)} {
			got, err := Parse("printed.yaml", text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(want, got, comparePlain); diff != "" {
				t.Fatalf("read back differs (-want +got):\n%s\n%s", diff, text)
			}
			if changes := Diff(want, got); len(changes) > 0 {
				t.Fatalf("Diff of equals: %v", changes)
			}
			if again := Print(got); string(again) != string(Print(want)) {
				t.Fatalf("prints differently:\n%s\n%s", text, again)
			}
		}
	})
}

// A clone is equal, and no edit of the one shows in the other.
func TestCloneSharesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		before := string(PrintAll(c))
		clone := c.Clone()
		if diff := cmp.Diff(c, clone, comparePlain); diff != "" {
			t.Fatal(diff)
		}
		spoil(clone)
		if after := string(PrintAll(c)); after != before {
			t.Fatalf("an edit of the clone shows:\n%s", cmp.Diff(before, after))
		}
	})
}

// spoil overwrites every element of every list and map.
func spoil(c *Config) {
	blank(c.Settings.StoreEndpoints)
	blank(c.Settings.ClientPorts)
	for _, h := range c.Settings.Hooks {
		blank(h.Command)
	}
	blank(c.Settings.Hooks)
	for _, n := range c.Nodes {
		blank(n.Interfaces)
		blank(n.Addresses)
	}
	blank(c.Nodes)
	for _, g := range c.Groupnets {
		blank(g.DNSServers)
		blank(g.DNSSearch)
		for _, s := range g.Subnets {
			blank(s.ServiceAddrs)
			blank(s.ReverseZones)
			for _, p := range s.Pools {
				blank(p.Ranges)
				blank(p.Interfaces)
				blank(p.Rules)
				blank(p.ZoneAliases)
				blank(p.SuspendedNodes)
				blank(p.StaticRoutes)
				clear(p.Weights)
				clear(p.Pins)
				for _, k := range p.Checks {
					blank(k.Status)
					blank(k.Command)
				}
				blank(p.Checks)
			}
			blank(s.Pools)
		}
		blank(g.Subnets)
	}
	blank(c.Groupnets)
}

func blank[T any](list []T) {
	for i := range list {
		list[i] = *new(T)
	}
}

// Random edits by command end in a valid configuration or a refusal that says why; the original never changes, and what
// is accepted reads back from its own text.
func TestRandomEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		before := string(PrintAll(c))
		for range rapid.IntRange(1, 6).Draw(t, "edits") {
			next, err := randomEdit(t, c)
			if after := string(PrintAll(c)); after != before {
				t.Fatalf("the original changed:\n%s", cmp.Diff(before, after))
			}
			if err != nil {
				if next != nil || err.Error() == "" {
					t.Fatalf("refused without a reason, or with a result: %v %v", next, err)
				}
				continue
			}
			read, err := Parse("edited.yaml", Print(next))
			if err != nil {
				t.Fatalf("accepted, but does not read back: %v\n%s", err, Print(next))
			}
			if diff := cmp.Diff(next, read, comparePlain); diff != "" {
				t.Fatalf("reads back differently (-edited +read):\n%s", diff)
			}
			c, before = next, string(PrintAll(next))
		}
	})
}

func randomEdit(t *rapid.T, c *Config) (*Config, error) {
	value := rapid.OneOf(
		rapid.SampledFrom([]string{"", "1", "0", "-1", "true", "10.0.0.25", "10.0.0.4-10.0.0.5", "fd00:1::20-fd00:1::21", "1:eth0", "1:eth0,2:eth0", "1=2", "1=2,2=3",
			"10.0.0.20=1:eth0", "10.99.0.0/16-10.0.0.2", "dynamic", "static", "cpu_usage", "zone-0-0.company.com", "x.lab", "a_b", "10.0.0.0/24", "80,443", "600", "subnet0", ","}),
		rapid.StringMatching(`[ -~]{0,20}`),
	)
	draw := func(settings []Setting) []Edit {
		return []Edit{{
			Setting: rapid.SampledFrom(settings).Draw(t, "setting").Name,
			Op:      rapid.SampledFrom([]EditOp{Set, Clear, Add, Remove}).Draw(t, "op"),
			Value:   value.Draw(t, "value"),
		}}
	}
	subnet, pool := SubnetID{"groupnet0", "subnet0"}, PoolID{"groupnet0", "subnet0", "pool0"}
	if ids := c.Subnets(); len(ids) > 0 {
		subnet = rapid.SampledFrom(ids).Draw(t, "subnet")
	}
	if ids := c.Pools(); len(ids) > 0 {
		pool = rapid.SampledFrom(ids).Draw(t, "pool")
	}
	node := "node-1"
	name := rapid.SampledFrom([]string{"node-1", "node-2", "x", "all", "check0", "pool9", ""}).Draw(t, "name")
	switch rapid.IntRange(0, 18).Draw(t, "command") {
	case 0:
		return ModifyCluster(c, draw(ClusterSettings()))
	case 1:
		return ModifyNode(c, node, draw(NodeSettings()))
	case 2:
		return ModifyGroupnet(c, subnet.Groupnet, draw(GroupnetSettings()))
	case 3:
		return ModifySubnet(c, subnet, draw(SubnetSettings()))
	case 4, 5, 6:
		return ModifyPool(c, pool, draw(PoolSettings()))
	case 7:
		return ModifyRule(c, pool, "all", draw(RuleSettings()))
	case 8:
		return ModifyCheck(c, pool, "check0", draw(CheckSettings()))
	case 9:
		return AddNode(c, name, 77, draw(NodeSettings()))
	case 10:
		return AddGroupnet(c, name, draw(GroupnetSettings()))
	case 11:
		return AddSubnet(c, SubnetID{subnet.Groupnet, name}, append(draw(SubnetSettings()), Edit{"cidr", Set, "172.16.0.0/24"}))
	case 12:
		return AddPool(c, PoolID{subnet.Groupnet, subnet.Subnet, name}, draw(PoolSettings()))
	case 13:
		return AddRule(c, pool, name, append(draw(RuleSettings()), Edit{"interface", Set, "*"}))
	case 14:
		return AddCheck(c, pool, name, []Edit{{"kind", Set, "tcp"}, {"port", Set, "80"}})
	case 15:
		return DeleteNode(c, name)
	case 16:
		return DeleteSubnet(c, subnet)
	case 17:
		return DeletePool(c, pool)
	}
	return DeleteRule(c, pool, name)
}

// Random damage to a valid text never panics, and every fault of it has a place inside the text.
func TestDamagedTextIsReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := splitLines(string(Print(drawConfig(t))))
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
			at := rapid.IntRange(0, len(lines[i])).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "damage") {
			case 0:
				lines[i] = lines[i][:at]
			case 1:
				lines[i] = lines[i][:at] + rapid.SampledFrom([]string{"[", "}", ":", " ", "\t", "&a ", "*a", "- ", "\"", "#", "é", "\x00", "_", ","}).Draw(t, "insert") + lines[i][at:]
			case 2:
				lines = slices.Delete(lines, i, i+1)
			case 3:
				lines = slices.Insert(lines, i, rapid.SampledFrom(lines).Draw(t, "copy"))
			}
			if len(lines) == 0 {
				return
			}
		}
		checkParse(t, []byte(joinLines(lines)))
	})
}
