package steering

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

type faultReport struct {
	Ready              bool
	Faults, PoolFaults map[string]string
}

// The reports of a node, a second after each other, tell when its faults ended and how long they lasted.
func TestFaultTimes(t *testing.T) {
	const pool = "groupnet0.subnet0.pool0"
	start := time.Unix(1000, 0)
	ready := func(pools, interfaces map[string]string) faultReport {
		return faultReport{Ready: true, PoolFaults: pools, Faults: interfaces}
	}
	failing, carrier := map[string]string{pool: "refused"}, map[string]string{"eth0": "no carrier"}
	for _, example := range []struct {
		name       string
		reports    []faultReport
		pool, link Mend
	}{
		{"always well", []faultReport{ready(nil, nil), ready(nil, nil)}, Mend{}, Mend{}},
		{"failing still", []faultReport{ready(failing, nil), ready(failing, nil)}, Mend{}, Mend{}},
		{"failed for two seconds", []faultReport{ready(failing, nil), ready(failing, nil), ready(nil, nil), ready(nil, nil)},
			Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, Mend{}},
		{"the last fault counts", []faultReport{ready(failing, nil), ready(nil, nil), ready(failing, nil), ready(nil, nil)},
			Mend{At: start.Add(3 * time.Second), Lasted: time.Second}, Mend{}},
		{"a carrier and a check", []faultReport{ready(failing, carrier), ready(failing, nil), ready(nil, nil)},
			Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, Mend{At: start.Add(time.Second), Lasted: time.Second}},
		{"a restart does not mend before the checks have passed", []faultReport{ready(failing, nil), {}, {}}, Mend{}, Mend{}},
		{"and then it does", []faultReport{ready(failing, nil), {}, ready(nil, nil)},
			Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, Mend{}},
	} {
		var times FaultTimes
		for i, report := range example.reports {
			times = times.Next(report.Faults, report.PoolFaults, report.Ready, start.Add(time.Duration(i)*time.Second))
		}
		interfaces, pools := times.Mended()
		id, _ := cluster.NewPoolID(pool)
		if pools[id] != example.pool || interfaces["eth0"] != example.link {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", example.name, pools, interfaces, example.pool, example.link)
		}
	}
}

// What is remembered of faults is bounded; those that last are never forgotten.
func TestFaultTimesAreBounded(t *testing.T) {
	var times FaultTimes
	now := time.Unix(1000, 0)
	for i := range 4 * maxFaultTimes {
		faults := map[string]string{"lasts": "refused", fmt.Sprintf("groupnet0.subnet0.pool%d", i): "refused"}
		times = times.Next(nil, faults, true, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(times.pools); n > maxFaultTimes+2 || times.pools["lasts"].began != now {
		t.Errorf("%d faults are remembered, the lasting one since %v", n, times.pools["lasts"].began)
	}
}
