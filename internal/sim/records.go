package sim

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// This file mirrors internal/agent/records.go: what lies in the store. A value in it is never changed, only replaced.

const (
	keyConfig      = "config"
	keyIncarnation = "incarnation/"
	keyMember      = "member/"
	keyPool        = "pool/"
	keyService     = "service/"
	keyDrain       = "drain/"
	keyOutage      = "outage/"
	keyTrust       = "trust/"
)

type (
	incarnationRecord struct {
		Number tenure.Incarnation
		Starts []time.Time
	}
	drainRecord  struct{}
	outageRecord struct{ Since time.Time }
	trustRecord  struct{ Incarnation tenure.Incarnation }
)

// memberRecord is a node's own report.
type memberRecord struct {
	Name           string
	Incarnation    tenure.Incarnation
	Ready          bool
	Leaving        bool
	ConfigRevision int64
	Faults         map[string]string
	PoolFaults     map[string]string
	Outage         time.Duration
	HoldDown       time.Duration
	Observers      tenure.Observers
	Span           time.Duration
	Over           bool
	Declared       bool // an operator said that this incarnation is dead
}

func (m memberRecord) equal(o memberRecord) bool {
	return m.Span == o.Span && m.ConfigRevision == o.ConfigRevision && m.Observers.Equal(o.Observers) && m.alike(o)
}

// alike reports whether two reports are the same in what others decide by, but for what only the peer looks at.
func (m memberRecord) alike(o memberRecord) bool {
	return m.Name == o.Name && m.Incarnation == o.Incarnation && m.Ready == o.Ready && m.Leaving == o.Leaving &&
		m.Outage == o.Outage && m.HoldDown == o.HoldDown && m.Over == o.Over && m.Declared == o.Declared &&
		maps.Equal(m.Faults, o.Faults) && maps.Equal(m.PoolFaults, o.PoolFaults)
}

func memberKey(lnn int) string         { return keyMember + strconv.Itoa(lnn) }
func incarnationKey(lnn int) string    { return keyIncarnation + strconv.Itoa(lnn) }
func drainKey(lnn int) string          { return keyDrain + strconv.Itoa(lnn) }
func outageKey(lnn int) string         { return keyOutage + strconv.Itoa(lnn) }
func trustKey(lnn int) string          { return keyTrust + strconv.Itoa(lnn) }
func poolKey(id cluster.PoolID) string { return keyPool + id.String() }
func serviceKey(k steering.ServiceKey) string {
	return keyService + k.Subnet.String() + "/" + k.Address.String()
}

// numberIn is the number at the end of a key.
func numberIn(key string) int {
	lnn, err := strconv.Atoi(key[strings.IndexByte(key, '/')+1:])
	if err != nil {
		panic("sim: a key without a number: " + key)
	}
	return lnn
}
