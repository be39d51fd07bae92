package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Protocol is what a session speaks, in lower case.
type Protocol string

// Protocols that gateways usually have. Others are taken by their name.
const (
	SSH    Protocol = "ssh"
	Telnet Protocol = "telnet"
	RDP    Protocol = "rdp"
	VNC    Protocol = "vnc"
)

// Service is one protocol that a gateway takes sessions of, and the TCP port where it does.
type Service struct {
	Protocol Protocol
	Port     uint16
}

// Status is what the central manager says of a gateway.
type Status uint8

// The statuses. The zero Status is Unknown: it said nothing that can be used.
const (
	Unknown Status = iota
	Available
	Unavailable
)

// String is the status in lower case.
func (s Status) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Available:
		return "available"
	case Unavailable:
		return "unavailable"
	default:
		return fmt.Sprintf("status %d", uint8(s))
	}
}

// Health is how busy a gateway said it was.
type Health struct {
	Known    bool    // false: nothing usable was said, and the rest is zero
	DiskUsed float64 // percent, 0 to 100
	Load1    float64 // load averages, absolute; 0 or more
	Load5    float64
	Load15   float64
	Cores    int // processors; 0: not said
	Sessions int // running
}

// Gateway is one member of a fleet. What every choice reads of all gateways comes first, side by side in memory.
type Gateway struct {
	Key      string    // its identity in the fleet; printable, at most MaxKey bytes
	Services []Service // sorted by protocol
	refuses  string    // why it can never take sessions
	Status   Status
	Health   Health

	Addresses []netip.Addr // the preferred one first; at most MaxAddresses
	Name      string       // fully qualified domain name; empty: not said
	Roles     Roles
	Why       string    // why Status is not Available
	LastSeen  time.Time // by the fleet's clock: good for telling whether it changed, and for nothing else; zero: not said
	Sync      string    // sync_status as it came
	Own       *Own      // what Holdfast's own gateways say beside; nil for those of others
}

// Own is what a gateway of Holdfast's own says of itself. It is never changed.
type Own struct {
	Name     string   // that session tokens are for
	HostKeys []string // by which it proves itself, as in authorized_keys
}

func (o *Own) equal(other *Own) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.Name == other.Name && slices.Equal(o.HostKeys, other.HostKeys)
}

// Bounds of one gateway. What is longer is cut or left out, with a remark.
const (
	MaxKey       = 128
	MaxName      = 253 // RFC 1035 section 2.3.4
	MaxAddresses = 8
	MaxRoles     = 16
	MaxServices  = 16
	MaxHostKeys  = 8
	MaxHostKey   = 2 << 10
)

// Refuses says why this gateway never takes sessions, whoever is alive; empty if it does.
func (g *Gateway) Refuses() string { return g.refuses }

// prepare works out what choices ask for.
func (g *Gateway) prepare() {
	g.refuses = g.Roles.Refuses()
	if g.refuses == "" && len(g.Addresses) == 0 && g.Name == "" {
		g.refuses = "neither an address nor a name of it is known"
	}
}

// Port is where the gateway takes sessions of a protocol; false if it takes none.
func (g *Gateway) Port(p Protocol) (uint16, bool) {
	for i := range g.Services {
		if g.Services[i].Protocol == p {
			return g.Services[i].Port, true
		}
	}
	return 0, false
}

// Shown is the key, and the name if there is one.
func (g *Gateway) Shown() string {
	if g.Name == "" || g.Name == g.Key {
		return g.Key
	}
	return g.Key + " (" + g.Name + ")"
}

// equal reports whether two gateways are the same but for what changes all the time: health and when it was seen.
func (g *Gateway) equal(other *Gateway) bool {
	return g.Key == other.Key && g.Name == other.Name && g.Status == other.Status && g.Roles.Equal(other.Roles) &&
		slices.Equal(g.Addresses, other.Addresses) && slices.Equal(g.Services, other.Services) && g.Own.equal(other.Own)
}
