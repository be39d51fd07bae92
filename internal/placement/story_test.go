package placement

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/cluster"
)

var update = flag.Bool("update", false, "write the results into testdata/*.story; commit only differences that you understand")

// TestStories plays testdata/*.story. A story is a sequence of steps, each one command, its output after "----" and an
// empty line. The commands are the cases of play; lines that start with # are comments.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".story"), func(t *testing.T) {
			told, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			played := playStory(t, string(told))
			if *update {
				if err := os.WriteFile(file, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(told), played); diff != "" && !*update {
				t.Errorf("the story goes otherwise (-told +played); if that is right, run with -update:\n%s", diff)
			}
		})
	}
}

// playStory runs the commands of a story and writes it anew with their output.
func playStory(t *testing.T, told string) string {
	s := &story{req: Request{Pool: cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: "pool0"}}}
	var played strings.Builder
	skipping := false
	for line := range strings.Lines(told) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case skipping:
			skipping = line != ""
			continue
		case line == "----":
			skipping = true
			continue
		case line == "":
			continue
		case strings.HasPrefix(line, "#"):
			played.WriteString(line + "\n")
			continue
		}
		output, err := s.play(strings.Fields(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		played.WriteString(line + "\n")
		if output != "" {
			played.WriteString("----\n" + output + "\n")
		}
	}
	return played.String()
}

// story is a pool in the course of time.
type story struct{ req Request }

func (s *story) play(words []string) (string, error) {
	args := words[1:]
	switch words[0] {
	case "pool": // pool COUNT: the addresses 10.0.0.1 and on
		count, err := strconv.Atoi(args[0])
		s.req.Addresses = addresses(count)
		return "", err
	case "policy": // policy POLICY: the failover policy
		s.req.FailoverPolicy = cluster.Policy(args[0])
	case "member": // member LNN:IFACE [weight=N] [connections=N] [stale]
		return "", s.member(args)
	case "unfit", "fit", "hold-down": // unfit LNN REASON...
		return "", s.setFit(words[0], args)
	case "pin": // pin ADDRESS LNN:IFACE
		if s.req.Pins == nil {
			s.req.Pins = map[netip.Addr]cluster.Member{}
		}
		s.req.Pins[netip.MustParseAddr(args[0])] = storyMember(args[1])
	case "allocate": // propose, and take the proposal as what is on record from then on
		return s.allocate(false, nil), nil
	case "rebalance": // the same, with leave to even out; rebalance ADDRESS...: of these addresses only
		return s.allocate(true, args), nil
	case "plan-down": // plan-down LNN...
		var down []int
		for _, arg := range args {
			lnn, err := strconv.Atoi(arg)
			if err != nil {
				return "", err
			}
			down = append(down, lnn)
		}
		return tellResult(PlanDown(s.req, down...)), nil
	case "explain": // explain ADDRESS
		d, _ := Explain(s.req, netip.MustParseAddr(args[0]))
		return tellDecision(d), nil
	default:
		return "", fmt.Errorf("no such command")
	}
	return "", nil
}

func storyMember(text string) cluster.Member {
	lnn, iface, _ := strings.Cut(text, ":")
	number, _ := strconv.Atoi(lnn)
	return cluster.Member{LNN: number, Interface: iface}
}

func (s *story) member(args []string) error {
	c := Candidate{Member: storyMember(args[0]), Weight: 1, Fit: true}
	c.Node = fmt.Sprintf("n%d", c.Member.LNN)
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		number, err := strconv.Atoi(value)
		switch {
		case name == "stale":
			c.Load.Stale = true
		case err != nil:
			return err
		case name == "weight":
			c.Weight = number
		case name == "connections":
			c.Load = Load{Known: true, Connections: number, Age: time.Second}
		}
	}
	for i := range s.req.Candidates {
		if s.req.Candidates[i].Member == c.Member {
			s.req.Candidates[i] = c
			return nil
		}
	}
	s.req.Candidates = append(s.req.Candidates, c)
	return nil
}

func (s *story) setFit(how string, args []string) error {
	lnn, err := strconv.Atoi(args[0])
	for i := range s.req.Candidates {
		if c := &s.req.Candidates[i]; c.Member.LNN == lnn {
			c.Fit, c.HoldDown, c.Why = how != "unfit", how == "hold-down", strings.Join(args[1:], " ")
		}
	}
	return err
}

func (s *story) allocate(rebalance bool, movable []string) string {
	req := s.req
	req.Rebalance = rebalance
	if len(movable) > 0 {
		req.Movable = map[netip.Addr]bool{}
		for _, address := range movable {
			req.Movable[netip.MustParseAddr(address)] = true
		}
	}
	result := Allocate(req)
	s.req.Current = result.Statements
	return tellResult(result)
}

// tellResult writes the whole table, the moves and the decisions.
func tellResult(result Result) string {
	var text strings.Builder
	for _, s := range result.Statements {
		fmt.Fprintf(&text, "%-11v owner %-8v next %v\n", s.Address, s.Owner, s.Next)
	}
	for _, m := range result.Moves {
		fmt.Fprintf(&text, "move %v: %v -> %v, %s\n", m.Address, m.From, m.To, m.Reason)
	}
	for _, d := range result.Decisions {
		fmt.Fprintf(&text, "decision %s: %s, %s\n", d.Subject, d.Chosen, d.Reason)
	}
	if len(result.Decisions) == 0 {
		text.WriteString("nothing changes\n")
	}
	return text.String()
}

func tellDecision(d Decision) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s, %s\n", d.Subject, d.Chosen, d.Reason)
	for _, c := range d.Among {
		fmt.Fprintf(&text, "  among %s weight %d score %.2f: %s\n", c.Name, c.Weight, c.Score, c.Note)
	}
	for _, e := range d.LeftOut {
		fmt.Fprintf(&text, "  left out %s: %s\n", e.Name, e.Reason)
	}
	return text.String()
}
