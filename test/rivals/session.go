package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fault is something that happens to the victim, and how it is mended.
type fault struct {
	name, meaning string
	begin         func(ctx context.Context, s *session, held []string) error
	mend          func(ctx context.Context, s *session, held []string) error
	idle          bool // an idle client is watched too
}

var allFaults = []fault{
	{name: "link-cut", meaning: "the switch drops every frame of the node; its carrier stays", idle: true,
		begin: func(ctx context.Context, s *session, _ []string) error { return s.lab.do(ctx, "cut", victim) },
		mend:  func(ctx context.Context, s *session, _ []string) error { return s.lab.do(ctx, "heal", victim) }},
	{name: "daemon-killed", meaning: "kill -9 of the daemon's main process alone", mend: powerCycle,
		begin: func(ctx context.Context, s *session, _ []string) error {
			return s.lab.do(ctx, "kill", "--agent", victim)
		}},
	{name: "daemons-killed", meaning: "kill -9 of all processes of the daemon at once", mend: powerCycle,
		begin: func(ctx context.Context, s *session, _ []string) error {
			_, err := s.lab.in(ctx, victim, append([]string{s.self, "end"}, s.about().processes...)...)
			return err
		}},
	{name: "node-frozen", meaning: "SIGSTOP of every process of the node; its kernel goes on", mend: powerCycle,
		begin: func(ctx context.Context, s *session, _ []string) error { return s.lab.do(ctx, "freeze", victim) }},
	{name: "graceful-stop", meaning: "the daemon is stopped as its manual says", mend: powerCycle,
		begin: func(ctx context.Context, s *session, _ []string) error { return s.stop(ctx, s.lab) }},
	{name: "planned-move", meaning: "an operator moves the node's addresses away",
		begin: func(ctx context.Context, s *session, held []string) error { return s.move(ctx, s.lab, held) },
		mend:  func(ctx context.Context, s *session, held []string) error { return s.back(ctx, s.lab, held) }},
}

// powerCycle turns the node off and on again: it comes back as after a boot, with nothing left of what was done to it.
func powerCycle(ctx context.Context, s *session, _ []string) error {
	return errors.Join(s.lab.do(ctx, "kill", victim), s.lab.do(ctx, "start", victim))
}

// idlePatience is for how long after the failover an idle client is watched.
const idlePatience = 10 * time.Second

// afterwards is for how long after the addresses have moved, or returned, they are watched still: what a system breaks late counts.
const afterwards = time.Second

// askEvenEvery is after how many looks at addresses that are not where they should be the system is asked again to spread them.
const askEvenEvery = 6

// session is one system in its lab.
type session struct {
	system
	lab    *lab
	self   string
	prober *program
}

// filesOf is where the files of a lab's daemons are.
func filesOf(labDirectory string) string { return labDirectory + "-files" }

// open brings a system up and waits until it is whole.
func (m *measurement) open(ctx context.Context, of system) (s *session, err error) {
	base, err := os.MkdirTemp("", "rivals-")
	if err != nil {
		return nil, err
	}
	s = &session{system: of, self: m.self, lab: &lab{holdfast: m.holdfast, directory: filepath.Join(base, "lab")}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, s.lastWords())
			s.close(ctx)
			s = nil
		}
	}()
	directory := filesOf(s.lab.directory)
	if err := os.Mkdir(directory, 0o700); err != nil {
		return s, err
	}
	file, more, err := of.files(directory)
	if err != nil {
		return s, err
	}
	if err := s.lab.up(ctx, file, more...); err != nil {
		return s, err
	}
	argv := append([]string{"holdfast", "lab", "probe", "--interval", m.probe.String()}, addresses()...)
	if s.prober, err = s.lab.start(ctx, client, argv...); err != nil {
		return s, err
	}
	if _, err = s.prober.ask(""); err != nil {
		return s, err
	}
	_, err = s.whole(ctx)
	return s, err
}

// lastWords is the end of the victim's log, for whoever wonders why nothing came of it.
func (s *session) lastWords() string {
	log, err := os.ReadFile(filepath.Join(s.lab.directory, "nodes", victim, "agent.log"))
	if err != nil || len(log) == 0 {
		return ""
	}
	text := strings.TrimSpace(string(log))
	return "; the last that " + victim + " said: " + text[strings.LastIndexByte(text, '\n')+1:]
}

// close takes the lab down and removes its files. A session that is nil has none.
func (s *session) close(ctx context.Context) {
	if s == nil {
		return
	}
	if s.prober != nil {
		s.prober.stop()
	}
	if s.lab.watchdog != nil {
		if err := s.lab.down(ctx); err != nil {
			say("  taking the lab down: %v", err)
		}
	}
	if err := os.RemoveAll(filepath.Dir(s.lab.directory)); err != nil {
		say("  removing the files of the lab: %v", err)
	}
}

// whole waits until every node takes part and the client's packets reach every node for three of the addresses, and still do
// a while later. It returns the victim's addresses.
func (s *session) whole(ctx context.Context) ([]string, error) {
	var held []string
	looks := 0
	err := until(ctx, "every node has its addresses", func() error {
		if looks++; looks%askEvenEvery == askEvenEvery/2 {
			if err := s.even(ctx, s.lab); err != nil {
				return err
			}
		}
		for look := range 2 {
			if look > 0 {
				if err := pause(ctx, afterwards); err != nil {
					return err
				}
			}
			owners, err := s.answered(ctx)
			if err == nil {
				err = s.healthy(ctx, s.lab)
			}
			if err != nil {
				return err
			}
			shares := make(map[string][]string)
			for address, owner := range owners {
				shares[owner] = append(shares[owner], address)
			}
			for _, node := range nodes {
				if len(shares[node]) != perNode {
					return fmt.Errorf("the client reaches %s for %d addresses", node, len(shares[node]))
				}
			}
			held = slices.Sorted(slices.Values(shares[victim]))
		}
		return nil
	})
	return held, err
}

// answered says to which node the client's packets go for each address, if all of them are answered now.
func (s *session) answered(ctx context.Context) (map[string]string, error) {
	r, err := s.prober.ask("report")
	if err != nil {
		return nil, err
	}
	if !r.answering() {
		return nil, errors.New("not every address answers")
	}
	all, err := s.lab.owners(ctx)
	owners := make(map[string]string)
	for _, address := range addresses() {
		owners[address] = all[address]
	}
	return owners, err
}

// once does a fault to a system that is whole, measures, and makes it whole again.
func (s *session) once(ctx context.Context, f fault, watchIdle bool) (o outcome, err error) {
	held, err := s.whole(ctx)
	if err != nil {
		return o, err
	}
	var idle *idleClient
	if watchIdle && f.idle {
		if idle, err = s.connect(ctx, held[0]); err != nil {
			return o, err
		}
		defer idle.stop()
	}
	if err := anyPhase(ctx, s.about().period); err != nil {
		return o, err
	}
	if _, err := s.prober.ask("reset"); err != nil { // from here on it is counted
		return o, err
	}
	if err := f.begin(ctx, s, held); err != nil {
		return o, err
	}
	began := time.Now()
	if o.gapMS, err = s.moved(ctx); err != nil {
		return o, err
	}
	if o.held, err = s.stillHeld(ctx); err != nil {
		return o, err
	}
	if idle != nil {
		o.idle, o.idleMS = true, idle.noticed(began)
	}
	return o, f.mend(ctx, s, held)
}

// moved waits until the client's packets for all addresses go to nodes other than the victim and are answered, and a while
// longer; it returns the longest silence of any since the last reset.
func (s *session) moved(ctx context.Context) (gapMS float64, err error) {
	err = until(ctx, "other nodes answer for the addresses of "+victim, func() error {
		owners, err := s.answered(ctx)
		if err == nil {
			err = notMoved(owners)
		}
		return err
	})
	if err == nil {
		err = pause(ctx, afterwards)
	}
	if err != nil {
		return 0, err
	}
	r, err := s.prober.ask("report")
	return r.longest(), err
}

// notMoved names an address for which the client's packets do not go to a node other than the victim; nil if there is none.
func notMoved(owners map[string]string) error {
	for _, address := range addresses() {
		if owner := owners[address]; owner == victim || !slices.Contains(nodes, owner) {
			return fmt.Errorf("packets for %s go to %q", address, owner)
		}
	}
	return nil
}

// stillHeld says whether the victim has any of the addresses on its interface, though others have them too.
func (s *session) stillHeld(ctx context.Context) (bool, error) {
	out, err := s.lab.in(ctx, victim, "ip", "-4", "-o", "addr", "show", "dev", "eth0")
	if err != nil {
		return false, err
	}
	for _, address := range addresses() {
		if strings.Contains(out, " "+address+"/") {
			return true, nil
		}
	}
	return false, nil
}
