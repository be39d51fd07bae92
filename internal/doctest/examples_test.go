package doctest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast/holdfast/internal/broker/gateway"
	"github.com/holdfast/holdfast/internal/broker/settings"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/lab"
)

// TestConfigurations: every configuration on a page and every file under docs/examples is valid. A block of YAML that is a lab file
// is marked "yaml lab", one for a session gateway "yaml gateway", one for
// a broker "yaml broker".
func TestConfigurations(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			var err error
			switch b.info {
			case "yaml":
				_, err = cluster.Parse(b.page, []byte(b.text))
			case "yaml lab":
				var file lab.File
				if file, err = lab.ParseFile(b.page, []byte(b.text)); err == nil {
					_, err = lab.BuildPlan(file)
				}
			case "yaml gateway":
				err = gateway.Check(b.page, []byte(b.text))
			case "yaml broker":
				err = settings.Check(b.page, []byte(b.text))
			default:
				continue
			}
			checked++
			if err != nil {
				t.Errorf("%s, the block at line %d:\n%v", b.page, b.line, err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "docs/examples/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Parse(name, text); err != nil {
			t.Error(err)
		}
		checked++
	}
	if checked < 5 {
		t.Errorf("only %d examples were found", checked)
	}
}
