package fleet

import (
	"strings"
	"testing"
)

// Which roles go together, and which of the mixes take sessions.
func TestRoles(t *testing.T) {
	tests := []struct {
		names   []string
		mix     string // part of why they cannot be together
		refuses string // part of why they take no sessions
	}{
		{[]string{"managed-host"}, "", ""},
		{[]string{"managed-host", "search-local"}, "", ""},
		{[]string{"managed-host", "search-minion"}, "", ""},
		{[]string{"central-management"}, "", ""},
		{[]string{"central-management", "search-minion"}, "", ""},
		{[]string{"Central_Management", " SEARCH-LOCAL "}, "", ""},
		{[]string{"managed-host", "monitoring"}, "", ""}, // ignored

		{[]string{"central-management", "search-primary"}, "", "search-primary, which takes no sessions"},
		{[]string{"managed-host", "search-primary"}, "", "search-primary, which takes no sessions"},
		{[]string{"managed-host", "search-master"}, "", "search-primary, which takes no sessions"}, // the older name
		{[]string{"managed-host", "Search_Master"}, "", "search-primary, which takes no sessions"},
		{nil, "", "it has no role"},
		{[]string{"search-local"}, "", "it has search-local"},
		{[]string{"managed"}, "", "it has managed"},
		{[]string{"central-management-standby"}, "", "it has central-management-standby"},
		{[]string{"managed-host", "search-archive"}, "", "its role search-archive is not known"},

		{[]string{"central-management", "managed-host"}, "exclude each other", "exclude each other"},
		{[]string{"managed-host", "search-local", "search-minion"}, "search-local and search-minion exclude", "exclude each other"},
		{[]string{"managed-host", "search-primary", "search-minion"}, "exclude each other", "exclude each other"},
		{[]string{"search-primary"}, "needs central-management or managed-host", "needs central-management"},
	}
	for _, test := range tests {
		roles := ParseRoles(test.names)
		if got := roles.Mix(); (test.mix == "") != (got == "") || !strings.Contains(got, test.mix) {
			t.Errorf("%q: mix %q, want %q", test.names, got, test.mix)
		}
		if got := roles.Refuses(); (test.refuses == "") != (got == "") || !strings.Contains(got, test.refuses) {
			t.Errorf("%q: refuses %q, want %q", test.names, got, test.refuses)
		}
		if again := ParseRoles(roles.Names()); !again.Equal(roles) {
			t.Errorf("%q: %v, and by its names %v", test.names, roles, again)
		}
	}
}

func TestRolesByName(t *testing.T) {
	if got := ParseRoles([]string{"x", "managed-host", "a", "x", ""}).String(); got != "managed-host, a, x" {
		t.Errorf("got %q", got)
	}
	if !NewRoles(ManagedHost, SearchLocal).Equal(ParseRoles([]string{"search-local", "managed-host"})) {
		t.Error("the order of names matters")
	}
	if got := Role(99).String() + Status(99).String() + Source(99).String() + FailureKind(99).String(); got != "role 99status 99source 99failure 99" {
		t.Errorf("got %q", got)
	}
}
