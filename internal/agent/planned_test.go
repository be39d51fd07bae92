package agent

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
)

// The measurements of the plan on record stay for ten seconds, with their age, unless there is something that they do not know.
func TestThePlanFollowsTheLoadsEveryTenSecondsAtMost(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	id := config.Pools()[0]
	loads := func(connections int, known bool) steering.Loads {
		members := map[cluster.Member]placement.Load{}
		for _, m := range config.Members(id) {
			members[m] = placement.Load{Known: known, Connections: connections}
		}
		return steering.Loads{id: members}
	}
	var p plannedLoads
	start := time.Unix(1000, 0)
	member := config.Members(id)[0]
	for _, step := range []struct {
		after time.Duration
		last  steering.Loads
		want  int
		age   time.Duration
	}{
		{0, loads(0, false), 0, 0},
		{time.Second, loads(7, true), 7, 0}, // nothing was known
		{5 * time.Second, loads(100, true), 7, 4 * time.Second},
		{10900 * time.Millisecond, loads(200, true), 7, 9900 * time.Millisecond},
		{11 * time.Second, loads(300, true), 300, 0},
		{20 * time.Second, loads(0, false), 300, 9 * time.Second}, // what is not known any more is no reason
	} {
		got, age := p.at(start.Add(step.after), step.last)
		if got[id][member].Connections != step.want || age != step.age {
			t.Errorf("after %s the plan has %d connections, %s old; want %d, %s old", step.after, got[id][member].Connections, age, step.want, step.age)
		}
	}
	w := &steering.World{Config: config, Nodes: map[int]steering.Node{}, Loads: loads(1, true), Planned: loads(9, true), PlannedAge: 3 * time.Second}
	if load := w.Candidates(id, start)[0].Load; load.Connections != 9 || load.Age != 3*time.Second {
		t.Errorf("placement sees %+v", load)
	}
}
