package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MaxAnswer bounds each of the three answers, in bytes.
const MaxAnswer = 4 << 20

// Answers are the bodies of what a central manager is asked for.
type Answers struct {
	Nodes  []byte // GET /api/cluster/nodes
	Status []byte // GET /api/cluster/status, which only a central manager answers
	Health []byte // GET /api/health_status of the central manager itself; empty: it was not to be had
}

// Expected is what the link says of a fleet.
type Expected struct {
	Central    string               // key of the linked central manager; empty: not known yet, and the only one there is counts
	Services   []Service            // what gateways take that do not say it themselves
	ServicesOf map[string][]Service // the same for single gateways, by key
}

// wireList is a list of the API. Fields that are not named here are ignored.
type wireList struct {
	Items []json.RawMessage `json:"items"`
	Meta  struct {
		Self string `json:"self"` // the status of whoever answers
	} `json:"meta"`
}

// wireNode is an item of /api/cluster/nodes. A single node is asked for with its fields in a body; lists have been seen without.
type wireNode struct {
	Key  string `json:"key"`
	Body *struct {
		wireNodeFields
	} `json:"body"`
	wireNodeFields
}

type wireNodeFields struct {
	Address   string            `json:"address"`
	Addresses []string          `json:"addresses"` // ours: further addresses
	Roles     []string          `json:"roles"`
	Protocols map[string]uint16 `json:"protocols"` // ours: protocol to port
	Holdfast  *wireOwn          `json:"holdfast"`  // ours: of a gateway that takes session tokens
}

// wireOwn is what a gateway of Holdfast's own says beside.
type wireOwn struct {
	Name      string            `json:"name"`
	Protocols map[string]uint16 `json:"protocols"`
	HostKeys  []string          `json:"host_keys"`
}

// wireStatus is an item of /api/cluster/status.
type wireStatus struct {
	Key      string          `json:"key"`
	Name     string          `json:"fqdn"`
	LastSeen string          `json:"last_seen"`
	Health   json.RawMessage `json:"health_status"`
	Sync     string          `json:"sync_status"`
}

// wireHealth is the health of one gateway, in both of its places; they name the number of sessions differently.
type wireHealth struct {
	Disk          *float64 `json:"disk"`
	Load1         *float64 `json:"load1"`
	Load5         *float64 `json:"load5"`
	Load15        *float64 `json:"load15"`
	TotalSessions int      `json:"total_sessions"`
	SessionsTotal int      `json:"sessions_total"`
	Cores         int      `json:"cores"`            // ours
	Accepts       *bool    `json:"accepts_sessions"` // ours: false when a gateway takes no new ones, as with a full disk
	Why           string   `json:"why"`              // ours: why it takes none
}

// reading is one answer on its way to a View.
type reading struct {
	expected Expected
	gateways map[string]*Gateway
	twice    map[string]bool // of these the answer says two different things
	stated   map[string]bool // of these there is a status
	remarks  []string
	more     int
}

// Read makes a View of the answers of a central manager, or says why they are none.
func Read(a Answers, expected Expected) (*View, *Failure) {
	nodes, failure := readList("/api/cluster/nodes", a.Nodes)
	if failure != nil {
		return nil, failure
	}
	statuses, failure := readList("/api/cluster/status", a.Status)
	if failure != nil {
		return nil, failure
	}
	r := &reading{expected: expected, gateways: map[string]*Gateway{}, twice: map[string]bool{}, stated: map[string]bool{}}
	for _, item := range nodes.Items {
		r.readNode(item)
	}
	if len(r.gateways) == 0 {
		return nil, failed(Empty, "/api/cluster/nodes lists %d gateways, of which none has a key that can be used%s", len(nodes.Items), r.remarked())
	}
	self, failure := r.speaker(statuses)
	if failure != nil {
		return nil, failure
	}
	for _, item := range statuses.Items {
		r.readStatus(item)
	}
	r.answering(self, a.Health)
	return r.finish(self)
}

// readList reads a list, to its last byte.
func readList(path string, body []byte) (list wireList, failure *Failure) {
	if len(body) > MaxAnswer {
		return list, failed(Garbled, "%s: the answer is longer than %d bytes", path, MaxAnswer)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if err := decoder.Decode(&list); err != nil {
		return list, failed(Garbled, "%s: the answer of %d bytes cannot be read as a list: %s", path, len(body), plain(err))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return list, failed(Garbled, "%s: after the list of %d items something else follows", path, len(list.Items))
	}
	if len(list.Items) == 0 {
		return list, failed(Empty, "%s: the answer lists no gateway", path)
	}
	if len(list.Items) > MaxGateways {
		return list, failed(Garbled, "%s: the answer lists %d gateways, at most %d are taken", path, len(list.Items), MaxGateways)
	}
	return list, nil
}

// plain words an error of the decoder without the names of types.
func plain(err error) string {
	text := err.Error()
	if before, _, found := strings.Cut(text, " into Go "); found {
		text = before
	}
	return strings.TrimPrefix(text, "json: ")
}

func (r *reading) readNode(item json.RawMessage) {
	var wire wireNode
	if err := json.Unmarshal(item, &wire); err != nil {
		r.remark("a gateway cannot be read: %s", plain(err))
		return
	}
	if !validKey(wire.Key) {
		r.remark("a gateway's key is not 1 to %d printable characters: %.40q", MaxKey, wire.Key)
		return
	}
	fields := wire.wireNodeFields
	if wire.Body != nil {
		fields = wire.Body.wireNodeFields
	}
	g := &Gateway{Key: wire.Key, Why: "the central manager says nothing of it"}
	g.Roles = r.readRoles(wire.Key, fields.Roles)
	g.Addresses = r.readAddresses(wire.Key, append([]string{fields.Address}, fields.Addresses...))
	if fields.Holdfast != nil {
		g.Own = r.readOwn(wire.Key, fields.Holdfast)
		if fields.Holdfast.Protocols != nil {
			fields.Protocols = fields.Holdfast.Protocols
		}
	}
	g.Services = r.services(wire.Key, fields.Protocols)
	before, known := r.gateways[g.Key]
	if !known {
		r.gateways[g.Key] = g
		return
	}
	if g.equal(before) {
		r.remark("gateway %s is listed twice", g.Key)
		return
	}
	r.twice[g.Key] = true
	before.Roles = before.Roles.and(g.Roles) // what one of the two refuses is refused
}

// readOwn reads what a gateway of Holdfast's own says beside. Keys that cannot be used are left out; with a name that cannot, it counts as somebody else's.
func (r *reading) readOwn(key string, wire *wireOwn) *Own {
	if !validKey(wire.Name) {
		r.remark("gateway %s has a name for tokens that cannot be used: %.40q", key, wire.Name)
		return nil
	}
	own := &Own{Name: wire.Name}
	for _, text := range wire.HostKeys {
		if len(own.HostKeys) == MaxHostKeys || len(text) > MaxHostKey || text == "" || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
			r.remark("gateway %s has a host key too many, or one that cannot be used: %.40q", key, text)
			continue
		}
		own.HostKeys = append(own.HostKeys, text)
	}
	return own
}

func (r *reading) readRoles(key string, names []string) Roles {
	kept := names[:min(len(names), MaxRoles)]
	if len(kept) < len(names) {
		r.remark("gateway %s has %d roles; the first %d are looked at", key, len(names), MaxRoles)
	}
	kept = slices.DeleteFunc(slices.Clone(kept), func(name string) bool {
		odd := len(name) > MaxKey || !printable(strings.TrimSpace(name))
		if odd {
			r.remark("gateway %s has a role that cannot be printed: %.40q", key, name)
		}
		return odd
	})
	roles := ParseRoles(kept)
	if len(kept) < len(names) {
		roles.Strange = append(roles.Strange, searchFamily+"unreadable") // it may have been the one that takes no sessions
	}
	if mix := roles.Mix(); mix != "" {
		r.remark("gateway %s has roles that cannot be: %s", key, mix)
	}
	return roles
}

func (r *reading) readAddresses(key string, texts []string) (addresses []netip.Addr) {
	for _, text := range texts {
		if text == "" || len(addresses) == MaxAddresses {
			continue
		}
		address, err := netip.ParseAddr(text)
		if address = address.Unmap().WithZone(""); err != nil || address.IsUnspecified() || address.IsMulticast() {
			r.remark("gateway %s has an address that cannot be used: %.60q", key, text)
		} else if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// services are what the gateway says, else what the link says of it, else what the link says of all.
func (r *reading) services(key string, told map[string]uint16) []Service {
	if told == nil {
		if of, ok := r.expected.ServicesOf[key]; ok {
			return of
		}
		return r.expected.Services
	}
	var services []Service
	for _, name := range slices.Sorted(maps.Keys(told)) {
		s := Service{Protocol: Protocol(strings.ToLower(name)), Port: told[name]}
		twice := slices.ContainsFunc(services, func(o Service) bool { return o.Protocol == s.Protocol })
		if s.Port == 0 || twice || !validKey(name) || len(services) == MaxServices {
			r.remark("gateway %s has a protocol that cannot be used: %.40q", key, name)
			continue
		}
		services = append(services, s)
	}
	slices.SortFunc(services, func(a, b Service) int { return strings.Compare(string(a.Protocol), string(b.Protocol)) })
	return services
}

// speaker finds out for which central manager the answer speaks, and whether that is the linked one.
func (r *reading) speaker(statuses wireList) (string, *Failure) {
	var claims []string
	for _, key := range slices.Sorted(maps.Keys(r.gateways)) {
		if r.gateways[key].Roles.Has(CentralManagement) {
			claims = append(claims, key)
		}
	}
	self := statuses.Meta.Self[strings.LastIndex(statuses.Meta.Self, "/")+1:]
	central := r.expected.Central
	switch {
	case len(claims) == 0:
		return "", failed(Contradictory, "no gateway of the %d listed has the role central-management", len(r.gateways))
	case central == "" && self != "":
		central = self
	case central == "" && len(claims) == 1:
		central = claims[0]
	case central == "":
		return "", failed(Contradictory, "%s all say that they are the central manager, and none is linked by its key", strings.Join(claims, ", "))
	}
	if self != "" && self != central {
		return "", failed(Contradictory, "the answer comes from %.*q, and the linked central manager is %s", MaxKey, self, central)
	}
	if !slices.Contains(claims, central) {
		return "", failed(Contradictory, "the linked central manager %s is not one in its own list; %s is", central, strings.Join(claims, ", "))
	}
	return central, nil
}

func (r *reading) readStatus(item json.RawMessage) {
	var wire wireStatus
	if err := json.Unmarshal(item, &wire); err != nil {
		r.remark("a status cannot be read: %s", plain(err))
		return
	}
	g, known := r.gateways[wire.Key]
	if !known {
		r.remark("a status is of %.40q, which is not listed", wire.Key)
		return
	}
	status, why, health := r.readHealth(wire.Key, wire.Health)
	seen, _ := time.Parse(time.RFC3339Nano, wire.LastSeen) // one that cannot be read tells nothing, as none does
	name := wire.Name
	if len(name) > MaxName || !printable(name) {
		r.remark("gateway %s has a name that cannot be used: %.40q", wire.Key, name)
		name = ""
	}
	if r.stated[g.Key] && (g.Status != status || g.Health != health || g.Name != name) {
		r.twice[g.Key] = true
		return
	}
	r.stated[g.Key] = true
	g.Status, g.Why, g.Health, g.Name, g.LastSeen = status, why, health, name, seen
	if len(wire.Sync) <= MaxKey {
		g.Sync = wire.Sync
	}
}

// readHealth reads what is said of a gateway's health. Null means down (of whoever answers, answering says otherwise); what cannot be
// read is unknown.
func (r *reading) readHealth(key string, raw json.RawMessage) (Status, string, Health) {
	if len(raw) == 0 {
		return Unknown, "the central manager says nothing of its health", Health{}
	}
	if string(raw) == "null" {
		return Unavailable, "the central manager says that it is down", Health{}
	}
	var wire wireHealth
	if err := json.Unmarshal(raw, &wire); err != nil {
		r.remark("the health of gateway %s cannot be read: %s", key, plain(err))
		return Unknown, "its health cannot be read", Health{}
	}
	if wire.Accepts != nil && !*wire.Accepts {
		why := takesNone
		if wire.Why != "" && len(wire.Why) <= MaxName && !strings.ContainsFunc(wire.Why, func(c rune) bool { return c < ' ' || c > '~' }) {
			why += ": " + wire.Why
		}
		return Unavailable, why, wire.health()
	}
	health := wire.health()
	if !health.Known {
		r.remark("the health of gateway %s has figures that cannot be", key)
	}
	return Available, "", health
}

// takesNone begins the reason of a gateway that is up and says itself that it takes no new sessions.
const takesNone = "it takes no new sessions"

// maxLoad is beyond every load average that a machine could say.
const maxLoad = 1e6

func (w *wireHealth) health() Health {
	for _, load := range []*float64{w.Load1, w.Load5, w.Load15} {
		if load == nil || *load < 0 || *load > maxLoad {
			return Health{}
		}
	}
	if w.Disk == nil || *w.Disk < 0 || *w.Disk > 100 {
		return Health{}
	}
	return Health{
		Known: true, DiskUsed: *w.Disk, Load1: *w.Load1, Load5: *w.Load5, Load15: *w.Load15,
		Cores: max(0, min(w.Cores, 1<<16)), Sessions: max(0, w.TotalSessions, w.SessionsTotal),
	}
}

// answering is what is known of the one that answers: it is up, and says its own health elsewhere.
func (r *reading) answering(self string, body []byte) {
	g := r.gateways[self]
	if g.Status == Available && g.Health.Known {
		return
	}
	if g.Status != Unavailable || !strings.HasPrefix(g.Why, takesNone) {
		g.Status, g.Why = Available, ""
	}
	if len(body) == 0 || len(body) > MaxAnswer {
		return
	}
	var wire struct {
		Health json.RawMessage `json:"health_status"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		r.remark("/api/health_status of gateway %s cannot be read: %s", self, plain(err))
		return
	}
	if len(wire.Health) == 0 || string(wire.Health) == "null" {
		wire.Health = body // without the object around it
	}
	status, why, health := r.readHealth(self, wire.Health)
	g.Health = health
	if status == Unavailable && string(wire.Health) != "null" {
		g.Status, g.Why = status, why
	}
}

func (r *reading) finish(self string) (*View, *Failure) {
	for key := range r.twice {
		g := r.gateways[key]
		if key != self {
			g.Status, g.Why, g.Health = Unavailable, "the central manager says two different things of it", Health{}
		}
		r.remark("of gateway %s the answer says two different things", key)
	}
	gateways := make([]Gateway, 0, len(r.gateways))
	for _, g := range r.gateways {
		gateways = append(gateways, *g)
	}
	view, err := NewView(self, gateways)
	if err != nil {
		return nil, failed(Garbled, "%s", err)
	}
	slices.Sort(r.remarks)
	view.Remarks = r.remarks
	if r.more > 0 {
		view.Remarks = append(view.Remarks, fmt.Sprintf("and %d more", r.more))
	}
	return view, nil
}

func (r *reading) remark(format string, arguments ...any) {
	if len(r.remarks) == MaxRemarks-1 {
		r.more++
		return
	}
	r.remarks = append(r.remarks, fmt.Sprintf(format, arguments...))
}

// remarked is the first remark, for the text of a failure.
func (r *reading) remarked() string {
	if len(r.remarks) == 0 {
		return ""
	}
	return ": " + r.remarks[0]
}
