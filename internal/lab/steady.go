package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// standing is what must be the same after a fault that is over before anybody had to act: who holds what, and when the store last
// changed what is on record about that.
type standing struct {
	holders map[string]string // of pool and service addresses
	records map[string]int64  // revision of the last change, by key
}

// disturbance is what was not the same.
type disturbance struct {
	Moved       int `json:"moved_addresses"`  // that were with another node, or nobody, once every node served again
	Records     int `json:"written_records"`  // of pools and service addresses, that the store wrote, also if they read the same again
	Connections int `json:"lost_connections"` // of idle clients, that ended or answered no more
}

// plus adds up; nil is none.
func (d *disturbance) plus(more disturbance) *disturbance {
	if d != nil {
		more = disturbance{d.Moved + more.Moved, d.Records + more.Records, d.Connections + more.Connections}
	}
	return &more
}

func (d disturbance) String() string {
	return fmt.Sprintf("%d addresses moved, %d records were written, %d connections were lost", d.Moved, d.Records, d.Connections)
}

// since compares two looks.
func (s standing) since(before standing) disturbance {
	return disturbance{Moved: different(before.holders, s.holders), Records: different(before.records, s.records)}
}

// different counts the keys that are in one map only or have other values.
func different[V comparable](a, b map[string]V) int {
	count := 0
	for key, value := range a {
		if other, there := b[key]; !there || other != value {
			count++
		}
	}
	for key := range b {
		if _, there := a[key]; !there {
			count++
		}
	}
	return count
}

// standing looks how all stands now.
func (f *failover) standing(ctx context.Context) (standing, error) {
	asked := f.nodes[0]
	pools, err := f.heldOf(ctx, asked, kindDynamic)
	if err != nil {
		return standing{}, err
	}
	services, err := f.heldOf(ctx, asked, kindService)
	if err != nil {
		return standing{}, err
	}
	maps.Copy(pools, services)
	member, _ := f.plan.Member(asked)
	out, err := f.Output(ctx, asked, "holdfast", "lab", "records", "--identity", f.identity(asked), "--cluster", f.plan.Name,
		"--member", member.Interfaces[0].Addresses[0].Addr().String())
	if err != nil {
		return standing{}, err
	}
	records := map[string]int64{}
	if err := json.Unmarshal(out, &records); err != nil {
		return standing{}, fmt.Errorf("reading the records of the store: %w", err)
	}
	return standing{holders: pools, records: records}, nil
}

// disturbed says what is no longer as it was. Every connection that the idle clients have had since the last reset must still carry
// what they say.
func (f *failover) disturbed(ctx context.Context, before standing) (*disturbance, error) {
	now, err := f.standing(ctx)
	if err != nil {
		return nil, err
	}
	d := now.since(before)
	var report probeReport
	if err := f.probe.ask("speak", &report); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, idlePatience)
	defer cancel()
	for report.unheard() > 0 && pause(limited, clientPoll) {
		if err := f.probe.ask("report", &report); err != nil {
			return nil, err
		}
	}
	d.Connections = report.unheard()
	return &d, ctx.Err()
}

// unheard counts the watched addresses whose idle client has lost its connection, or has had no answer on it.
func (r probeReport) unheard() int {
	return len(slices.DeleteFunc(slices.Collect(maps.Values(r.Watched)), func(one watchedReport) bool { return one.Answers > 0 && !one.Broke }))
}
