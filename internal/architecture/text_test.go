package architecture

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unfinished and machines are put together from parts, so that this file does not break its own rules.
var (
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	machines   = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:,])/(wo` + `rk|ro` + `ot|ho` + `me/[a-z])(/|$|[\s"'` + "`" + `),])`)
)

// maxTextBytes is what is read of a file; what is longer is data.
const maxTextBytes = 1 << 20

// tidyText finds notes of unfinished work and paths of the machine that somebody worked on.
func tidyText(name, text string) []string {
	var findings []string
	for i, line := range strings.Split(text, "\n") {
		if match := unfinished.FindString(line); match != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %s: finish it, or open an issue for it", name, i+1, match))
		}
		if match := machines.FindString(line); match != "" {
			findings = append(findings, fmt.Sprintf("%s:%d: %s is a path of somebody's machine", name, i+1, strings.TrimSpace(match)))
		}
	}
	return findings
}

// TestText reads every text file of the tree, whatever it is.
func TestText(t *testing.T) {
	files := 0
	walk(t, func(name string) {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Size() > maxTextBytes || filepath.Base(name) == "go.sum" {
			return
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return // a binary that a tool left behind, or an image
		}
		files++
		for _, finding := range tidyText(name, string(text)) {
			t.Error(finding)
		}
	})
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
}

func TestTextCanBreak(t *testing.T) {
	text := "fine\n// TO" + "DO: later\ndir = \"/wo" + "rk/main\"\n/ro" + "ot\nnet/wo" + "rk and /ro" + "oted are fine\n"
	got := tidyText("a", text)
	if len(got) != 3 || !strings.HasPrefix(got[0], "a:2: TO") || !strings.HasPrefix(got[1], "a:3: ") || !strings.HasPrefix(got[2], "a:4: ") {
		t.Errorf("got %q", got)
	}
}
