package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// patience is how long a system may take to come up, to be well again, or to fail over. The slowest, ctdb as it comes, needs
// half a minute.
const patience = 2 * time.Minute

// measurement is a run of `rivals measure`.
type measurement struct {
	holdfast, self string
	probe          time.Duration
	rounds         int
	repeats        int // of each fault in each round, but for slow systems
	beside         int // labs of slow systems that are up at once
	faults         []fault
	systems        []system
	entering       sync.Mutex // held while the report is changed
	report         report
}

func measureCommand(arguments []string) error {
	m := measurement{report: report{Began: time.Now().UTC().Truncate(time.Second), Machine: machine(), Kernel: kernel()}}
	flags := flag.NewFlagSet("rivals measure", flag.ContinueOnError)
	flags.StringVar(&m.holdfast, "holdfast", "", "the binary of the product")
	flags.DurationVar(&m.probe, "probe", 2*time.Millisecond, "between two probes of one address")
	flags.IntVar(&m.rounds, "rounds", 1, "how often each system has its turn, 1 to 1000")
	flags.IntVar(&m.repeats, "repeats", 1, "how often each fault is done in a turn, 1 to 1000; once to a slow system")
	flags.IntVar(&m.beside, "beside", 1, "how many labs of slow systems are up at once, 1 to 8; they have their turns after the others")
	names := flags.String("systems", "", "which systems, by their names with commas between (all)")
	faultNames := flags.String("faults", "", "which faults (all)")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if m.rounds < 1 || m.rounds > 1000 || m.repeats < 1 || m.repeats > 1000 {
		return errors.New("rounds and repeats are 1 to 1000")
	}
	if m.beside < 1 || m.beside > 8 {
		return errors.New("1 to 8 labs can be up beside each other")
	}
	var err error
	if m.holdfast, err = filepath.Abs(m.holdfast); err != nil {
		return err
	}
	if m.self, err = os.Executable(); err != nil {
		return err
	}
	if m.systems, err = chosen(systems(m.holdfast), func(s system) string { return s.about().name }, words(*names)); err != nil {
		return err
	}
	if m.faults, err = chosen(allFaults, func(f fault) string { return f.name }, words(*faultNames)); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := m.all(ctx); err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(m.report)
}

// all gives every system its turn in every round: first the quick ones, one lab at a time, each round begun by another system; then the
// slow ones, whose seconds are not disturbed by a few labs that mostly wait.
func (m *measurement) all(ctx context.Context) error {
	m.report.Rounds, m.report.ProbeMS, m.report.Beside = m.rounds, int(m.probe.Milliseconds()), m.beside
	var quick, slow []int
	for at, s := range m.systems {
		a := s.about()
		one := systemReport{Name: a.name, Settings: a.settings, Absent: a.absent(), Cases: []caseReport{}}
		switch {
		case one.Absent != "":
		case a.slow:
			slow = append(slow, at)
		default:
			quick = append(quick, at)
		}
		if one.Absent == "" {
			one.Version = firstLine(ctx, a.version)
		}
		m.report.Systems = append(m.report.Systems, one)
	}
	return errors.Join(m.inTurn(ctx, quick, 1), m.inTurn(ctx, slow, m.beside))
}

// inTurn gives systems their turns, with at most so many labs at once.
func (m *measurement) inTurn(ctx context.Context, systems []int, labs int) error {
	turns, ctx := errgroup.WithContext(ctx)
	turns.SetLimit(labs)
	for round := range m.rounds {
		for i := range systems {
			at := systems[(i+round)%len(systems)]
			turns.Go(func() error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				s, into := m.systems[at], &m.report.Systems[at]
				if m.absent(into) {
					return nil
				}
				say("round %d of %d: %s", round+1, m.rounds, into.Name)
				return m.turn(ctx, s, into)
			})
		}
	}
	return turns.Wait()
}

// turn does every fault to one system. A run that fails ends the lab; the next fault has a new one. Only being interrupted is
// an error.
func (m *measurement) turn(ctx context.Context, s system, into *systemReport) (err error) {
	var now *session
	defer func() { now.close(ctx) }()
	repeats := m.repeats
	if s.about().slow {
		repeats = 1
	}
	for _, f := range m.faults {
		for repeat := range repeats {
			if now == nil {
				if now, err = m.open(ctx, s); err != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					m.didNotComeUp(into, err)
					return nil
				}
			}
			o, err := now.once(ctx, f, repeat == 0)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				say("  %s, %s: %v", into.Name, f.name, err)
				m.enter(func() { into.failed(f.name, err) })
				now.close(ctx)
				now = nil
			default:
				say("  %s, %s: %.0f ms", into.Name, f.name, o.gapMS)
				m.enter(func() { into.add(f.name, o) })
			}
		}
	}
	return nil
}

// enter changes the report. Labs that are up beside each other may be of one system.
func (m *measurement) enter(change func()) {
	m.entering.Lock()
	defer m.entering.Unlock()
	change()
}

func (m *measurement) absent(of *systemReport) (absent bool) {
	m.enter(func() { absent = of.Absent != "" })
	return absent
}

// didNotComeUp notes that a system did not run. If it never did, it is absent, and is not tried again.
func (m *measurement) didNotComeUp(into *systemReport, why error) {
	say("  %s does not come up: %v", into.Name, why)
	m.enter(func() {
		if len(into.Cases) == 0 {
			into.Absent = "it does not come up here: " + why.Error()
			return
		}
		into.Troubles = append(into.Troubles, why.Error())
	})
}

// say tells whoever waits how far it is.
func say(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) }

// pause waits, or returns why it was not waited to the end.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// until polls a condition; after patience its error is that of the last look.
func until(ctx context.Context, what string, condition func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it did not come about within %v that %s: %w", patience, what, err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// anyPhase waits for a random part of a period, so that faults do not march in step with what the system does regularly.
func anyPhase(ctx context.Context, period time.Duration) error {
	return pause(ctx, rand.N(period))
}

func machine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d processors", model, runtime.NumCPU())
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}
