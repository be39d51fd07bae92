package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
)

// The reports of a node, a second after each other, tell when its faults ended and how long they lasted.
func TestFaultTimes(t *testing.T) {
	const pool = "groupnet0.subnet0.pool0"
	start := time.Unix(1000, 0)
	ready := func(pools, interfaces map[string]string) memberRecord {
		return memberRecord{Ready: true, PoolFaults: pools, Faults: interfaces}
	}
	failing, carrier := map[string]string{pool: "refused"}, map[string]string{"eth0": "no carrier"}
	for _, example := range []struct {
		name       string
		reports    []memberRecord
		pool, link steering.Mend
	}{
		{"always well", []memberRecord{ready(nil, nil), ready(nil, nil)}, steering.Mend{}, steering.Mend{}},
		{"failing still", []memberRecord{ready(failing, nil), ready(failing, nil)}, steering.Mend{}, steering.Mend{}},
		{"failed for two seconds", []memberRecord{ready(failing, nil), ready(failing, nil), ready(nil, nil), ready(nil, nil)},
			steering.Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, steering.Mend{}},
		{"the last fault counts", []memberRecord{ready(failing, nil), ready(nil, nil), ready(failing, nil), ready(nil, nil)},
			steering.Mend{At: start.Add(3 * time.Second), Lasted: time.Second}, steering.Mend{}},
		{"a carrier and a check", []memberRecord{ready(failing, carrier), ready(failing, nil), ready(nil, nil)},
			steering.Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, steering.Mend{At: start.Add(time.Second), Lasted: time.Second}},
		{"a restart does not mend before the checks have passed", []memberRecord{ready(failing, nil), {}, {}}, steering.Mend{}, steering.Mend{}},
		{"and then it does", []memberRecord{ready(failing, nil), {}, ready(nil, nil)},
			steering.Mend{At: start.Add(2 * time.Second), Lasted: 2 * time.Second}, steering.Mend{}},
	} {
		var times faultTimes
		for i, report := range example.reports {
			times = times.next(report, start.Add(time.Duration(i)*time.Second))
		}
		interfaces, pools := times.mended()
		id, _ := cluster.NewPoolID(pool)
		if pools[id] != example.pool || interfaces["eth0"] != example.link {
			t.Errorf("%s: %+v and %+v, want %+v and %+v", example.name, pools, interfaces, example.pool, example.link)
		}
	}
}

// What is remembered of faults is bounded; those that last are never forgotten.
func TestFaultTimesAreBounded(t *testing.T) {
	var times faultTimes
	now := time.Unix(1000, 0)
	for i := range 4 * maxFaultTimes {
		faults := map[string]string{"lasts": "refused", fmt.Sprintf("groupnet0.subnet0.pool%d", i): "refused"}
		times = times.next(memberRecord{Ready: true, PoolFaults: faults}, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(times.pools); n > maxFaultTimes+2 || times.pools["lasts"].began != now {
		t.Errorf("%d faults are remembered, the lasting one since %v", n, times.pools["lasts"].began)
	}
}
