package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors says which packages of ours each package may import. Imports point down only, so a package may name only those
// that stand further down in this list. A package that is not here may not exist.
var floors = []struct {
	folder string
	may    []string
}{
	{"cmd/holdfast", []string{"internal/cli", "internal/agent", "internal/broker/gateway", "internal/guard", "internal/lab", "internal/sim"}},

	// One node: it assembles the rooms and owns their lifetimes.
	{"internal/agent", []string{
		"internal/steering", "internal/address", "internal/dns", "internal/broker", "internal/broker/door", "internal/broker/settings", "internal/broker/grants", "internal/broker/sshgate", "internal/broker/token", "internal/broker/choice", "internal/broker/watch", "internal/broker/poll", "internal/broker/rules", "internal/broker/fleet", "internal/load", "internal/verdict", "internal/verdict/probe", "internal/tenure/datagram", "internal/tenure", "internal/placement",
		"internal/store", "internal/identity", "internal/api", "internal/api/holdfastv1", "internal/guard", "internal/problem", "internal/cluster",
		"internal/linux/link", "internal/linux/neigh", "internal/linux/sockdiag", "internal/linux/tickle", "internal/linux/arrival", "internal/linux/counters", "internal/linux/boottime", "internal/linux/threads",
	}},
	// The commands know only the contract, and the operator's nouns for the files that they check and edit. Identity makes
	// the first certificates, before there is an agent that could be asked; recordings are files that an operator looks at.
	{"internal/cli", []string{"internal/api", "internal/api/holdfastv1", "internal/api/holdfastv1/holdfastv1connect", "internal/identity", "internal/cluster", "internal/broker/recording", "internal/broker/client"}},
	// The lab runs the binary and looks at it from outside. It reads the store to see what the agents have written.
	{"internal/lab", []string{"internal/store", "internal/identity", "internal/cluster", "internal/linux/threads"}},
	// The simulator plays what decides, in virtual time. Of address and guard it uses what is pure.
	{"internal/sim", []string{"internal/guard", "internal/steering", "internal/address", "internal/tenure", "internal/placement", "internal/cluster"}},

	// The guard: a process of its own, and the agent's line to it. It knows the kernel and nothing else.
	{"internal/guard", []string{"internal/linux/link", "internal/linux/nft", "internal/linux/boottime", "internal/linux/threads"}},

	// What should change next: the deciding packages put together, still pure.
	{"internal/steering", []string{"internal/tenure", "internal/placement", "internal/cluster"}},

	// The services. They never know each other.
	{"internal/address", []string{"internal/placement", "internal/verdict", "internal/load", "internal/tenure", "internal/problem", "internal/cluster", "internal/linux/link", "internal/linux/neigh", "internal/linux/tickle"}},
	{"internal/dns", []string{"internal/placement", "internal/verdict", "internal/load", "internal/tenure", "internal/problem", "internal/cluster", "internal/linux/udp"}},

	// The user's side of a session.
	{"internal/broker/client", []string{"internal/broker/sshgate"}},

	// The broker's edges: its settings, and where requesters of other machines come. What they decide by is grants.
	{"internal/broker/door", []string{"internal/broker/settings", "internal/broker/sshgate", "internal/api"}},
	{"internal/broker/settings", []string{"internal/broker/grants", "internal/broker/token"}},
	{"internal/broker/grants", []string{"internal/broker/token"}},

	// The broker itself: it watches, keeps and launches by what the rooms below decide, and knows nothing of the cluster.
	{"internal/broker", []string{
		"internal/broker/poll", "internal/broker/lastgood", "internal/broker/watch", "internal/broker/choice", "internal/broker/rules", "internal/broker/fleet",
		"internal/broker/token", "internal/broker/audit", "internal/broker/pin", "internal/broker/wholefile", "internal/problem", "internal/linux/boottime",
	}},
	// The broker's parts: what it knows of fleets, what operators say, whom it picks. Polling and files are edges that do not decide.
	{"internal/broker/poll", []string{"internal/broker/fleet", "internal/broker/pin"}},
	{"internal/broker/lastgood", []string{"internal/broker/fleet", "internal/broker/wholefile", "internal/problem", "internal/linux/boottime"}},
	{"internal/broker/watch", []string{"internal/broker/fleet", "internal/problem"}},
	{"internal/broker/choice", []string{"internal/broker/rules", "internal/broker/fleet"}},
	{"internal/broker/rules", []string{"internal/broker/fleet", "internal/problem"}},

	// The process of a session gateway: its configuration and its command.
	{"internal/broker/gateway", []string{"internal/broker/member", "internal/broker/pin", "internal/broker/fleet", "internal/linux/machine", "internal/broker/sshgate", "internal/broker/token", "internal/broker/recording", "internal/broker/audit", "internal/broker/wholefile"}},
	// A gateway as a member of a fleet.
	{"internal/broker/member", []string{"internal/broker/fleet", "internal/broker/pin", "internal/broker/wholefile"}},
	// The SSH session gateway, and what it rests on. It knows no broker, only what brokers sign.
	{"internal/broker/sshgate", []string{"internal/broker/token", "internal/broker/recording", "internal/broker/audit", "internal/broker/wholefile"}},
	{"internal/broker/token", nil},
	{"internal/broker/recording", nil},
	{"internal/broker/audit", nil},
	// For the broker and the gateway: what is known of fleets, who is who by certificate, files that are whole or the older ones.
	{"internal/broker/fleet", nil},
	{"internal/broker/pin", []string{"internal/broker/wholefile"}},
	{"internal/broker/wholefile", nil},

	// What they rest on. Load hands its figures over as placement reads them.
	{"internal/load", []string{"internal/placement", "internal/problem", "internal/cluster"}},
	{"internal/verdict", []string{"internal/verdict/probe", "internal/problem", "internal/cluster"}},
	{"internal/verdict/probe", []string{"internal/verdict/oncrpc", "internal/cluster"}},
	{"internal/verdict/oncrpc", nil},
	{"internal/tenure/datagram/datagramtest", []string{"internal/tenure/datagram", "internal/tenure"}},
	{"internal/tenure/datagram", []string{"internal/tenure", "internal/linux/udp", "internal/linux/boottime"}},
	{"internal/tenure", []string{"internal/problem", "internal/cluster"}},
	{"internal/placement", []string{"internal/problem", "internal/cluster"}},
	{"internal/store/storetest", []string{"internal/store"}},
	{"internal/store", []string{"internal/problem"}},
	{"internal/identity", []string{"internal/problem"}},
	{"internal/api", []string{"internal/api/holdfastv1/holdfastv1connect", "internal/api/holdfastv1"}},
	{"internal/api/holdfastv1/holdfastv1connect", []string{"internal/api/holdfastv1"}},
	{"internal/api/holdfastv1", nil},

	// The ground: these know nothing of the rest.
	{"internal/linux/link/linktest", []string{"internal/linux/link"}},
	{"internal/linux/link", nil},
	{"internal/linux/neigh/neightest", []string{"internal/linux/neigh"}},
	{"internal/linux/neigh", nil},
	{"internal/linux/tickle/tickletest", []string{"internal/linux/tickle"}},
	{"internal/linux/tickle", nil},
	{"internal/linux/arrival", nil},
	{"internal/linux/sockdiag", nil},
	{"internal/linux/nft", nil},
	{"internal/linux/counters", nil},
	{"internal/linux/machine", nil},
	{"internal/linux/threads", nil},
	{"internal/linux/udp", nil},
	{"internal/linux/boottime", nil},
	{"internal/problem", nil},
	{"internal/cluster/clustertest", []string{"internal/cluster"}},
	{"internal/cluster", nil},

	// Tests in virtual time are run by this one.
	{"internal/bubble", nil},

	// Rules and examples as tests; they have no code of their own.
	{"internal/architecture", nil},
	{"internal/doctest", nil},
	{"scripts/testreport", nil},
	{"scripts/benchtable", nil},
}

// fences says which folders, with what is below them, may import a library or a part of the standard library. Every
// library that the product's packages import is here.
var fences = []struct {
	library string
	may     []string
	why     string
}{
	{"github.com/vishvananda/netlink", []string{"internal/linux"}, "only internal/linux touches the kernel's network"},
	{"github.com/mdlayher/packet", []string{"internal/linux"}, "only internal/linux touches the kernel's network"},
	{"golang.org/x/net/bpf", []string{"internal/linux"}, "only internal/linux touches the kernel's network"},
	{"go.etcd.io", []string{"internal/store"}, "etcd is behind the store's interface"},
	{"google.golang.org/grpc", []string{"internal/store"}, "etcd's protocol is behind the store's interface"},
	{"go.uber.org/zap", []string{"internal/store"}, "it is etcd's logger; ours is log/slog"},
	{"github.com/goccy/go-yaml", []string{"internal/cluster", "internal/lab", "internal/broker/gateway", "internal/broker/settings"}, "the operator's file is read by internal/cluster; the lab and a gateway, which need no cluster, read their own"},
	{"connectrpc.com/connect", []string{"internal/api", "internal/agent", "internal/cli"}, "the contract is internal/api; the agent serves it and the commands call it"},
	{"google.golang.org/protobuf", []string{"internal/api", "internal/agent", "internal/cli"}, "messages stay at the edges; inside are our own types"},
	{"github.com/spf13/cobra", []string{"cmd/holdfast", "internal/cli", "internal/agent", "internal/guard", "internal/lab", "internal/sim", "internal/broker/gateway"}, "commands are defined where they are run"},
	{"github.com/spf13/pflag", []string{"internal/cli"}, "commands are defined where they are run"},
	{"golang.org/x/net/dns/dnsmessage", []string{"internal/dns", "internal/verdict/probe", "internal/agent"}, "DNS on the wire is the DNS server's and the DNS check's; the agent names types to explain, and carries replies from one to the other"},
	{"github.com/prometheus/client_golang", []string{"internal/agent", "internal/api", "internal/address", "internal/broker", "internal/dns", "internal/load", "internal/store", "internal/tenure/datagram", "internal/verdict"}, "what decides counts nothing"},
	{"github.com/google/renameio", []string{"internal/agent"}, "two agents may write a file at the same moment; whoever is a file's only writer has internal/broker/wholefile"},
	{"golang.org/x/net/ipv4", []string{"internal/lab"}, "the probes of the lab send and read many packets at once"},
	{"golang.org/x/sys", []string{"internal/linux", "internal/agent", "internal/guard", "internal/api", "internal/dns", "internal/lab", "internal/verdict/probe", "internal/broker/recording", "internal/broker/client", "cmd/holdfast"}, "system calls beyond package os stay at the edges"},
	{"golang.org/x/crypto", []string{"internal/tenure/datagram", "internal/broker/sshgate", "internal/broker/gateway", "internal/broker/settings", "internal/broker/door", "internal/broker/client", "internal/cli", "internal/agent"}, "what goes between nodes is TLS, which crypto/tls has; only single datagrams are sealed by hand, and the gateway speaks SSH"},
	{"filippo.io/age", []string{"internal/broker/recording"}, "recordings are encrypted in one place"},
	{"github.com/google/go-cmp", []string{"internal/store/storetest"}, "it is for tests"},

	{"net/http", []string{"internal/api", "internal/agent", "internal/lab", "internal/verdict/probe", "internal/broker/poll", "internal/broker/member", "internal/broker/gateway"}, "HTTP is for the API, for checks, for fleets of gateways and those who ask them, for a gateway's metrics, and for the lab"},
	{"os/exec", []string{"internal/broker/client", "internal/address", "internal/lab", "internal/verdict/probe"}, "programs are run as hooks, as checks and by the lab; a user's session is his own ssh"},
	{"C", nil, "the binary is built without cgo"},
	{"unsafe", []string{"internal/linux", "internal/api", "internal/lab"}, "only what speaks to the kernel may look at bytes as structures: links, the credentials of a socket, the lab's wires"},
	{"log", []string{"internal/api"}, "log with the *slog.Logger that is passed in; net/http takes only the old kind, made from that"},
	{"io/ioutil", nil, "it is superseded by io and os"},
	{"math/rand", nil, "use math/rand/v2"},
}

// keepFloors finds imports that point up or sideways.
func keepFloors(sources []source) []string {
	rank, may := map[string]int{}, map[string][]string{}
	for i, f := range floors {
		rank[f.folder], may[f.folder] = i, f.may
	}
	var findings []string
	for _, s := range sources {
		if s.test && !strings.HasPrefix(s.path, "internal/") || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		if _, known := rank[s.folder()]; !known {
			findings = append(findings, s.path+": package "+s.folder()+" has no floor: give it one in internal/architecture/floors_test.go, and a room in ARCHITECTURE.md")
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(s.imports())) {
			target, ours := strings.CutPrefix(imported, module)
			if ours && !slices.Contains(may[s.folder()], target) {
				findings = append(findings, fmt.Sprintf("%s: %s may not import %s", s.at(s.imports()[imported]), s.folder(), target))
			}
		}
	}
	return findings
}

// keepFences finds imports of libraries where they do not belong.
func keepFences(sources []source) []string {
	var findings []string
	for _, s := range sources {
		if strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "test/") || s.generated {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(s.imports())) {
			if strings.HasPrefix(imported, module) {
				continue
			}
			fenced := false
			for _, fence := range fences {
				if imported != fence.library && (!strings.HasPrefix(imported, fence.library+"/") || !isLibrary(fence.library)) {
					continue
				}
				fenced = true
				if !slices.ContainsFunc(fence.may, func(folder string) bool { return within(s.folder(), folder) }) {
					findings = append(findings, fmt.Sprintf("%s: %s may not import %s: %s", s.at(s.imports()[imported]), s.folder(), imported, fence.why))
				}
			}
			if !fenced && isLibrary(imported) {
				findings = append(findings, fmt.Sprintf("%s: the library %s has no fence: say in internal/architecture/floors_test.go who may import it, and why", s.at(s.imports()[imported]), imported))
			}
		}
	}
	return findings
}

// keepBubbles finds tests in virtual time that would bring the race detector down.
func keepBubbles(sources []source) []string {
	var findings []string
	for _, s := range sources {
		if s.folder() == "internal/bubble" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "Test" {
				if name, ok := selector.X.(*ast.Ident); ok && s.importedAs(name.Name) == "testing/synctest" {
					findings = append(findings, s.at(n)+": use internal/bubble, which says why")
				}
			}
			return true
		})
	}
	return findings
}

// isLibrary tells a library from the standard library: its first element has a dot.
func isLibrary(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

func TestFloors(t *testing.T)  { hold(t, keepFloors) }
func TestFences(t *testing.T)  { hold(t, keepFences) }
func TestBubbles(t *testing.T) { hold(t, keepBubbles) }

// TestFloorsPointDown: the table itself allows only arrows that point down, so that no cycle of rooms can be written into it.
func TestFloorsPointDown(t *testing.T) {
	below := map[string]bool{}
	for _, f := range slices.Backward(floors) {
		for _, target := range f.may {
			if !below[target] {
				t.Errorf("%s may import %s, which does not stand below it", f.folder, target)
			}
		}
		below[f.folder] = true
	}
}

func TestFloorsCanBreak(t *testing.T) {
	breaks(t, keepFloors, map[string]string{
		"internal/cluster/a.go":      "package cluster\nimport _ \"" + module + "internal/agent\"",
		"internal/cluster/a_test.go": "package cluster\nimport _ \"" + module + "internal/agent\"",
		"internal/dns/a.go":          "package dns\nimport _ \"" + module + "internal/address\"",
		"internal/dns/b.go":          "package dns\nimport _ \"" + module + "internal/cluster\"",
		"internal/helpers/a.go":      "package helpers",
	},
		"internal/cluster/a.go:2: internal/cluster may not import internal/agent",
		"internal/dns/a.go:2: internal/dns may not import internal/address",
		"internal/helpers/a.go: package internal/helpers has no floor")
}

func TestFencesCanBreak(t *testing.T) {
	breaks(t, keepFences, map[string]string{
		"internal/address/a.go":      "package address\nimport _ \"github.com/vishvananda/netlink/nl\"",
		"internal/address/a_test.go": "package address\nimport _ \"github.com/vishvananda/netlink\"",
		"internal/linux/link/a.go":   "package link\nimport _ \"github.com/vishvananda/netlink\"",
		"internal/dns/a.go":          "package dns\nimport (\n_ \"log\"\n_ \"log/slog\"\n)",
		"internal/load/a.go":         "package load\nimport _ \"github.com/sirupsen/logrus\"",
		"internal/store/a.go":        "package store\nimport _ \"C\"",
	},
		"internal/address/a.go:2: internal/address may not import github.com/vishvananda/netlink/nl",
		"internal/dns/a.go:3: internal/dns may not import log",
		"internal/load/a.go:2: the library github.com/sirupsen/logrus has no fence",
		"internal/store/a.go:2: internal/store may not import C")
}
