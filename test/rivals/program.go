package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// program is one that runs on in a member and says something line by line.
type program struct {
	command *exec.Cmd
	input   io.WriteCloser
	lines   chan saying // closed at the end of what it says
	cancel  context.CancelFunc
}

// start runs a program in a member in the background.
func (l *lab) start(ctx context.Context, member string, argv ...string) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &program{lines: make(chan saying, 16), cancel: cancel}
	p.command = exec.CommandContext(ctx, l.holdfast, append([]string{"lab", "exec", "--dir", l.directory, member, "--"}, argv...)...)
	p.command.WaitDelay = time.Second
	input, err := p.command.StdinPipe()
	if err == nil {
		p.input = input
		var output io.ReadCloser
		if output, err = p.command.StdoutPipe(); err == nil {
			go p.read(output)
			err = p.command.Start()
		}
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s in %s: %w", strings.Join(argv, " "), member, err)
	}
	return p, nil
}

func (p *program) read(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		p.lines <- saying{lines.Text(), time.Now()}
	}
	close(p.lines)
}

// stop ends the program.
func (p *program) stop() {
	p.cancel()
	for range p.lines { // lets its reader go
	}
	_ = p.command.Wait() // it was killed, and says so
}

// saying is a line of what a program says, and when it came.
type saying struct {
	text string
	at   time.Time
}

// line returns the next line; false if there is none within the time.
func (p *program) line(within time.Duration) (saying, bool) {
	select {
	case line, ok := <-p.lines:
		return line, ok
	case <-time.After(within):
		return saying{}, false
	}
}

// probeReport is what `holdfast lab probe` says when asked.
type probeReport struct {
	LongestMS map[string]float64 `json:"longest_ms"` // longest time without an answer since the last reset, by address
	LastMS    map[string]float64 `json:"last_ms"`    // time since the last answer, by address
}

// ask sends a line to a prober and reads its answer.
func (p *program) ask(line string) (probeReport, error) {
	var r probeReport
	if line != "" {
		if _, err := fmt.Fprintln(p.input, line); err != nil {
			return r, fmt.Errorf("the prober ended early: %w", err)
		}
	}
	answer, ok := p.line(labPatience)
	if !ok {
		return r, fmt.Errorf("the prober says nothing")
	}
	if err := json.Unmarshal([]byte(answer.text), &r); err != nil {
		return r, fmt.Errorf("reading from the prober: %w", err)
	}
	return r, nil
}

// answering says whether every address answered just now.
func (r probeReport) answering() bool {
	for _, silence := range r.LastMS {
		if silence > 100 {
			return false
		}
	}
	return len(r.LastMS) > 0
}

// longest is the longest silence of any address.
func (r probeReport) longest() float64 {
	longest := 0.0
	for _, silence := range r.LongestMS {
		longest = max(longest, silence)
	}
	return longest
}
