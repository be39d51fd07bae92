package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Own is what a gateway of Holdfast's own says beside the vendor's fields: the object "holdfast" of its entry in /api/cluster/nodes.
type Own struct {
	Name      string            `json:"name"`      // that session tokens are for
	Protocols map[string]uint16 `json:"protocols"` // and the ports where it takes them
	HostKeys  []string          `json:"host_keys"` // by which it proves itself, as in authorized_keys
	Version   string            `json:"version,omitempty"`
}

// Description is what a member is. It changes with its configuration.
type Description struct {
	Address string   `json:"address,omitempty"` // an IP address; empty if it is known by name alone
	FQDN    string   `json:"fqdn,omitempty"`
	Roles   []string `json:"roles"`
	Own     Own      `json:"holdfast"`
}

// Health is how busy a member is, in the fields of the vendor's health_status and some of ours (fleet.Health).
type Health struct {
	Memory  float64        `json:"memory"` // percent in use, as the next two
	Disk    float64        `json:"disk"`
	Swap    float64        `json:"swap"`
	Load1   float64        `json:"load1"` // load averages, absolute
	Load5   float64        `json:"load5"`
	Load15  float64        `json:"load15"`
	Cores   int            `json:"cores"`
	By      map[string]int `json:"sessions"` // that are running, by protocol
	Total   int            `json:"total_sessions"`
	Accepts bool           `json:"accepts_sessions"`
	Why     string         `json:"why,omitempty"` // it accepts none
}

// Beat is what a member says of itself every few seconds.
type Beat struct {
	Key      string `json:"key"`
	Process  string `json:"process"`  // drawn by each process of the member anew
	Sequence uint64 `json:"sequence"` // of the process, rising from 1
	Description
	Health Health `json:"health_status"`
}

// Bounds of a beat. With them the answers about the largest fleet are within what brokers read, but for addresses and host keys, which the Roster counts.
const (
	MaxBeat        = 32 << 10
	MaxProcess     = 64
	MaxVersion     = 64
	MaxWhy         = 120
	MaxSessionKind = 8  // protocols of which sessions are counted
	maxProtocol    = 16 // bytes of a protocol's name
	maxLoad        = 1e6
	maxCount       = 1e9
)

// ParseBeat reads a beat. Fields that are not known are those of later versions and ignored; what is known has to make sense.
func ParseBeat(text []byte) (Beat, error) {
	var b Beat
	if len(text) > MaxBeat {
		return Beat{}, fmt.Errorf("a beat has at most %d bytes", MaxBeat)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&b); err != nil {
		return Beat{}, fmt.Errorf("the beat cannot be read: %s", plain(err))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Beat{}, errors.New("the beat cannot be read: something follows it")
	}
	return b, b.Check()
}

// plain words an error of the decoder without the names of types.
func plain(err error) string {
	before, _, _ := strings.Cut(err.Error(), " into Go ")
	return strings.TrimPrefix(before, "json: ")
}

// Check says what of a beat makes no sense.
func (b *Beat) Check() error {
	if err := CheckKey(b.Key); err != nil {
		return err
	}
	if b.Process == "" || len(b.Process) > MaxProcess || !printable(b.Process, false) || b.Sequence == 0 {
		return errors.New("a beat says which process of the gateway it is from, and its number")
	}
	if err := b.Description.Check(); err != nil {
		return err
	}
	return b.Health.check()
}

// Check says what of a description makes no sense.
func (d *Description) Check() error {
	if _, err := CheckRoles(d.Roles); err != nil {
		return err
	}
	if d.Address == "" && d.FQDN == "" {
		return errors.New("neither an address nor a name of the gateway is said")
	}
	if d.Address != "" {
		address, err := netip.ParseAddr(d.Address)
		if err != nil || len(d.Address) > 45 || address.Zone() != "" || address.IsUnspecified() || address.IsMulticast() {
			return fmt.Errorf("%.60q is not an address where users could reach a gateway", d.Address)
		}
	}
	if len(d.FQDN) > fleet.MaxName || !printable(d.FQDN, false) {
		return fmt.Errorf("%.60q is not the name of a host", d.FQDN)
	}
	return d.Own.check()
}

func (o *Own) check() error {
	if o.Name == "" || len(o.Name) > fleet.MaxKey || !printable(o.Name, false) {
		return fmt.Errorf("the name that tokens are for is 1 to %d printable characters without spaces, not %.80q", fleet.MaxKey, o.Name)
	}
	if len(o.Protocols) > fleet.MaxServices {
		return fmt.Errorf("there are %d protocols, at most %d are taken", len(o.Protocols), fleet.MaxServices)
	}
	for protocol, port := range o.Protocols {
		if !isProtocol(protocol) || port == 0 {
			return fmt.Errorf("protocol %.40q on port %d cannot be", protocol, port)
		}
	}
	if len(o.HostKeys) > fleet.MaxHostKeys {
		return fmt.Errorf("there are %d host keys, at most %d are taken", len(o.HostKeys), fleet.MaxHostKeys)
	}
	for _, key := range o.HostKeys {
		if key == "" || len(key) > fleet.MaxHostKey || !printable(key, true) {
			return fmt.Errorf("a host key is not a line of authorized_keys of at most %d bytes: %.40q", fleet.MaxHostKey, key)
		}
	}
	if len(o.Version) > MaxVersion || !printable(o.Version, true) {
		return fmt.Errorf("%.80q is no version", o.Version)
	}
	return nil
}

func isProtocol(name string) bool {
	return name != "" && len(name) <= maxProtocol && printable(name, false) && name == strings.ToLower(name)
}

func (h *Health) check() error {
	for _, share := range []float64{h.Memory, h.Disk, h.Swap} {
		if !(share >= 0 && share <= 100) {
			return fmt.Errorf("%g is no percentage of memory, disk or swap", share)
		}
	}
	for _, load := range []float64{h.Load1, h.Load5, h.Load15} {
		if !(load >= 0 && load <= maxLoad) {
			return fmt.Errorf("%g is no load average", load)
		}
	}
	if h.Cores < 0 || h.Cores > 1<<16 || h.Total < 0 || h.Total > maxCount || len(h.By) > MaxSessionKind {
		return errors.New("the number of processors or of sessions cannot be")
	}
	for protocol, n := range h.By {
		if !isProtocol(protocol) || n < 0 || n > maxCount {
			return fmt.Errorf("%d sessions of protocol %.40q cannot be", n, protocol)
		}
	}
	if len(h.Why) > MaxWhy || !printable(h.Why, true) {
		return fmt.Errorf("why no sessions are accepted is said in at most %d printable characters", MaxWhy)
	}
	return nil
}

// Sentence makes of any text a reason that a beat may carry.
func Sentence(text string) string {
	clean := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, text)
	return clean[:min(len(clean), MaxWhy)]
}
