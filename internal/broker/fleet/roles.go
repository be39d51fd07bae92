package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// Role is one of the five roles that gateways have.
type Role uint8

// The roles (SPS administration guide, "Cluster roles").
const (
	CentralManagement Role = iota // speaks for the whole fleet
	ManagedHost                   // has its configuration from the central manager
	SearchPrimary                 // collects the sessions of the minions; takes none itself
	SearchLocal                   // keeps its sessions searchable on itself
	SearchMinion                  // hands its sessions to the search primary
	roleCount
)

var roleNames = [...]string{
	CentralManagement: "central-management", ManagedHost: "managed-host",
	SearchPrimary: "search-primary", SearchLocal: "search-local", SearchMinion: "search-minion",
}

// olderNames are what earlier versions call a role.
var olderNames = map[string]Role{"search-master": SearchPrimary}

// searchFamily begins the names of roles that say what becomes of a gateway's sessions.
const searchFamily = "search-"

// String is the role's name as the API has it.
func (r Role) String() string {
	if int(r) >= len(roleNames) {
		return fmt.Sprintf("role %d", uint8(r))
	}
	return roleNames[r]
}

// Roles are the roles of one gateway. The zero Roles are none, as of a gateway that has just joined.
type Roles struct {
	known   uint8    // a bit for each Role
	Strange []string // names that are not known, sorted, each once
}

// NewRoles returns known roles.
func NewRoles(roles ...Role) (r Roles) {
	for _, role := range roles {
		r.known |= 1 << role
	}
	return r
}

// ParseRoles reads the names of roles. Letter case does not matter, nor whether words are joined by hyphens or underscores.
func ParseRoles(names []string) (r Roles) {
	for _, name := range names {
		name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
		if role, ok := roleNamed(name); ok {
			r.known |= 1 << role
		} else if name != "" && !slices.Contains(r.Strange, name) {
			r.Strange = append(r.Strange, name)
		}
	}
	slices.Sort(r.Strange)
	return r
}

func roleNamed(name string) (Role, bool) {
	if i := slices.Index(roleNames[:], name); i >= 0 {
		return Role(i), true
	}
	role, ok := olderNames[name]
	return role, ok
}

// Has reports whether the role is among them.
func (r Roles) Has(role Role) bool { return r.known&(1<<role) != 0 }

// Names are the roles' names, known ones first.
func (r Roles) Names() []string {
	var names []string
	for role := range roleCount {
		if r.Has(role) {
			names = append(names, role.String())
		}
	}
	return append(names, r.Strange...)
}

// String lists the names.
func (r Roles) String() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "no role"
}

// Equal reports whether both are the same roles.
func (r Roles) Equal(other Roles) bool {
	return r.known == other.known && slices.Equal(r.Strange, other.Strange)
}

// Mix says why no gateway can have these roles together; empty if one can. A gateway without roles is one that has just joined.
func (r Roles) Mix() string {
	var search []string
	for _, role := range []Role{SearchPrimary, SearchLocal, SearchMinion} {
		if r.Has(role) {
			search = append(search, role.String())
		}
	}
	switch {
	case r.Has(CentralManagement) && r.Has(ManagedHost):
		return "central-management and managed-host exclude each other: a gateway manages or is managed"
	case len(search) > 1:
		return strings.Join(search, " and ") + " exclude each other: the sessions of a gateway are searched in one place"
	case r.Has(SearchPrimary) && !r.managed():
		return "search-primary needs central-management or managed-host beside it"
	}
	return ""
}

func (r Roles) managed() bool { return r.Has(CentralManagement) || r.Has(ManagedHost) }

// Refuses says why a gateway with these roles takes no sessions; empty if it takes them.
func (r Roles) Refuses() string {
	if mix := r.Mix(); mix != "" {
		return mix
	}
	if r.Has(SearchPrimary) {
		return "it is the search-primary, which takes no sessions"
	}
	if !r.managed() {
		return fmt.Sprintf("it has %s, and only central-management and managed-host take sessions", r)
	}
	for _, name := range r.Strange {
		if strings.HasPrefix(name, searchFamily) {
			return fmt.Sprintf("its role %s is not known, and one of the search roles takes no sessions", name)
		}
	}
	return ""
}

// and are the roles of both.
func (r Roles) and(other Roles) Roles {
	both := Roles{known: r.known | other.known, Strange: slices.Concat(r.Strange, other.Strange)}
	slices.Sort(both.Strange)
	both.Strange = slices.Compact(both.Strange)
	return both
}
