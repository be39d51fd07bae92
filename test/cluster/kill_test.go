package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKillAnyNode turns the power of each of four nodes off in turn. Each time the survivors end with four addresses each, by
// the word of every one of them and by their kernels; no address is ever on two nodes; every answer through BIND names an
// address whose web server answers; and after the node's return each has three again.
func TestKillAnyNode(t *testing.T) {
	need(t, "nginx:nginx-light", "curl:curl")
	whole := t // what is started for a node that comes back outlives the subtest
	l := startLab(t, 4, cast{nodes: 4, clients: 1}.file())
	w := l.watch(t)
	for _, node := range l.nodes {
		l.serveHTTP(t, node)
	}
	for _, victim := range l.nodes {
		t.Run(victim, func(t *testing.T) {
			before, _ := l.spread(t, l.nodes, 3, 3, 3, 3)
			survivors := without(l.nodes, victim)
			w.leave(t, victim)
			l.do(t, "kill", victim)
			after, _ := l.spread(t, survivors, 4, 4, 4)
			for address, node := range before {
				if node != victim && after[address] != node {
					t.Errorf("%s moved from %s to %s although %s did not die", address, node, after[address], node)
				}
			}
			l.goodAnswers(t, survivors)
			l.do(t, "start", victim)
			w.join(whole, victim)
			l.serveHTTP(whole, victim)
			l.spread(t, l.nodes, 3, 3, 3, 3)
			l.goodAnswers(t, l.nodes)
			w.check(t)
		})
	}
}

// TestFourAddresses is the other half of the sizing example: with one address for each node, a node's death cannot be
// spread, and one survivor carries two.
func TestFourAddresses(t *testing.T) {
	l := startLab(t, 4, cast{nodes: 4, clients: 1, addresses: "10.10.0.100-10.10.0.103"}.file())
	w := l.watch(t)
	before, _ := l.spread(t, l.nodes, 1, 1, 1, 1)
	w.leave(t, "node3")
	l.do(t, "kill", "node3")
	after, _ := l.spread(t, without(l.nodes, "node3"), 2, 1, 1)
	for address, node := range before {
		if node != "node3" && after[address] != node {
			t.Errorf("%s moved from %s to %s", address, node, after[address])
		}
	}
	var sizing struct {
		Nodes, Addresses int
	}
	if err := l.read("node1", &sizing, "network", "pools", "size", pool0, "--clients", "600"); err != nil {
		t.Error(err)
	}
}

// TestPlanIsWhatHappens compares the plan on record for a death with what the death then does.
func TestPlanIsWhatHappens(t *testing.T) {
	l := startLab(t, 3, cast{nodes: 3, clients: 1, resolver: "none"}.file())
	w := l.watch(t)
	l.spread(t, l.nodes, 3, 3, 3)
	list, err := l.holdings("node1")
	if err != nil {
		t.Fatal(err)
	}
	plan := l.must(t, "node1", "holdfast", "plan", "--down", "node2")
	w.leave(t, "node2")
	l.do(t, "kill", "node2")
	pool, service := l.spread(t, []string{"node1", "node3"}, 5, 4)
	for _, h := range list {
		if h.Node != "node2" {
			continue
		}
		now := pool[h.Address]
		if h.Kind == "service" {
			now = service[h.Address]
		}
		if now != h.NextNode {
			t.Errorf("%s was to go to %s and is on %s", h.Address, h.NextNode, now)
		}
		if !slices.ContainsFunc(strings.Split(plan, "\n"), func(line string) bool {
			return strings.Contains(line, h.Address) && strings.Contains(line, h.NextNode)
		}) {
			t.Errorf("plan --down node2 does not say that %s goes to %s:\n%s", h.Address, h.NextNode, plan)
		}
	}
}

// TestServiceAddressOfTheStoreLeader turns off the node whose member leads the store. The successor of its service address has that on
// its interface before it can be on record: the death is noticed by heartbeats, and nobody waits for the store to have a leader again.
func TestServiceAddressOfTheStoreLeader(t *testing.T) {
	l := startLab(t, 4, cast{nodes: 4, clients: 1, resolver: "none", services: "10.10.0.4-10.10.0.7", multiplier: 6}.file())
	w := l.watch(t)
	_, before := l.spread(t, l.nodes, 3, 3, 3, 3)
	now, err := l.status("node1")
	if err != nil {
		t.Fatal(err)
	}
	leader := now.Store.Leader
	list, err := l.holdings("node1")
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]string{} // of the service addresses of the leader
	for _, h := range list {
		if h.Kind == "service" && h.Node == leader {
			next[h.Address] = h.NextNode
		}
	}
	if len(next) == 0 {
		t.Fatalf("%s leads the store and has no service address: %v", leader, before)
	}
	died := ""
	for _, n := range now.Nodes {
		if n.Name == leader {
			died = fmt.Sprintf("%s.%d", strings.TrimPrefix(leader, "node"), n.Incarnation.Start)
		}
	}
	w.leave(t, leader)
	l.do(t, "kill", leader)
	survivors := without(l.nodes, leader)
	_, after := l.spread(t, survivors, 4, 4, 4)
	story := l.failover(t, survivors[0], died)
	for address, successor := range next {
		if after[address] != successor {
			t.Errorf("%s was to go to %s and is on %s", address, successor, after[address])
		}
		taken, told := story[address]
		if !told || taken.Node != successor || taken.OnInterface.IsZero() || taken.Recorded.IsZero() {
			t.Errorf("what %s says of %s: %+v", successor, address, taken)
			continue
		}
		if !taken.OnInterface.Before(taken.Recorded) {
			t.Errorf("%s was on record at %v and only then, at %v, on the interface of %s", address, taken.Recorded, taken.OnInterface, successor)
		}
		t.Logf("%s: found down, after %v on the interface, after %v on record", address, taken.OnInterface.Sub(taken.Found), taken.Recorded.Sub(taken.Found))
		l.must(t, "client1", "dig", "+short", "+tries=5", "@"+address, "cluster.lab", "A")
	}
}

// taking is what a failover says of one address, by the clock of the node that took it.
type taking struct {
	Address, Node   string
	Found, Recorded time.Time
	OnInterface     time.Time `json:"on_interface"`
}

// failover waits until a failover has been told to its end, and returns what it says of each address.
func (l *lab) failover(t *testing.T, asked, id string) map[string]taking {
	t.Helper()
	var story map[string]taking
	eventually(t, "every address of failover "+id+" is on record", func() error {
		var told struct {
			Failover struct{ Addresses []taking }
		}
		if err := l.read(asked, &told, "explain", "--event", id); err != nil {
			return err
		}
		story = map[string]taking{}
		for _, a := range told.Failover.Addresses {
			if a.Recorded.IsZero() {
				return fmt.Errorf("%s is not", a.Address)
			}
			story[a.Address] = a
		}
		if len(story) == 0 {
			return errors.New("it has no address")
		}
		return nil
	})
	return story
}

const nginxConfig = `user root; worker_processes 1; daemon off; pid /run/nginx.pid; error_log stderr;
events { worker_connections 512; }
http {
	access_log off; client_body_temp_path /run/nginx-body; proxy_temp_path /run/nginx-proxy; fastcgi_temp_path /run/nginx-fastcgi;
	uwsgi_temp_path /run/nginx-uwsgi; scgi_temp_path /run/nginx-scgi;
	server { listen 80; location / { return 200 "$hostname\n"; } }
}
`

// serveHTTP runs nginx on a node, with a page that says the node's name.
func (l *lab) serveHTTP(t *testing.T, node string) *program {
	t.Helper()
	config := writeFile(t, "nginx.conf", nginxConfig)
	p := l.start(t, node, "nginx", "-c", config, "-p", "/run")
	eventually(t, "nginx serves on "+node, func() error {
		out, err := l.get(node, "curl", "-sS", "--max-time", "5", "http://127.0.0.1/")
		if err == nil && strings.TrimSpace(out) != node {
			err = fmt.Errorf("the page says %q", out)
		}
		if err != nil && !p.running() {
			t.Fatalf("nginx on %s ended: %s", node, p.output)
		}
		return err
	})
	return p
}

// goodAnswers asks for the name through BIND until every address has been named, and gets the page of every address named.
func (l *lab) goodAnswers(t *testing.T, nodes []string) {
	t.Helper()
	named, err := l.answers("client1", "cluster.lab", 48)
	if err != nil {
		t.Error(err)
	}
	slices.Sort(named)
	for _, address := range slices.Compact(named) {
		page, err := l.get("client1", "curl", "-sS", "--max-time", "10", "http://"+address+"/")
		if err != nil {
			t.Errorf("the name was answered with %s: %v", address, err)
		} else if node := strings.TrimSpace(page); !slices.Contains(nodes, node) {
			t.Errorf("the page of %s is %q's", address, node)
		}
	}
}
