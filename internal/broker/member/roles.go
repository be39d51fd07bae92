package member

import (
	"fmt"
	"strings"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// CheckRoles reads the roles of a gateway of Holdfast's own. It takes no role that is not known and no mix that cannot be.
func CheckRoles(names []string) (fleet.Roles, error) {
	if len(names) > fleet.MaxRoles {
		return fleet.Roles{}, fmt.Errorf("there are %d roles, at most %d are taken", len(names), fleet.MaxRoles)
	}
	roles := fleet.ParseRoles(names)
	if len(roles.Strange) > 0 {
		return fleet.Roles{}, fmt.Errorf("%.40q is no role: the roles are central-management or managed-host, and search-local, search-minion or search-primary beside it", roles.Strange[0])
	}
	if mix := roles.Mix(); mix != "" {
		return fleet.Roles{}, fmt.Errorf("%s", mix)
	}
	if !roles.Has(fleet.CentralManagement) && !roles.Has(fleet.ManagedHost) {
		return fleet.Roles{}, fmt.Errorf("the roles are %s, and central-management or managed-host is needed among them", roles)
	}
	return roles, nil
}

// MaxKey bounds the key of a member, in bytes. It is less than what brokers take, so that the answers of the largest fleet are within fleet.MaxAnswer.
const MaxKey = 64

// CheckKey says why a text is no key of a member; nil if it is one. Keys are parts of paths and words in rules.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) {
		return fmt.Errorf("a gateway's key is 1 to %d letters, digits, hyphens, underscores and dots, not %.80q", MaxKey, key)
	}
	return nil
}

// printable reports whether a text has nothing that could forge lines in a log or a terminal. Spaces are for sentences and keys.
func printable(text string, spaces bool) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == ' ' && !spaces })
}
