package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/holdfast/holdfast/internal/api"
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only differences that you understand")

// agent serves f on a real socket and returns its path.
func agent(t *testing.T, f *fake) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	server, err := api.ListenLocal(api.LocalOptions{Path: path, Node: f, Broker: f, Logger: slog.New(slog.DiscardHandler)})
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

// result is how one command line ended.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, socket, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), Deps{
		In: strings.NewReader(in), Out: &out, Err: &errs, Now: func() time.Time { return now },
		Environment: func(name string) string {
			if name == "HOLDFAST_SOCKET" {
				return socket
			}
			return ""
		},
		Build: Build{Version: "1.0.0", Commit: "abc123", Date: "2026-11-05"},
	}, args)
	return result{code, out.String(), errs.String()}
}

// TestOutput holds what every command prints, in every format, against testdata/golden. The socket's path is replaced.
func TestOutput(t *testing.T) {
	for _, line := range []string{
		"status", "status --leases", "problems list", "node list", "node view node2", "cluster view",
		"network interfaces list", "network interfaces list --within groupnet0.subnet0 --node 1",
		"network groupnets list", "network groupnets view groupnet0",
		"network subnets list", "network subnets view subnet0",
		"network pools list", "network pools view groupnet0.subnet0.pool0",
		"network rules list", "network rules view subnet0.pool0.rule0",
		"network checks list", "network checks view subnet0.pool0.web",
		"network pools status", "network pools size groupnet0.subnet0.pool0 --clients 600",
		"network pools modify groupnet0.subnet0.pool0 --sc-ttl 5", "network pools modify groupnet0.subnet0.pool0 --sc-ttl 5 --dry-run",
		"network dns delegation cluster.lab --for unbound", "network dns check", "network dns check cluster.lab", "explain cluster.lab a", "explain --event 2.8", "plan --down node2", "events", "top -n 2",
		"diff -", "apply -", "get config",
	} {
		name := strings.NewReplacer(" ", "-", "--", "-", ".", "-").Replace(line)
		t.Run(name, func(t *testing.T) {
			socket := agent(t, &fake{})
			var b strings.Builder
			for _, format := range []string{"table", "json", "yaml"} {
				args := append(strings.Fields(line), "--output", format)
				r := run(t, socket, testConfig, args...)
				fmt.Fprintf(&b, "$ holdfast %s\n%s", strings.Join(args, " "), r.out)
				if r.err != "" {
					fmt.Fprintf(&b, "-- on standard error\n%s", r.err)
				}
				fmt.Fprintf(&b, "-- exit code %d\n\n", r.code)
				if format == "json" && r.code == 0 {
					checkJSON(t, r.out)
				}
			}
			golden(t, name, strings.ReplaceAll(b.String(), socket, "SOCKET"))
		})
	}
}

// checkJSON takes one document or one on each line.
func checkJSON(t *testing.T, text string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	for decoder.More() {
		var v any
		if err := decoder.Decode(&v); err != nil {
			t.Fatalf("the output is not JSON: %v", err)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with go test ./internal/cli -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("output differs from %s (-want +got):\n%s", path, diff)
	}
}

// TestRequests says what each changing command asks of the agent.
func TestRequests(t *testing.T) {
	waited := &pb.ChangeOptions{WaitMs: 10000}
	pool := "groupnet0.subnet0.pool0"
	set := func(setting, value string) *pb.Edit { return &pb.Edit{Setting: setting, Value: value} }
	for _, c := range []struct {
		line string
		want proto.Message
	}{
		// The commands as written in the specification, in both spellings of a flag.
		{"network subnets modify groupnet0.subnet0 --sc-service-name=cluster-ns1.company.com --sc-service-addrs=10.10.0.4-10.10.0.6",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_subnet, Id: "groupnet0.subnet0", Options: waited, Edits: []*pb.Edit{
				set("sc-service-name", "cluster-ns1.company.com"), set("sc-service-addrs", "10.10.0.4-10.10.0.6")}}},
		{"network subnets modify groupnet0.subnet0 --sc-service-name cluster-ns1.company.com --sc-service-addrs 10.10.0.4-10.10.0.6 --dry-run",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_subnet, Id: "groupnet0.subnet0", Options: &pb.ChangeOptions{WaitMs: 10000, DryRun: true}, Edits: []*pb.Edit{
				set("sc-service-name", "cluster-ns1.company.com"), set("sc-service-addrs", "10.10.0.4-10.10.0.6")}}},
		{"network pools modify groupnet0.subnet0.pool0 --sc-connect-policy round_robin --sc-dns-zone cluster.company.com",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_pool, Id: pool, Options: waited, Edits: []*pb.Edit{
				set("sc-connect-policy", "round_robin"), set("sc-dns-zone", "cluster.company.com")}}},
		{"network pools modify groupnet0.subnet0.pool0 --sc-connect-policy=round_robin --sc-dns-zone=cluster.company.com --no-wait",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_pool, Id: pool, Options: &pb.ChangeOptions{WaitMs: 10000, NoWait: true}, Edits: []*pb.Edit{
				set("sc-connect-policy", "round_robin"), set("sc-dns-zone", "cluster.company.com")}}},
		{"network subnets modify groupnet0.subnet0 --clear-sc-service-addrs",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_subnet, Id: "groupnet0.subnet0", Options: waited, Edits: []*pb.Edit{
				{Setting: "sc-service-addrs", Op: pb.Edit_clear}}}},
		{"network subnets modify subnet0 --add-sc-service-addrs 10.10.0.7 --remove-sc-service-addrs=10.10.0.4 --add-sc-service-addrs 10.10.0.8 --wait 1m",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_subnet, Id: "subnet0", Options: &pb.ChangeOptions{WaitMs: 60000}, Edits: []*pb.Edit{
				{Setting: "sc-service-addrs", Op: pb.Edit_add, Value: "10.10.0.7"}, {Setting: "sc-service-addrs", Op: pb.Edit_remove, Value: "10.10.0.4"},
				{Setting: "sc-service-addrs", Op: pb.Edit_add, Value: "10.10.0.8"}}}},
		{"network pools modify subnet0.pool0 --ifaces 1:eth0 --ifaces 2:eth0,3:eth0 --clear-sc-ttl", // a list set twice is the whole
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_pool, Id: "subnet0.pool0", Options: waited, Edits: []*pb.Edit{
				set("ifaces", "1:eth0,2:eth0,3:eth0"), {Setting: "sc-ttl", Op: pb.Edit_clear}}}},
		{"network groupnets modify groupnet0 --allow-wildcard-subdomains false",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_groupnet, Id: "groupnet0", Options: waited, Edits: []*pb.Edit{set("allow-wildcard-subdomains", "false")}}},
		{"network subnets create groupnet0.subnet1 --cidr fd00::/64",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_subnet, Verb: pb.ModifyRequest_create, Id: "groupnet0.subnet1", Options: waited, Edits: []*pb.Edit{set("cidr", "fd00::/64")}}},
		{"network pools delete groupnet0.subnet0.pool0", &pb.ModifyRequest{ObjectKind: pb.ModifyRequest_pool, Verb: pb.ModifyRequest_delete, Id: pool, Options: waited}},
		{"network rules create groupnet0.subnet0.pool0.r --interface ext-*",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_rule, Verb: pb.ModifyRequest_create, Id: pool + ".r", Options: waited, Edits: []*pb.Edit{set("interface", "ext-*")}}},
		{"network checks create subnet0.pool0.nfs --kind rpc --port 2049",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_check, Verb: pb.ModifyRequest_create, Id: "subnet0.pool0.nfs", Options: waited, Edits: []*pb.Edit{set("kind", "rpc"), set("port", "2049")}}},
		{"cluster modify --sc-server-ttl 60", &pb.ModifyRequest{Options: waited, Edits: []*pb.Edit{set("sc-server-ttl", "60")}}},
		{"node create node3 --lnn 3 --interfaces eth0",
			&pb.ModifyRequest{ObjectKind: pb.ModifyRequest_node, Verb: pb.ModifyRequest_create, Id: "node3", Options: waited, Edits: []*pb.Edit{set("lnn", "3"), set("interfaces", "eth0")}}},
		{"network pools rebalance-ips groupnet0.subnet0.pool0", &pb.RebalancePoolRequest{Pool: pool, Options: waited}},
		{"network pools rebalance-ips --all", &pb.RebalancePoolRequest{All: true, Options: waited}},
		{"network subnets rebalance-ssips subnet0", &pb.RebalanceServiceAddressesRequest{Subnet: "subnet0", Options: waited}},
		{"network pools sc-suspend-nodes groupnet0.subnet0.pool0 1 node2", &pb.SuspendNodesRequest{Pool: pool, Nodes: []string{"1", "node2"}, Options: waited}},
		{"network pools sc-resume-nodes groupnet0.subnet0.pool0 2", &pb.ResumeNodesRequest{Pool: pool, Nodes: []string{"2"}, Options: waited}},
		{"network pools pin groupnet0.subnet0.pool0 10.10.0.100 2:eth0", &pb.PinAddressRequest{Pool: pool, Address: "10.10.0.100", Member: "2:eth0", Options: waited}},
		{"network pools unpin groupnet0.subnet0.pool0 10.10.0.100", &pb.UnpinAddressRequest{Pool: pool, Address: "10.10.0.100", Options: waited}},
		{"node drain node2", &pb.DrainNodeRequest{Node: "node2", Options: waited}},
		{"node declare-dead node3 4 --reason fire --yes", &pb.DeclareDeadRequest{Nodes: []string{"node3", "4"}, Reason: "fire", Options: waited}},
		{"node declare-dead 3-4 --reason fire --force --force-store --dry-run", &pb.DeclareDeadRequest{Nodes: []string{"3-4"}, Reason: "fire",
			Force: true, ForceStore: true, Options: &pb.ChangeOptions{WaitMs: 10000, DryRun: true}}},
		{"node undrain 2 --dry-run", &pb.UndrainNodeRequest{Node: "2", Options: &pb.ChangeOptions{WaitMs: 10000, DryRun: true}}},
		{"apply - --expect-revision 42", &pb.ApplyConfigRequest{Name: "standard input", Yaml: testConfig, ExpectedRevision: 42, Options: waited}},
		{"diff -", &pb.ApplyConfigRequest{Name: "standard input", Yaml: testConfig, Options: &pb.ChangeOptions{DryRun: true}}},
		{"plan --down node2,3", &pb.PlanDownRequest{Nodes: []string{"node2", "3"}}},
		{"plan --down node2 node3", &pb.PlanDownRequest{Nodes: []string{"node2", "node3"}}},
		{"explain --event 12", &pb.ExplainRequest{Event: "12"}},
		{"status --leases", &pb.LeasesRequest{}},
		{"explain cluster.lab aaaa", &pb.ExplainRequest{Subject: "cluster.lab", Type: "AAAA"}},
		{"network dns check cluster.lab files.lab", &pb.CheckDelegationRequest{Zones: []string{"cluster.lab", "files.lab"}}},
		{"network dns delegation --separate-names", &pb.DelegationRequest{Flavour: "bind", SeparateNames: true}},
		{"network pools size --nodes 4 --addresses 12 --clients 600 --within 5", &pb.PoolSizeRequest{Nodes: 4, Addresses: 12, Clients: 600, WithinPercent: 5}},
		{"network pools status subnet0.pool0", &pb.PoolStatusRequest{Pool: "subnet0.pool0"}},
		{"events --follow --since 10m", &pb.EventsRequest{Follow: true, Since: before(10 * time.Minute)}},
		{"top -n 1 --interval 2s", &pb.TopRequest{IntervalMs: 2000}},
	} {
		t.Run(c.line, func(t *testing.T) {
			f := &fake{}
			if r := run(t, agent(t, f), testConfig, strings.Fields(c.line)...); r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.err)
			}
			if diff := cmp.Diff(c.want, f.asked, protocmp.Transform()); diff != "" {
				t.Errorf("the agent was asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWrongCommandLines: each ends with code 2, and its message names what is wrong.
func TestWrongCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"stauts":                             `did you mean status?`,
		"network pool list":                  `holdfast network has no subcommand "pool"; did you mean pools?`,
		"status now":                         `takes no argument`,
		"explain":                            `needs SUBJECT [TYPE]`,
		"explain a b c":                      `"c" is one too many`,
		"explain --event 2.17 node2":         `takes no argument`,
		"status --check --leases":            `--check and --leases`,
		"status --nonsense":                  `--nonsense`,
		"status --output xml":                `write table, json or yaml`,
		"network pools modify subnet0.pool0": `say what to change`,
		"network pools modify p --sc-conect-policy x":           `--sc-conect-policy`,
		"network pools modify p --sc-ttl 1 --clear-sc-ttl":      `sc-ttl`,
		"network pools modify p --sc-ttl 1 --wait 0s":           `--no-wait`,
		"network pools modify p --sc-ttl 1 --wait 3s --no-wait": `no-wait`,
		"network pools modify p --wait soon":                    `soon`,
		"network subnets create subnet1":                        `cidr`,
		"network pools rebalance-ips":                           `say one pool, or --all`,
		"network pools rebalance-ips p --all":                   `say one pool, or --all`,
		"network pools sc-suspend-nodes p":                      `NODE...`,
		"network pools size":                                    `--nodes and --addresses`,
		"network pools size p --nodes 3":                        `not both`,
		"plan":                                                  `--down NODE`,
		"init --node n --dir d":                                 `--cluster NAME`,
		"init --cluster c":                                      `dir`,
		"init --cluster c --node n --dir d --address x":         `"x" is not an address`,
		"identity issue n":                                      `out`,
		"get everything":                                        `"everything"`,
		"top --interval 1ms":                                    `100ms`,
		"node drain":                                            `needs NODE`,
		"node declare-dead --reason fire":                       `needs NODE`,
		"node declare-dead node3 --yes":                         `--reason`,
		"node declare-dead node3 --reason fire":                 `--yes`,
	} {
		r := run(t, filepath.Join(t.TempDir(), "nobody"), "", strings.Fields(line)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) || !strings.Contains(r.err, "--help") {
			t.Errorf("holdfast %s: exit code %d, want 2 and %q; said:\n%s", line, r.code, want, r.err)
		}
		if r.out != "" {
			t.Errorf("holdfast %s: printed %q to standard output", line, r.out)
		}
	}
}

func TestExitCodes(t *testing.T) {
	modify := "network pools modify subnet0.pool0 --sc-ttl 5"
	for _, c := range []struct {
		name, line string
		fake       *fake
		code       int
		want       string
	}{
		{"done", modify, &fake{}, 0, ""},
		{"refused with faults", modify, &fake{change: &pb.ChangeResult{Faults: []*pb.Fault{{Path: "groupnet0.subnet0.pool0.sc-ttl", Line: 3, Column: 9, Message: "is too large", Excerpt: "    3 | sc-ttl: 9\n      |         ^"}}}},
			1, "refused, nothing was changed:\nline 3, column 9: groupnet0.subnet0.pool0.sc-ttl: is too large\n    3 | sc-ttl: 9\n      |         ^\n"},
		{"a value that cannot be read", modify, &fake{change: &pb.ChangeResult{Faults: []*pb.Fault{{Path: "a.sc-ttl", Message: "is no number", Unreadable: true}}}},
			2, "refused, nothing was changed:\na.sc-ttl: is no number\n"},
		{"a word that cannot be one", "network dns delegation --for nonsense", &fake{refuse: api.Invalid("there is no flavour nonsense")}, 2, "there is no flavour nonsense"},
		{"refused by an error", modify, &fake{refuse: api.NotFound("there is no pool subnet0.pool0")}, 1, "holdfast: there is no pool subnet0.pool0\n"},
		{"store without a quorum", "status", &fake{refuse: api.Unavailable("the store has lost its quorum")}, 1, "the store has lost its quorum"},
		{"partly", modify, &fake{change: &pb.ChangeResult{Revision: 9, PendingNodes: []*pb.PendingNode{{Name: "node3", Why: "no answer for 4 s"}}}}, 4, "node3: no answer for 4 s"},
		{"warnings alone", modify, &fake{change: &pb.ChangeResult{Revision: 9, Warnings: []*pb.Fault{{Message: "seven service addresses are many"}}}}, 0, "warning: seven service addresses are many"},
		{"stream that fails", "events", &fake{refuse: api.Unavailable("the agent is stopping")}, 1, "the agent is stopping"},
		{"an older agent", "network pools status", nil, 1, "different versions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket := ""
			if c.fake != nil {
				socket = agent(t, c.fake)
			} else {
				socket = olderAgent(t)
			}
			r := run(t, socket, "", strings.Fields(c.line)...)
			if r.code != c.code || !strings.Contains(r.err, c.want) {
				t.Errorf("exit code %d, want %d; standard error:\n%s\nwant %q in it", r.code, c.code, r.err, c.want)
			}
		})
	}
}

func TestNobodyAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nobody")
	for _, line := range []string{"status", "events", "top", "network pools list", "node drain node1"} {
		r := run(t, "/elsewhere", "", append(strings.Fields(line), "--socket", socket)...)
		if r.code != exitUnreachable || !strings.Contains(r.err, socket) || !strings.Contains(r.err, "holdfast agent") {
			t.Errorf("holdfast %s: exit code %d, want 3 and what to do; said:\n%s", line, r.code, r.err)
		}
	}
}

// TestMessagesNameNoTypes looks through everything that is said for words of the program's inside.
func TestMessagesNameNoTypes(t *testing.T) {
	socket := agent(t, &fake{refuse: fmt.Errorf("the disk of node1 is full: free some space")})
	for _, line := range []string{"status", "apply -", "apply /no/such/file", "network pools size a --nodes x", "network pools list"} {
		namesNoTypes(t, line, run(t, socket, "", strings.Fields(line)...).err)
	}
	for line := range simulatorMisused(t) {
		namesNoTypes(t, line, simulate(t, line).err)
	}
}

func namesNoTypes(t *testing.T, line, text string) {
	t.Helper()
	for _, word := range []string{"pb.", "holdfastv1", "*", "connect", "rpc error", "strconv", "unknown:", "json:", "sim.", "Go value", "struct", "int64", "goroutine", "panic"} {
		if strings.Contains(text, word) {
			t.Errorf("holdfast %s says %q, which no operator knows:\n%s", line, word, text)
		}
	}
}
