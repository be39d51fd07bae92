package lab

import (
	"strings"
	"testing"
)

// A result has the same names, values and order as JSON and as YAML.
func TestPrintAs(t *testing.T) {
	status := &Status{Directory: "/d", Cluster: "c", Switch: "on", Members: []MemberStatus{{Name: "node1", Kind: KindNode, LNN: 1, Addresses: []string{"10.0.0.1"}, State: "on", Link: "up"}}}
	for output, want := range map[string]string{
		"json": "{\n  \"directory\": \"/d\",\n  \"cluster\": \"c\",\n",
		"yaml": "directory: /d\ncluster: c\n",
	} {
		var out strings.Builder
		if err := printAs(output, &out, status); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), want) || !strings.Contains(out.String(), "10.0.0.1") {
			t.Errorf("%s:\n%s", output, out.String())
		}
	}
	for _, command := range []string{"status", "run"} {
		c, _, err := Command().Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.ParseFlags([]string{"-o", "xml"}); err != nil {
			t.Fatal(err)
		}
		if err := c.PreRunE(c, nil); err == nil {
			t.Errorf("lab %s takes --output xml", command)
		}
	}
}
