package doctest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/agent"
	"github.com/holdfast/holdfast/internal/broker/gateway"
	"github.com/holdfast/holdfast/internal/cli"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/lab"
	"github.com/holdfast/holdfast/internal/sim"
)

// manuals are the manual pages of every command, by its words: "network pools pin". The program writes them itself.
func manuals(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	var out, faults bytes.Buffer
	code := cli.Run(t.Context(), cli.Deps{
		In: strings.NewReader(""), Out: &out, Err: &faults, Environment: func(string) string { return "" }, Now: time.Now,
		Commands: []*cobra.Command{agent.Command("test"), guard.Command(), gateway.Command("test"), lab.Command(), sim.Command()},
	}, []string{"man", dir})
	if code != 0 {
		t.Fatalf("writing the manual pages: %d, %s", code, faults.String())
	}
	names, err := filepath.Glob(filepath.Join(dir, "holdfast*.1"))
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// The synopsis has the words of the command apart; the file's name joins them with what may also be part of a word.
		command := strings.ReplaceAll(between(string(text), ".SH SYNOPSIS\n.B ", "\n"), `\-`, "-")
		words := strings.Fields(command)
		i := slices.IndexFunc(words, func(w string) bool { return !plainWord.MatchString(w) })
		if i >= 0 {
			words = words[:i]
		}
		tree[strings.Join(words[1:], " ")] = strings.ReplaceAll(string(text), `\-`, "-")
	}
	if len(tree) < 60 {
		t.Fatalf("only %d commands were found", len(tree))
	}
	return tree
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	inside, _, _ := strings.Cut(rest, to)
	return inside
}

var (
	plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
	inline    = regexp.MustCompile("`(holdfast [^`]+)`")
	flagWord  = regexp.MustCompile(`^--([a-z][a-z.-]*)`)
)

// topics are words behind "holdfast" that are no commands with a page.
var topics = []string{"exit-codes", "help", "man", "completion bash", "completion zsh", "completion fish"}

// misuse says what is wrong with a command line as a page shows it; empty if nothing is.
func misuse(line string, tree map[string]string) string {
	words := strings.Fields(line)[1:]
	path := ""
	for len(words) > 0 && plainWord.MatchString(words[0]) && hasBelow(tree, path) {
		path = strings.TrimSpace(path + " " + words[0])
		words = words[1:]
		if _, known := tree[path]; !known && !hasBelow(tree, path) && !slices.ContainsFunc(topics, func(s string) bool { return s == path || strings.HasPrefix(s, path+" ") }) {
			return fmt.Sprintf("there is no command %q", path)
		}
	}
	if path == "lab exec" {
		return ""
	}
	for _, w := range words {
		m := flagWord.FindStringSubmatch(w)
		if m == nil || m[1] == "output" || m[1] == "socket" || m[1] == "help" {
			continue
		}
		if manual, leaf := tree[path]; leaf && !strings.Contains(manual, "--"+m[1]) && !strings.Contains(tree["lab"], "--"+m[1]) {
			return fmt.Sprintf("%q has no flag --%s", path, m[1])
		}
	}
	return ""
}

// hasBelow reports whether a command has commands under it.
func hasBelow(tree map[string]string, path string) bool {
	for name := range tree {
		if path == "" || strings.HasPrefix(name, path+" ") {
			return true
		}
	}
	return false
}

// TestCommandsExist: whatever command and flag a page mentions is one of the program's.
func TestCommandsExist(t *testing.T) {
	tree := manuals(t)
	checked := 0
	check := func(where, line string) {
		checked++
		if _, behind, found := strings.Cut(line, " -- holdfast "); found { // lab exec MEMBER -- holdfast ...
			if fault := misuse("holdfast "+behind, tree); fault != "" {
				t.Errorf("%s: %s: %s", where, line, fault)
			}
		}
		if fault := misuse(line, tree); fault != "" {
			t.Errorf("%s: %s: %s", where, line, fault)
		}
	}
	for _, p := range pages(t) {
		for _, m := range inline.FindAllStringSubmatch(p.text, -1) {
			if !strings.Contains(m[1], "...") && !strings.Contains(m[1], "…") {
				check(p.path, m[1])
			}
		}
		for _, b := range p.blocks() {
			for _, line := range b.commands() {
				if strings.HasPrefix(line, "holdfast ") {
					check(fmt.Sprintf("%s:%d", b.page, b.line), line)
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("only %d command lines were found", checked)
	}
}

func TestCommandsExistCanBreak(t *testing.T) {
	tree := manuals(t)
	for line, fine := range map[string]bool{
		"holdfast status --check": true, "holdfast status --chek": false, "holdfast nod list": false, "holdfast node declare-dead n3": true, "holdfast node declare-ded n3": false,
		"holdfast network pools modify subnet0.pool0 --sc-ttl 5": true, "holdfast network pools modify subnet0.pool0 --sc-tl 5": false,
		"holdfast lab exec node1 -- ls --color": true, "holdfast exit-codes": true,
	} {
		if got := misuse(line, tree); (got == "") != fine {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// inTime bounds what a test waits for.
func inTime(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
