package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/identity"
)

func olderAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	server, err := api.ListenLocal(api.LocalOptions{Path: path, Node: holdfastv1connect.UnimplementedNodeHandler{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// TestViewsShowEverySetting: what can be set can be seen, under the same name and in the same order.
func TestViewsShowEverySetting(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	kinds := []kind{groupnetKind(), subnetKind(), poolKind(), ruleKind(), checkKind(), nodeKind(), clusterKind()}
	for _, k := range kinds {
		var want, got []string
		for _, setting := range k.settings {
			want = append(want, setting.Name)
		}
		entries := k.all(config)
		if len(entries) == 0 {
			t.Errorf("the test's configuration has no %s", k.noun)
			continue
		}
		for _, m := range entries[0].view {
			got = append(got, m.name)
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: settings are\n%q, shown are\n%q", k.noun, want, got)
		}
	}
}

// TestViewsShowWhatCanBeWrittenBack: every value that view shows is taken by modify, and changes nothing.
func TestViewsShowWhatCanBeWrittenBack(t *testing.T) {
	config, err := cluster.Parse("test", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	id, err := cluster.ParsePoolID(config, "groupnet0.subnet0.pool0")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range poolKind().all(config) {
		var edits []cluster.Edit
		for _, m := range e.view {
			if value := flat(m.value); value != "" && m.name != "name" {
				edits = append(edits, cluster.Edit{Setting: m.name, Op: cluster.Set, Value: value})
			}
		}
		again, err := cluster.ModifyPool(config, id, edits)
		if err != nil {
			t.Fatalf("what view shows is refused: %v", err)
		}
		if changes := cluster.Diff(config, again); len(changes) > 0 {
			t.Errorf("what view shows, written back, changes %v", changes)
		}
	}
}

func TestSettingFlags(t *testing.T) {
	root := newRoot(Deps{Environment: func(string) string { return "" }})
	for path, settings := range map[string][]cluster.Setting{
		"network pools modify":     cluster.PoolSettings(),
		"network subnets modify":   cluster.SubnetSettings(),
		"network groupnets modify": cluster.GroupnetSettings(),
		"network rules modify":     cluster.RuleSettings(),
		"network checks modify":    cluster.CheckSettings(),
		"node modify":              cluster.NodeSettings(),
		"cluster modify":           cluster.ClusterSettings(),
	} {
		cmd, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range settings {
			has := func(prefix string) bool { return cmd.Flags().Lookup(prefix+setting.Name) != nil }
			if has("") == setting.Fixed || has("add-") != setting.List || has("remove-") != setting.List || has("clear-") != (!setting.Fixed && !setting.Required) {
				t.Errorf("%s: flags of %s are wrong", path, setting.Name)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "no-agent-is-needed")
	if r := run(t, socket, testConfig, "validate", "-"); r.code != 0 || r.out != "standard input is valid\n" {
		t.Errorf("a valid file: %+v", r)
	}
	wrong := strings.ReplaceAll(strings.ReplaceAll(testConfig, "10.10.0.100-", "10.99.0.100-"), "alloc-method: dynamic", "alloc-metod: dynamic")
	golden(t, "validate-wrong", func() string {
		a, b := run(t, socket, wrong, "validate", "-"), run(t, socket, wrong, "validate", "-", "-o", "json")
		if a.code != exitFailed || b.code != exitFailed {
			t.Errorf("a wrong file ends with %d and %d, want 1", a.code, b.code)
		}
		return a.out + a.err + b.out
	}())
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, socket, "", "validate", big); r.code != exitFailed || !strings.Contains(r.err, "larger than 8 MiB") {
		t.Errorf("a huge file: %+v", r)
	}
	if r := run(t, socket, "", "validate", "/no/such"); r.code != exitFailed || !strings.Contains(r.err, "reading /no/such: no such file") {
		t.Errorf("a missing file: %+v", r)
	}
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	r := run(t, "", "", "init", "--cluster", "store1", "--node", "node1", "--dir", dir, "--address", "10.0.0.1", "--interface", "eth0")
	if r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	text, err := os.ReadFile(filepath.Join(dir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := cluster.Parse("cluster.yaml", text)
	if err != nil {
		t.Fatalf("init wrote a configuration that is refused: %v", err)
	}
	node, ok := config.NodeNamed("node1")
	if !ok || node.LNN != 1 || !slices.Equal(node.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
		t.Errorf("the first node is %+v", node)
	}
	if id, err := identity.Load(filepath.Join(dir, "identity")); err != nil || id.Cluster != "store1" {
		t.Errorf("the identity: %v", err)
	}
	if again := run(t, "", "", "init", "--cluster", "store1", "--node", "node1", "--dir", dir); again.code != exitFailed || !strings.Contains(again.err, "exists already") {
		t.Errorf("a second init: %+v", again)
	}
	second := filepath.Join(t.TempDir(), "node2")
	issue := []string{"identity", "issue", "node2", "--address", "10.0.0.2", "--out", second, "--authority", filepath.Join(dir, "identity")}
	if r := run(t, "", "", issue...); r.code != 0 {
		t.Fatalf("issue: %+v", r)
	}
	if _, err := identity.Load(second); err != nil {
		t.Errorf("the issued identity: %v", err)
	}
	if r := run(t, "", "", issue...); r.code != exitFailed {
		t.Errorf("a second issue: %+v", r)
	}
}

func TestInitFromFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	if r := run(t, "", testConfig, "init", "-f", "-", "--node", "node9", "--dir", dir); r.code != exitFailed || !strings.Contains(r.err, `no node "node9"`) {
		t.Errorf("a node that is not in the file: %+v", r)
	}
	if r := run(t, "", testConfig, "init", "-f", "-", "--node", "node2", "--dir", dir); r.code != 0 {
		t.Fatalf("init: %+v", r)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cluster.yaml")); err != nil || string(text) != testConfig {
		t.Errorf("the file was not kept as it was: %v", err)
	}
}

// TestCompletion asks as a shell does.
func TestCompletion(t *testing.T) {
	socket := agent(t, &fake{})
	for line, want := range map[string]string{
		"network pools view ":                    "groupnet0.subnet0.pool0",
		"network subnets modify ":                "groupnet0.subnet0",
		"network pools sc-suspend-nodes p ":      "node2",
		"network pools pin p ":                   "10.10.0.101",
		"node drain ":                            "node1",
		"plan --down ":                           "node2",
		"explain ":                               "cluster.lab",
		"network pools modify p --alloc-method ": "dynamic",
		"status --output ":                       "yaml",
		"network dns delegation --for ":          "coredns",
	} {
		args := append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Fields(line)...)
		if r := run(t, socket, "", append(args, "")...); !slices.Contains(strings.Split(r.out, "\n"), want) {
			t.Errorf("holdfast %s<tab> offers\n%s, want %s among it", line, r.out, want)
		}
	}
	if r := run(t, filepath.Join(t.TempDir(), "nobody"), "", cobra.ShellCompNoDescRequestCmd, "node", "drain", ""); r.code != 0 {
		t.Errorf("completion without an agent: %+v", r)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "", "", "completion", shell); r.code != 0 || !strings.Contains(r.out, "holdfast") {
			t.Errorf("completion %s: exit code %d", shell, r.code)
		}
	}
}

func TestManuals(t *testing.T) {
	dir := t.TempDir()
	if r := run(t, "", "", "man", dir); r.code != 0 {
		t.Fatalf("man: %+v", r)
	}
	page, err := os.ReadFile(filepath.Join(dir, "holdfast-network-pools-modify.1"))
	if err != nil {
		t.Fatal(err)
	}
	everyCommand(func(words []string, cmd *cobra.Command) {
		name := strings.Join(append([]string{"holdfast"}, words...), "-") + ".1"
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil && (cmd.Runnable() || cmd.HasSubCommands()) && cmd.Name() != "help" {
			t.Errorf("no page for %s: %v", cmd.CommandPath(), err)
		}
	})
	for _, want := range []string{`.TH "HOLDFAST-NETWORK-POOLS-MODIFY" 1`, `\-\-sc\-connect\-policy`, ".SH EXIT STATUS"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("the pages' syntax is not checked: the program man is not installed (Debian package man-db)")
	}
	command := exec.Command("man", "--warnings", "-l", filepath.Join(dir, "holdfast.1"))
	command.Env = append(os.Environ(), "MANROFFSEQ=", "LC_ALL=C.UTF-8", "PAGER=cat")
	var warnings strings.Builder
	command.Stderr = &warnings
	if err := command.Run(); err != nil || warnings.Len() > 0 {
		t.Errorf("man reads the page with %v: %s", err, warnings.String())
	}
}

// TestEveryCommandIsDocumented: a summary for each, and no command without arguments that are checked.
func TestEveryCommandIsDocumented(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" || cmd.Name() == "help" {
			return // cobra's own
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s has the summary %q; want one, without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Runnable() && cmd.Args == nil {
			t.Errorf("%s does not check its arguments", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(Deps{Environment: func(string) string { return "" }}))
}

func TestExitCodesAreDocumented(t *testing.T) {
	if r := run(t, "", "", "help", "exit-codes"); r.code != 0 || !strings.Contains(r.out, "4  done, but not everywhere") {
		t.Errorf("help exit-codes: %+v", r)
	}
	var said struct {
		ExitCodes []struct {
			Code    int
			Meaning string
		} `json:"exit_codes"`
	}
	r := run(t, "", "", "exit-codes", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &said); err != nil || len(said.ExitCodes) != 5 || said.ExitCodes[4].Code != 4 || !strings.Contains(said.ExitCodes[2].Meaning, "cannot be read") {
		t.Errorf("exit-codes -o json: %v %+v", err, r)
	}
	if r := run(t, "", "", "exit-codes"); r.out != exitCodesText {
		t.Errorf("exit-codes: %+v", r)
	}
	if r := run(t, "", "", "version", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"commit": "abc123"`) {
		t.Errorf("version: %+v", r)
	}
}

type coded int

func (coded) Error() string   { return "" }
func (c coded) ExitCode() int { return int(c) }

// TestForeignCommands: a command of another package passes on an exit code, silently if it has nothing to say.
func TestForeignCommands(t *testing.T) {
	var out, errs strings.Builder
	deps := Deps{Out: &out, Err: &errs, Environment: func(string) string { return "" }, Commands: []*cobra.Command{
		{Use: "exec", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return coded(42) }},
	}}
	if code := Run(t.Context(), deps, []string{"exec", "x"}); code != 42 || errs.Len() > 0 {
		t.Errorf("exit code %d, said %q; want 42 and nothing", code, errs.String())
	}
	if code := Run(t.Context(), deps, []string{"exec"}); code != exitUsage {
		t.Errorf("without its argument: exit code %d, want 2", code)
	}
}

func TestColourOnlyOnATerminal(t *testing.T) {
	socket := agent(t, &fake{})
	if r := run(t, socket, "", "status"); strings.Contains(r.out+r.err, "\x1b") {
		t.Error("escape sequences without a terminal")
	}
	for _, c := range []struct {
		noColor string
		want    bool
	}{{"", true}, {"1", false}} {
		var out strings.Builder
		Run(t.Context(), Deps{Out: &out, Err: &out, OutTerminal: true, Now: testNow, Environment: func(name string) string {
			return map[string]string{"NO_COLOR": c.noColor, "HOLDFAST_SOCKET": socket}[name]
		}}, []string{"status"})
		if strings.Contains(out.String(), "\x1b[31mdown\x1b[0m") != c.want {
			t.Errorf("NO_COLOR=%q: colours %v, want %v", c.noColor, !c.want, c.want)
		}
	}
}

// TestProgress: nothing for the first second, then what is being waited for, and nothing left behind.
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		lasts    time.Duration
		want     string
	}{
		{true, 900 * time.Millisecond, ""},
		{true, 2500 * time.Millisecond, "\r\x1b[Kdraining ... 1s\r\x1b[Kdraining ... 2s\r\x1b[K"},
		{false, 2500 * time.Millisecond, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			var out strings.Builder
			s := &session{Deps: Deps{Err: &out, ErrTerminal: c.terminal, Now: time.Now}}
			done := s.progress("draining")
			time.Sleep(c.lasts)
			done()
			if out.String() != c.want {
				t.Errorf("terminal %v, %v: wrote %q, want %q", c.terminal, c.lasts, out.String(), c.want)
			}
		})
	}
}
