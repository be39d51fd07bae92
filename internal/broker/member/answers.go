package member

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// node is an item of /api/cluster/nodes.
type node struct {
	Key     string   `json:"key"`
	Address string   `json:"address"`
	Roles   []string `json:"roles"`
	Own     *Own     `json:"holdfast,omitempty"`
}

func nodeOf(key string, d Description) node {
	n := node{Key: key, Address: d.Address, Roles: d.Roles}
	if n.Roles == nil {
		n.Roles = []string{}
	}
	if d.Own.Name != "" {
		n.Own = &d.Own
	}
	return n
}

// status is an item of /api/cluster/status. Of a member that is unknown, neither when it was seen nor its health is there: null would say that it is down.
type status struct {
	Key      string          `json:"key"`
	FQDN     string          `json:"fqdn,omitempty"`
	LastSeen string          `json:"last_seen,omitempty"`
	Health   json.RawMessage `json:"health_status,omitempty"`
	Sync     string          `json:"sync_status"`
}

type meta struct {
	Href string `json:"href"`
	Self string `json:"self,omitempty"`
}

type list[T any] struct {
	Meta  meta `json:"meta"`
	Items []T  `json:"items"`
}

// Paths of the API, and where members report.
const (
	NodesPath  = "/api/cluster/nodes"
	StatusPath = "/api/cluster/status"
	HealthPath = "/api/health_status"
	BeatPath   = "/api/cluster/beats" // ours
)

// synced is the sync_status of all: gateways have their configuration from nobody.
const synced = "n/a"

var nothing = json.RawMessage("null")

// Nodes answers NodesPath.
func (r *Roster) Nodes() []byte {
	l := list[node]{Meta: meta{Href: NodesPath}, Items: []node{nodeOf(r.own, r.itself)}}
	for _, key := range slices.Sorted(maps.Keys(r.entries)) {
		l.Items = append(l.Items, nodeOf(key, r.entries[key].description))
	}
	return written(l)
}

// Status answers StatusPath, with the central manager's own health.
func (r *Roster) Status(own Health, now time.Time) []byte {
	now = r.advance(now)
	l := list[status]{Meta: meta{Href: StatusPath, Self: StatusPath + "/" + r.own}}
	l.Items = append(l.Items, status{Key: r.own, FQDN: r.itself.FQDN, LastSeen: stamp(now), Health: written(own), Sync: synced})
	for _, key := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[key]
		s := status{Key: key, FQDN: e.description.FQDN, LastSeen: stamp(e.heard), Sync: synced}
		switch r.standing(e, now) {
		case Up:
			s.Health = written(e.health)
		case Down:
			s.Health = nothing
		}
		l.Items = append(l.Items, s)
	}
	return written(l)
}

// HealthAnswer answers HealthPath.
func HealthAnswer(key string, own Health) []byte {
	return written(struct {
		Meta   meta   `json:"meta"`
		Key    string `json:"key"`
		Health Health `json:"health_status"`
	}{meta{Href: HealthPath}, key, own})
}

// stamp prints a time as the API has it. It is for telling whether a gateway has reported since; empty if it never has.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func written(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("member: texts and finite numbers cannot be written: " + err.Error())
	}
	return text
}

// Count is how many members there are of each standing.
func (r *Roster) Count(now time.Time) (up, down, unknown int) {
	now = r.advance(now)
	for _, e := range r.entries {
		switch r.standing(e, now) {
		case Up:
			up++
		case Down:
			down++
		default:
			unknown++
		}
	}
	return up, down, unknown
}

// Standings are those of all members, by key.
func (r *Roster) Standings(now time.Time) map[string]Standing {
	now = r.advance(now)
	all := make(map[string]Standing, len(r.entries))
	for key, e := range r.entries {
		all[key] = r.standing(e, now)
	}
	return all
}
