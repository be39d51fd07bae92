package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Record is what is kept of one fleet.
type Record struct {
	Fleet string
	View  *fleet.View
	Stamp Stamp
}

// MaxRecord bounds a file, in bytes.
const MaxRecord = 8 << 20

// magic begins each file, with the version of the format.
const magic = "holdfast-last-good 1 "

type wireRecord struct {
	Fleet    string        `json:"fleet"`
	Age      int64         `json:"age_ms"`
	AtLeast  bool          `json:"at_least,omitempty"`
	Wall     time.Time     `json:"written"`
	Boot     string        `json:"boot"`
	Since    int64         `json:"since_boot_ms"`
	Central  string        `json:"central"`
	Gateways []wireGateway `json:"gateways"`
}

type wireGateway struct {
	Key       string        `json:"key"`
	Addresses []netip.Addr  `json:"addresses,omitempty"`
	Name      string        `json:"name,omitempty"`
	Roles     []string      `json:"roles,omitempty"`
	Services  []wireService `json:"services,omitempty"`
	Status    fleet.Status  `json:"status"`
	Why       string        `json:"why,omitempty"`
	Health    *fleet.Health `json:"health,omitempty"`
	LastSeen  *time.Time    `json:"last_seen,omitempty"`
	Sync      string        `json:"sync,omitempty"`
	Own       *wireOwn      `json:"holdfast,omitempty"`
}

type wireOwn struct {
	Name     string   `json:"name"`
	HostKeys []string `json:"host_keys,omitempty"`
}

type wireService struct {
	Protocol fleet.Protocol `json:"protocol"`
	Port     uint16         `json:"port"`
}

// Encode writes a record: a line with the length and the checksum of the rest, then the rest as JSON.
func Encode(r *Record) ([]byte, error) {
	w := wireRecord{
		Fleet: r.Fleet, Age: r.Stamp.Age.Milliseconds(), AtLeast: r.Stamp.AtLeast, Wall: r.Stamp.Wall.UTC().Round(0), Boot: r.Stamp.Boot,
		Since: r.Stamp.Since.Milliseconds(), Central: r.View.Central, Gateways: make([]wireGateway, len(r.View.Gateways)),
	}
	for i := range r.View.Gateways {
		w.Gateways[i] = wireOf(&r.View.Gateways[i])
	}
	body, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("writing the last good view of fleet %s: %w", r.Fleet, err)
	}
	text := seal(body)
	if len(text) > MaxRecord {
		return nil, fmt.Errorf("the last good view of fleet %s has %d bytes, at most %d are kept", r.Fleet, len(text), MaxRecord)
	}
	return text, nil
}

// seal puts the line before a body that says how long it is and what its checksum is.
func seal(body []byte) []byte {
	return append(fmt.Appendf(nil, "%s%d %x\n", magic, len(body), sha256.Sum256(body)), body...)
}

func wireOf(g *fleet.Gateway) wireGateway {
	w := wireGateway{Key: g.Key, Addresses: g.Addresses, Name: g.Name, Roles: g.Roles.Names(), Status: g.Status, Why: g.Why, Sync: g.Sync}
	for _, s := range g.Services {
		w.Services = append(w.Services, wireService(s))
	}
	if g.Health.Known {
		w.Health = &g.Health
	}
	w.Own = (*wireOwn)(g.Own)
	if !g.LastSeen.IsZero() {
		seen := g.LastSeen.UTC()
		w.LastSeen = &seen
	}
	return w
}

// Decode reads what Encode wrote, for a fleet.
func Decode(name string, text []byte) (*Record, error) {
	if len(text) > MaxRecord {
		return nil, fmt.Errorf("it is longer than %d bytes", MaxRecord)
	}
	head, body, found := bytes.Cut(text, []byte("\n"))
	rest, ours := strings.CutPrefix(string(head), magic)
	if !found || !ours {
		return nil, fmt.Errorf("it does not begin as a last good view of this version does")
	}
	sum := sha256.Sum256(body)
	if want := fmt.Sprintf("%d %s", len(body), hex.EncodeToString(sum[:])); rest != want {
		return nil, fmt.Errorf("its length or checksum is not what its first line says: it was cut off or changed")
	}
	var w wireRecord
	if err := json.Unmarshal(body, &w); err != nil {
		return nil, fmt.Errorf("its checksum is right, but it cannot be read: it was written by something else")
	}
	if w.Fleet != name {
		return nil, fmt.Errorf("it is of fleet %.50q, not of %s", w.Fleet, name)
	}
	gateways := make([]fleet.Gateway, 0, min(len(w.Gateways), fleet.MaxGateways))
	for i := range w.Gateways {
		g, err := w.Gateways[i].gateway()
		if err != nil {
			return nil, err
		}
		gateways = append(gateways, g)
	}
	view, err := fleet.NewView(w.Central, gateways)
	if err != nil {
		return nil, err
	}
	if _, there := view.Find(w.Central); !there {
		return nil, fmt.Errorf("its central manager %.50q is not among its gateways", w.Central)
	}
	return &Record{Fleet: w.Fleet, View: view, Stamp: Stamp{
		Age: milliseconds(w.Age), AtLeast: w.AtLeast, Clocks: Clocks{Wall: w.Wall, Boot: w.Boot, Since: milliseconds(w.Since)},
	}}, nil
}

// milliseconds takes no more than a duration can hold, and nothing negative.
func milliseconds(n int64) time.Duration {
	return time.Duration(max(0, min(n, int64(1<<63-1)/int64(time.Millisecond)))) * time.Millisecond
}

func (w *wireGateway) gateway() (fleet.Gateway, error) {
	g := fleet.Gateway{Key: w.Key, Addresses: w.Addresses, Name: w.Name, Roles: fleet.ParseRoles(w.Roles), Status: w.Status, Why: w.Why, Sync: w.Sync}
	if w.Status > fleet.Unavailable {
		return g, fmt.Errorf("gateway %.50q has status %d, which this version does not know", w.Key, w.Status)
	}
	if len(w.Addresses) > fleet.MaxAddresses || len(w.Services) > fleet.MaxServices {
		return g, fmt.Errorf("gateway %.50q has more addresses or services than a gateway may", w.Key)
	}
	for _, s := range w.Services {
		g.Services = append(g.Services, fleet.Service(s))
	}
	if w.Health != nil {
		g.Health = *w.Health
	}
	if w.Own != nil {
		if len(w.Own.Name) > fleet.MaxKey || len(w.Own.HostKeys) > fleet.MaxHostKeys {
			return g, fmt.Errorf("gateway %.50q has a longer name or more host keys than a gateway may", w.Key)
		}
		g.Own = (*fleet.Own)(w.Own)
	}
	if w.LastSeen != nil {
		g.LastSeen = *w.LastSeen
	}
	return g, nil
}
