package architecture

import (
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"testing"
)

// deciding are the packages that decide: they take values and a time, and return values and reasons. Of a package with a thin
// shell around its decisions, the deciding files are named.
var deciding = []string{
	"internal/cluster",
	"internal/placement",
	"internal/tenure",
	"internal/steering",
	"internal/sim",
	"internal/broker/fleet",
	"internal/broker/rules",
	"internal/broker/choice",
	"internal/broker/watch",
	"internal/broker/lastgood/record.go",
	"internal/broker/lastgood/age.go",
	"internal/tenure/datagram/codec.go",
	"internal/tenure/datagram/envelope.go",
	"internal/tenure/datagram/exchange.go",
	"internal/tenure/datagram/window.go",
	"internal/tenure/datagram/allowance.go",
	"internal/tenure/datagram/arrival.go",
	"internal/verdict/machine.go",
	"internal/verdict/damping.go",
	"internal/verdict/verdict.go",
	"internal/store/reconfigure.go",
	"internal/guard/decide.go",
	"internal/address/plan.go",
	"internal/address/plan_routing.go",
	"internal/address/schedule.go",
	"internal/address/connections.go",
	"internal/address/tables.go",
	"internal/address/courses.go",
	"internal/broker/token",
	"internal/broker/grants",
	"internal/broker/sshgate/policy.go",
	"internal/broker/sshgate/names.go",
	"internal/broker/recording/recording.go",
	"internal/broker/recording/screen.go",
}

// acting are the files of a deciding package that act: what runs its decisions beside each other, and its command.
var acting = []string{
	"internal/sim/parallel.go",
	"internal/sim/command.go",
	"internal/sim/tell.go",
}

// impure are packages that what decides may not import, with the reason.
var impure = map[string]string{
	"context":          "nothing in it waits",
	"crypto/rand":      "randomness is passed in",
	"log":              "a decision returns its reason; who acts logs it",
	"log/slog":         "a decision returns its reason; who acts logs it",
	"net/http":         "it opens no socket",
	"os":               "it reads no file and no environment",
	"os/exec":          "it runs no program",
	"os/signal":        "it hears no signal",
	"runtime":          "it depends on nothing but its arguments",
	"sync":             "its values belong to their caller",
	"sync/atomic":      "its values belong to their caller",
	"syscall":          "it calls no kernel",
	"golang.org/x/sys": "it calls no kernel",
}

// pureParts are packages of which what decides may use only some names.
var pureParts = map[string]struct {
	allowed []string // if set, only these
	denied  []string
	why     string
}{
	"time":         {denied: []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep", "Local"}, why: "time is an argument"},
	"net":          {allowed: []string{"SplitHostPort", "JoinHostPort", "ParseMAC", "HardwareAddr"}, why: "it opens no socket and asks no resolver; addresses are netip"},
	"math/rand/v2": {allowed: []string{"Rand", "Source"}, why: "the source of randomness is passed in"},
	"fmt":          {denied: []string{"Print", "Printf", "Println"}, why: "it prints nothing"},
}

// decidePurely finds clocks, goroutines, channels, sockets, randomness, loggers and files in what decides.
func decidePurely(sources []source) []string {
	var findings []string
	for _, s := range sources {
		if s.test || slices.Contains(acting, s.path) || !slices.Contains(deciding, s.folder()) && !slices.Contains(deciding, s.path) {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(s.imports())) {
			for package_, why := range impure {
				if imported == package_ || isLibrary(package_) && within(imported, package_) {
					findings = append(findings, s.at(s.imports()[imported])+": imports "+imported+", but this decides: "+why)
				}
			}
			if spec := s.imports()[imported]; spec.Name != nil && spec.Name.Name == "." {
				findings = append(findings, s.at(spec)+": imports "+imported+" without its name, which hides what is used of it")
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if what := impurity(s, n); what != "" {
				findings = append(findings, s.at(n)+": "+what)
			}
			return true
		})
	}
	return findings
}

// impurity says what is wrong with one node of the syntax tree; empty if nothing is.
func impurity(s source, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine, but this decides: whoever acts has the goroutines"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "uses a channel, but this decides: it takes values and returns values"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "receives from a channel, but this decides: it takes values and returns values"
		}
	case *ast.SelectorExpr:
		name, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		part, limited := pureParts[s.importedAs(name.Name)]
		if limited && (slices.Contains(part.denied, n.Sel.Name) || part.allowed != nil && !slices.Contains(part.allowed, n.Sel.Name)) {
			return "uses " + name.Name + "." + n.Sel.Name + ", but this decides: " + part.why
		}
	}
	return ""
}

func TestDecidingIsPure(t *testing.T) { hold(t, decidePurely) }

// TestDecidingExists: a name in the list that is nowhere in the tree guards nothing.
func TestDecidingExists(t *testing.T) {
	there := map[string]bool{}
	for _, s := range tree(t) {
		there[s.path], there[path.Dir(s.path)] = true, true
	}
	for _, name := range slices.Concat(deciding, acting) {
		if !there[name] {
			t.Errorf("%s is to be pure, but does not exist", name)
		}
	}
}

func TestDecidingIsPureCanBreak(t *testing.T) {
	breaks(t, decidePurely, map[string]string{
		"internal/placement/a.go": `package placement
import (
	clock "time"
	"math/rand/v2"
	"log/slog"
	"net"
	"golang.org/x/sys/unix"
)
func f(r *rand.Rand) {
	_ = clock.Now()
	_ = clock.Second
	go f(nil)
	_ = rand.IntN(3)
	_, _ = net.Dial("tcp", "")
	_ = net.JoinHostPort("", "")
	var _ slog.Level
	_ = unix.Getpid
}`,
		"internal/tenure/a.go":         "package tenure\nfunc f(c chan int) { <-c; c <- 1; select {} }",
		"internal/placement/a_test.go": "package placement\nimport \"time\"\nvar now = time.Now()",
		"internal/verdict/runner.go":   "package verdict\nimport \"time\"\nvar now = time.Now()",
		"internal/verdict/damping.go":  "package verdict\nimport \"time\"\nfunc f(time struct{ Now int }) { _ = time.Now }",
	},
		"internal/placement/a.go:7: imports golang.org/x/sys/unix",
		"internal/placement/a.go:5: imports log/slog",
		"internal/placement/a.go:10: uses clock.Now",
		"internal/placement/a.go:12: starts a goroutine",
		"internal/placement/a.go:13: uses rand.IntN",
		"internal/placement/a.go:14: uses net.Dial",
		"internal/tenure/a.go:2: uses a channel",
		"internal/tenure/a.go:2: receives from a channel",
		"internal/tenure/a.go:2: uses a channel",
		"internal/tenure/a.go:2: uses a channel",
		"internal/verdict/damping.go:3: uses time.Now", // a parameter that hides the package is no excuse
	)
}
