package lab

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The tour's cast.
const (
	tourAsked   = "node1" // whom we ask, and leave alone
	tourKilled  = "node2"
	tourDrained = "node3"
	tourAnswers = 600
	tourClients = 60 // HTTP connections from each of the two clients
)

// tourResult is what `lab run tour --output json` prints.
type tourResult struct {
	Scenario string         `json:"scenario"`
	Pass     bool           `json:"pass"`
	Answers  map[string]int `json:"answers"`               // of the 600, by node
	NFS      string         `json:"nfs_skipped,omitempty"` // why NFS was not part of it
	Measured []measurement  `json:"measured"`
}

// measurement is what the clients saw of one thing that was done.
type measurement struct {
	What     string    `json:"what"`
	GapMS    float64   `json:"gap_ms"` // the longest that any pool address did not answer a client's packets
	Requests int       `json:"requests"`
	Repeated int       `json:"repeated"` // asked again on a new connection
	Lost     int       `json:"lost"`
	Longest  float64   `json:"longest_ms"` // the longest that any request took, with all its repetitions
	NFS      nfsReport `json:"nfs"`
}

// tour is the story while it plays.
type tour struct {
	*stage
	result  tourResult
	clients []*program
	probe   *program
	reader  *nfsReader // nil without NFS
	holders map[string]string
}

func runTour(ctx context.Context, out *transcript, o runOptions) (any, bool, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &tour{result: tourResult{Scenario: "tour", Pass: true, Answers: map[string]int{}, Measured: []measurement{}}}
	out.title("Four nodes, two clients, and a real BIND in front of them")
	out.say("Each is a set of namespaces on this machine, joined by a switch; the nodes run this binary.")
	stage, err := newStage(ctx, tourFile(), out, o.keep)
	if err != nil {
		return t.result, false, err
	}
	t.stage = stage
	for _, step := range []func(context.Context) error{t.delegation, t.audience, t.answers, t.kill, t.comeBack, t.rebalance, t.drain} {
		if err == nil {
			err = step(ctx)
		}
	}
	cancel()
	if err = errors.Join(err, stage.close()); err != nil {
		return t.result, false, err
	}
	t.summary(time.Since(began))
	return t.result, t.result.Pass, nil
}

// tourFile is a lab of four nodes whose addresses return only when the operator says so.
func tourFile() File {
	return File{Nodes: 4, Clients: 2, Resolver: ResolverBIND,
		Cluster: poolYAML("", "10.10.0.100-10.10.0.111", `"1:eth0", "2:eth0", "3:eth0", "4:eth0"`, "            rebalance-policy: manual\n")}
}

// check records one thing that has to be so.
func (t *tour) check(good bool, format string, arguments ...any) {
	t.result.Pass = t.out.verdict(good, format, arguments...) && t.result.Pass
}

// order shows a command and runs it on the node that we ask.
func (t *tour) order(ctx context.Context, arguments ...string) error {
	t.out.command("holdfast %s", strings.Join(arguments, " "))
	return t.holdfast(ctx, tourAsked, arguments...)
}

func (t *tour) delegation(context.Context) error {
	t.out.title("BIND delegates the zone cluster.lab to the cluster's service addresses")
	for line := range strings.Lines(t.zoneFile()) {
		if strings.Contains(line, "ssip") || strings.Contains(line, "cluster") {
			t.out.say("%s", strings.TrimSpace(line))
		}
	}
	return nil
}

// audience shows who holds what, and brings the clients in.
func (t *tour) audience(ctx context.Context) (err error) {
	t.out.title("Who holds what")
	if t.holders, err = t.even(ctx, t.plan.Names(KindNode)); err != nil {
		return err
	}
	if err := t.showHolders(ctx); err != nil {
		return err
	}
	if t.probe, err = t.startProbe(ctx, "client1", slices.Sorted(maps.Keys(t.holders))); err != nil {
		return err
	}
	t.out.title("Clients come in by the name")
	for _, client := range t.plan.Names(KindClient) {
		p, report, err := t.stage.startClients(ctx, client, tourClients)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, p)
		t.out.say("%s opened %d HTTP connections, stays on them and asks twice a second: %s", client, report.Connections, byNode(report.ByNode))
	}
	if t.result.NFS = nfsMissing(); t.result.NFS == "" {
		for _, node := range t.plan.Names(KindNode) {
			if err := t.startNFS(ctx, node); err != nil {
				t.result.NFS = err.Error()
				break
			}
		}
	}
	if t.result.NFS != "" {
		t.out.say("NFS is left out: %s", t.result.NFS)
		return nil
	}
	t.reader = t.readNFS(ctx, "client2")
	t.out.say("client2 also reads a file by NFS, from NFS-Ganesha on whichever node the name gives it, three times a second")
	return nil
}

// answers resolves through BIND and counts whom the answers name.
func (t *tour) answers(ctx context.Context) error {
	t.out.title("%d answers through BIND", tourAnswers)
	counts, err := t.resolve(ctx, tourAnswers)
	if err != nil {
		return err
	}
	t.result.Answers = counts
	var rows [][]string
	least, most := tourAnswers, 0
	for _, node := range t.plan.Names(KindNode) {
		least, most = min(least, counts[node]), max(most, counts[node])
		rows = append(rows, []string{node, strconv.Itoa(counts[node]), strings.Repeat("#", counts[node]/5)})
	}
	t.out.table([]string{"NODE", "ANSWERS", ""}, rows)
	t.check(most-least <= 6, "the busiest node was named %d times more than the idlest", most-least)
	return nil
}

// resolve asks through BIND, half of the questions from each client, and counts the nodes that hold the answers.
func (t *tour) resolve(ctx context.Context, count int) (map[string]int, error) {
	counts := make(map[string]int)
	for _, client := range t.plan.Names(KindClient) {
		out, err := t.Output(ctx, client, "holdfast", "lab", "resolve", "cluster.lab", "--count", strconv.Itoa(count/2))
		if err != nil {
			return nil, err
		}
		for _, address := range strings.Fields(string(out)) {
			counts[firstOf(t.holders[address], "nobody")]++
		}
	}
	return counts, nil
}

func (t *tour) kill(ctx context.Context) error {
	t.out.title("%s loses its power", tourKilled)
	if status, err := askStatus(ctx, t.Directory, tourAsked); err == nil {
		t.out.say("%s", status.FailureDetection.Text)
	}
	if err := t.forget(); err != nil {
		return err
	}
	t.out.command("holdfast lab kill %s", tourKilled)
	if err := t.tell(request{Op: "kill", Member: tourKilled}); err != nil {
		return err
	}
	if err := t.moved(ctx, without(t.plan.Names(KindNode), tourKilled), "a node lost its power"); err != nil {
		return err
	}
	counts, err := t.resolve(ctx, 60)
	if err != nil {
		return err
	}
	t.check(counts[tourKilled]+counts["nobody"] == 0, "60 more answers, each names a living node: %s", byNode(counts))
	return nil
}

func (t *tour) comeBack(ctx context.Context) error {
	t.out.title("%s comes back", tourKilled)
	t.out.command("holdfast lab start %s", tourKilled)
	if err := t.tell(request{Op: "start", Member: tourKilled}); err != nil {
		return err
	}
	if err := t.serve(ctx, []string{tourKilled}); err != nil {
		return err
	}
	if err := t.startServer(ctx, tourKilled); err != nil {
		return err
	}
	if err := t.wait(ctx, "the others take "+tourKilled+" for up", func() (bool, error) {
		status, err := askStatus(ctx, t.Directory, tourAsked)
		return status.up(tourKilled), err
	}); err != nil {
		return err
	}
	if t.reader != nil {
		if err := t.startNFS(ctx, tourKilled); err != nil {
			return err
		}
	}
	t.out.say("It is told to hold nothing until an operator says so: moving an address home costs its clients a new connection.")
	return t.moved(ctx, t.plan.Names(KindNode), "the node came back")
}

func (t *tour) rebalance(ctx context.Context) error {
	t.out.title("The operator evens it out")
	if err := t.order(ctx, "network", "pools", "rebalance-ips", labPool); err != nil {
		return err
	}
	if _, err := t.even(ctx, t.plan.Names(KindNode)); err != nil {
		return err
	}
	return t.moved(ctx, t.plan.Names(KindNode), "addresses were rebalanced")
}

func (t *tour) drain(ctx context.Context) error {
	t.out.title("%s is drained for maintenance", tourDrained)
	if err := t.order(ctx, "network", "pools", "sc-suspend-nodes", labPool, tourDrained); err != nil {
		return err
	}
	counts, err := t.resolve(ctx, 60)
	if err != nil {
		return err
	}
	t.check(counts[tourDrained] == 0, "60 answers, and none names %s any more: %s", tourDrained, byNode(counts))
	if err := t.order(ctx, "node", "drain", tourDrained); err != nil {
		return err
	}
	if err := t.moved(ctx, without(t.plan.Names(KindNode), tourDrained), "a node was drained"); err != nil {
		return err
	}
	t.out.say("Now it can be shut down. Back with it:")
	return errors.Join(t.order(ctx, "node", "undrain", tourDrained), t.order(ctx, "network", "pools", "sc-resume-nodes", labPool, tourDrained))
}
