package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// inNamespace marks the process that measures, in a network namespace of its own.
const inNamespace = "HOLDFAST_NAMES_INSIDE"

// measureCommand measures all servers, or those that are named.
func measureCommand(arguments []string) error {
	flags := flag.NewFlagSet("measure", flag.ExitOnError)
	rounds := flags.Int("rounds", 3, "rounds")
	seconds := flags.Float64("seconds", 1, "length of each run")
	servers := flags.String("servers", "", "which servers, with commas between; all if empty")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if os.Getenv(inNamespace) == "" {
		return inside("measure", arguments)
	}
	if said, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("preparing the namespace: %w: %s", err, said)
	}
	closeTargets, err := listenTargets()
	if err != nil {
		return err
	}
	defer closeTargets()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s := &session{ctx: ctx, rounds: *rounds, seconds: *seconds, report: newReport(*rounds, *seconds)}
	for _, one := range allServers {
		if *servers == "" || slices.Contains(strings.FieldsFunc(*servers, func(r rune) bool { return r == ',' }), one.name) {
			s.servers = append(s.servers, one)
			s.report.Servers = append(s.report.Servers, serverReport{Name: one.name})
		}
	}
	for _, workers := range []int{1, 2} {
		if workers <= runtime.NumCPU() {
			if err := s.phase(workers); err != nil {
				return err
			}
		}
	}
	s.report.LoadAfter = loadNow()
	return json.NewEncoder(os.Stdout).Encode(s.report)
}

// inside runs the same in a network namespace of its own.
func inside(role string, arguments []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self, append([]string{role}, arguments...)...)
	command.Env = append(os.Environ(), inNamespace+"=yes")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if os.Getuid() != 0 {
		return errors.New("measuring takes a network namespace; run it as root")
	}
	return command.Run()
}

// listenTargets opens what health-aware servers check.
func listenTargets() (closeAll func(), err error) {
	var all []net.Listener
	closeAll = func() {
		for _, l := range all {
			l.Close()
		}
	}
	for last := 2; last <= 4; last++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.%d:%d", last, checkedPort))
		if err != nil {
			closeAll()
			return nil, err
		}
		all = append(all, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	}
	return closeAll, nil
}

// session is one measurement.
type session struct {
	ctx     context.Context
	rounds  int
	seconds float64
	servers []server
	running map[string]*process
	report  report
}

// phase starts all servers with so many workers, asks each in turn, and ends them.
func (s *session) phase(workers int) error {
	dir, err := os.MkdirTemp("", "names")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.running = map[string]*process{}
	defer func() {
		for _, p := range s.running {
			p.stop()
		}
	}()
	for i := range s.servers {
		s.startServer(i, dir, workers)
	}
	s.untilAnswering()
	for round := range s.rounds {
		for i := range s.servers {
			if s.ctx.Err() != nil {
				return s.ctx.Err()
			}
			fmt.Fprintf(os.Stderr, "%d on %d: round %d, %s\n", i+1, workers, round+1, s.servers[i].name)
			s.measure(i, workers)
		}
	}
	for i := range s.servers {
		if p := s.processOf(i); p != nil && workers == 1 {
			s.report.Servers[i].ResidentBytes = p.resident()
		}
	}
	return nil
}

// processors are those of the servers with so many workers, and of whoever asks them.
func processors(workers int, swapped bool) (serve, ask []int) {
	all := runtime.NumCPU()
	for i := range all {
		if i >= all-workers {
			serve = append(serve, i)
		} else {
			ask = append(ask, i)
		}
	}
	switch {
	case workers == 1 && all > 1 && swapped:
		return []int{0}, []int{all - 1}
	case len(ask) == 0:
		return serve, serve // there are no others: they share them
	}
	return serve, ask[:1]
}

func (s *session) startServer(i int, dir string, workers int) {
	one := &s.servers[i]
	if one.of != "" {
		return
	}
	argv, err := one.argv(filepath.Join(dir, one.name), workers)
	var p *process
	if err == nil {
		serve, _ := processors(workers, one.swapped)
		p, err = start(s.ctx, argv, serve, fmt.Sprintf("GOMAXPROCS=%d", workers))
	}
	if err != nil {
		s.report.Servers[i].Missing = err.Error()
		return
	}
	s.running[one.name] = p
	s.report.Servers[i].Version = versionOf(one.version)
}

func (s *session) processOf(i int) *process {
	if of := s.servers[i].of; of != "" {
		return s.running[of]
	}
	return s.running[s.servers[i].name]
}

// untilAnswering waits until every server answers, or says which do not.
func (s *session) untilAnswering() {
	for i := range s.servers {
		if s.processOf(i) == nil {
			if s.report.Servers[i].Missing == "" {
				s.report.Servers[i].Missing = "see " + s.servers[i].of
			}
			continue
		}
		var err error
		for range 40 {
			var h heard
			if h, err = s.ask(i, 1, alike, 0.05); err == nil && h.Answers > 0 && h.Empty == 0 {
				break
			}
			time.Sleep(250 * time.Millisecond)
		}
		if err != nil {
			s.report.Servers[i].Missing = fmt.Sprintf("it does not answer: %v", err)
		}
	}
}

// ask has another process ask a server.
func (s *session) ask(i, workers int, how string, seconds float64) (h heard, err error) {
	self, err := os.Executable()
	if err != nil {
		return h, err
	}
	one := &s.servers[i]
	_, from := processors(workers, one.swapped)
	p, err := start(s.ctx, []string{self, "ask", "-port", fmt.Sprint(one.port), "-prefix", one.prefix, "-how", how, "-seconds", fmt.Sprint(seconds)}, from, "GOMAXPROCS=1")
	if err != nil {
		return h, err
	}
	if err := p.command.Wait(); err != nil {
		return h, fmt.Errorf("%w: %s", err, p.output.String())
	}
	return h, json.Unmarshal([]byte(p.output.String()), &h)
}

// measure asks one server in each way.
func (s *session) measure(i, workers int) {
	r := &s.report.Servers[i]
	p := s.processOf(i)
	if r.Missing != "" || p == nil {
		return
	}
	ways := []string{alike, unlike}
	if workers == 1 {
		ways = append(ways, paced)
	}
	for _, how := range ways {
		before := p.used()
		h, err := s.ask(i, workers, how, s.seconds)
		if err != nil || h.Answers == 0 || h.Empty > 0 {
			r.Failures = append(r.Failures, fmt.Sprintf("%s on %d: %d answers, %d of them empty, %v", how, workers, h.Answers, h.Empty, err))
			continue
		}
		r.Runs = append(r.Runs, run{How: how, Workers: workers, heard: h, NanosecondsEach: float64(p.used()-before) / float64(h.Answers)})
	}
}

func versionOf(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	path, err := program(argv[0])
	if err != nil {
		return ""
	}
	said, _ := exec.Command(path, argv[1:]...).CombinedOutput()
	for line := range strings.Lines(string(said)) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
