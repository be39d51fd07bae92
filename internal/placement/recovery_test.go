package placement

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

func TestMayRebalance(t *testing.T) {
	now := time.Unix(10000, 0)
	idle := map[netip.Addr]bool{addressAt(0): false, addressAt(1): true}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, example := range []struct {
		name   string
		r      Recovery
		ok     bool
		reason string
		wait   time.Duration
	}{
		{"auto without delay", Recovery{FitSince: ago(0)}, true, "the member has been fit for 0s", 0},
		{"auto, delay running", Recovery{Policy: cluster.RebalanceAuto, Delay: 5 * time.Second, FitSince: ago(2 * time.Second)},
			false, "rebalance delay of 5s after the return", 3 * time.Second},
		{"auto, delay over", Recovery{Delay: 5 * time.Second, FitSince: ago(5 * time.Second)}, true, "the member has been fit for 5s", 0},
		{"hold-down outlasts the delay", Recovery{Delay: 5 * time.Second, HoldDown: time.Minute, FitSince: ago(10 * time.Second)},
			false, "hold-down of 1m0s after the return", 50 * time.Second},
		{"the delay outlasts the hold-down", Recovery{Delay: 5 * time.Second, HoldDown: time.Second, FitSince: ago(0)},
			false, "rebalance delay of 5s after the return", 5 * time.Second},
		{"nothing came back", Recovery{}, false, "no member has become fit again", 0},
		{"a clock ahead of ours", Recovery{Delay: time.Second, FitSince: now.Add(time.Hour)},
			false, "rebalance delay of 1s after the return", time.Second},
		{"manual", Recovery{Policy: cluster.RebalanceManual, FitSince: ago(time.Hour)},
			false, "the pool's rebalance policy is manual: an operator decides", 0},
		{"manual and asked", Recovery{Policy: cluster.RebalanceManual, Asked: true}, true, "an operator asked for it", 0},
		{"asked overrules the hold-down", Recovery{HoldDown: time.Hour, FitSince: ago(0), Asked: true}, true, "an operator asked for it", 0},
		{"short outage", Recovery{Policy: cluster.RebalanceShortOutage, Outage: 10*time.Minute - 1, FitSince: ago(time.Second)},
			true, "the member has been fit for 1s", 0},
		{"ten minutes are not short", Recovery{Policy: cluster.RebalanceShortOutage, Outage: 10 * time.Minute, FitSince: ago(time.Hour)},
			false, "the outage lasted 10m0s, and after ten minutes or more an operator decides", 0},
		{"a long outage and asked", Recovery{Policy: cluster.RebalanceShortOutage, Outage: time.Hour, Asked: true}, true, "an operator asked for it", 0},
		{"idle", Recovery{Policy: cluster.RebalanceIdle, FitSince: ago(time.Second), IdleAddresses: idle},
			true, "addresses without connections may return", 0},
		{"idle, but in hold-down", Recovery{Policy: cluster.RebalanceIdle, FitSince: ago(time.Second), HoldDown: 3 * time.Second, IdleAddresses: idle},
			false, "hold-down of 3s after the return", 2 * time.Second},
		{"all are busy", Recovery{Policy: cluster.RebalanceIdle, FitSince: ago(time.Second), IdleAddresses: map[netip.Addr]bool{addressAt(0): false}},
			false, "no address is without connections", 0},
		{"a policy from a later version", Recovery{Policy: "moonlight", FitSince: ago(time.Hour)},
			false, `the rebalance policy "moonlight" is not known here: an operator decides`, 0},
	} {
		got := MayRebalance(example.r, now)
		want := Permission{May: example.ok, Reason: example.reason, Wait: example.wait, Operator: strings.HasSuffix(example.reason, "an operator decides")}
		if got != want {
			t.Errorf("%s: %+v, want %+v", example.name, got, want)
		}
	}
}
