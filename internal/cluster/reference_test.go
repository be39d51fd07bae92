package cluster

import (
	"os"
	"strings"
	"testing"
)

// The reference configuration is documentation: it is valid, nothing in it is worth a warning but that some settings have no
// effect yet, it names every setting, and a remark stands above each the first time.
func TestReference(t *testing.T) {
	data, err := os.ReadFile("testdata/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, faults := ParseWithWarnings("reference.yaml", data)
	for _, fault := range faults {
		if !fault.Warning || !strings.HasPrefix(fault.Message, "has no effect yet") {
			t.Errorf("%v", fault)
		}
	}
	if c == nil {
		return
	}
	again, err := Parse("printed.yaml", Print(c))
	if err != nil || len(Diff(c, again)) > 0 {
		t.Errorf("reads back differently: %v %v", err, Diff(c, again))
	}
	for noun, names := range map[string][]string{"cluster": settingsTable.names(), "store": storeTable.names(), "hook": hookTable.names(),
		"node": nodeTable.names(), "groupnet": groupnetTable.names(), "subnet": subnetTable.names(), "pool": poolTable.names(),
		"rule": ruleTable.names(), "check": checkTable.names()} {
		for _, name := range names {
			if !strings.Contains(string(data), name+":") {
				t.Errorf("the setting %s of a %s is not there", name, noun)
			}
		}
	}
	remarked := map[string]bool{}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		key, _, isKey := strings.Cut(strings.TrimLeft(line, " -"), ":")
		if !isKey || strings.HasPrefix(key, "#") || remarked[key] || strings.Contains(line, "{name: node") {
			continue
		}
		remarked[key] = true
		if !remarkAbove(lines[:i]) && !containers[key] {
			t.Errorf("line %d: no remark above %s", i+1, key)
		}
	}
}

// containers need no remark of their own: what is in them has one.
var containers = map[string]bool{"store": true, "nodes": true, "groupnets": true, "subnets": true, "pools": true, "name": true, "rules": true}

// remarkAbove reports whether the nearest lines above are a remark, with at most two settings in between that share it.
func remarkAbove(lines []string) bool {
	for n := 1; n <= 3 && n <= len(lines); n++ {
		if strings.HasPrefix(strings.TrimSpace(lines[len(lines)-n]), "#") {
			return true
		}
	}
	return false
}
