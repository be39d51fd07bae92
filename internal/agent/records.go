package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
)

// Where everything lies in the store. One watch sees all of it in order.
const (
	keyConfig      = "config"
	keyIncarnation = "incarnation/" // + LNN
	keyMember      = "member/"      // + LNN
	keyPool        = "pool/"        // + dotted id
	keyService     = "service/"     // + dotted id of the subnet + "/" + address
	keyDrain       = "drain/"       // + LNN
	keyOutage      = "outage/"      // + LNN
	keyTrust       = "trust/"       // + LNN
)

// configRecord is the configuration in force, as its canonical text.
type configRecord struct {
	YAML string    `json:"yaml"`
	By   string    `json:"by"` // the node through which it was applied
	At   time.Time `json:"at"`
}

// incarnationRecord is the number that a node drew last, and when it started lately.
type incarnationRecord struct {
	Number tenure.Incarnation `json:"number"`
	Starts []time.Time        `json:"starts,omitempty"` // the last few, by the node's wall clock; from them the hold-down grows
}

// memberRecord is a node's own report. It stays when the node is gone; then somebody who knows it writes Over into it.
type memberRecord struct {
	Name           string             `json:"name"`
	Incarnation    tenure.Incarnation `json:"incarnation"`
	Version        string             `json:"version"`
	Ready          bool               `json:"ready"`
	Leaving        bool               `json:"leaving,omitempty"`
	ConfigRevision int64              `json:"config_revision"`
	Faults         map[string]string  `json:"faults,omitempty"`      // interface to what is wrong
	PoolFaults     map[string]string  `json:"pool_faults,omitempty"` // dotted id to what is wrong
	OutageMS       int64              `json:"outage_ms,omitempty"`
	HoldDownMS     int64              `json:"hold_down_ms,omitempty"`
	Observers      tenure.Observers   `json:"observers"`                // whose word its right depends on
	SpanMS         int64              `json:"span_ms"`                  // the longest span that its heartbeats name
	Over           bool               `json:"over,omitempty"`           // this incarnation is over for good
	Waiting        string             `json:"waiting,omitempty"`        // what it waits for before it is ready
	StateSinceMS   int64              `json:"state_since_ms,omitempty"` // since when it is what it is, by its wall clock in Unix milliseconds; 0: it does not know
	StoreMember    string             `json:"store_member,omitempty"`   // the member of the embedded store whose data it has
	StoreFault     string             `json:"store_fault,omitempty"`    // why that one does not run
	CutNetworks    []int              `json:"cut_networks,omitempty"`   // over which it hears few of those that it hears at all, by position among its addresses
	Declared       *declaredRecord    `json:"declared,omitempty"`       // an operator said that this incarnation is dead
}

// declaredRecord is an operator's word that a node is dead.
type declaredRecord struct {
	By     string    `json:"by"` // the user, as the kernel vouches for it, and the node that was asked
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// equal reports whether two reports say the same.
func (m memberRecord) equal(o memberRecord) bool {
	faults, poolFaults := maps.Equal(m.Faults, o.Faults), maps.Equal(m.PoolFaults, o.PoolFaults)
	m.Faults, o.Faults, m.PoolFaults, o.PoolFaults = nil, nil, nil, nil
	return faults && poolFaults && reflect.DeepEqual(m, o)
}

// drainRecord is an operator's wish that a node holds nothing.
type drainRecord struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// outageRecord says since when a node's addresses are with others: written with the takeover, or by the node itself when it stops in an
// orderly way. It goes when the node draws its next incarnation.
type outageRecord struct {
	Since time.Time `json:"since"`
}

// trustRecord is an operator's word for a node in hold-down: a rebalance that was asked for gave it addresses. It ends the
// hold-down of that incarnation.
type trustRecord struct {
	Incarnation tenure.Incarnation `json:"incarnation"`
	By          string             `json:"by"` // the node through which it was asked for
	At          time.Time          `json:"at"`
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

// parseLNN reads the number at the end of a key.
func parseLNN(key, prefix string) (int, error) {
	lnn, err := strconv.Atoi(strings.TrimPrefix(key, prefix))
	if err != nil || lnn < 1 {
		return 0, fmt.Errorf("the store has a key %q where a node's number was expected", key)
	}
	return lnn, nil
}

func parsePoolKey(key string) (cluster.PoolID, error) {
	id, err := cluster.NewPoolID(strings.TrimPrefix(key, keyPool))
	if err != nil {
		return cluster.PoolID{}, fmt.Errorf("the store has a key %q where a pool's id was expected", key)
	}
	return id, nil
}

func parseServiceKey(key string) (steering.ServiceKey, error) {
	subnet, address, found := strings.Cut(strings.TrimPrefix(key, keyService), "/")
	id, idErr := cluster.NewSubnetID(subnet)
	parsed, err := netip.ParseAddr(address)
	if !found || idErr != nil || err != nil {
		return steering.ServiceKey{}, fmt.Errorf("the store has a key %q where a service address was expected", key)
	}
	return steering.ServiceKey{Subnet: id, Address: parsed}, nil
}
