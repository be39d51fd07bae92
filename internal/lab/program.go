package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// program is one that a scenario keeps running in a member: it answers each line of its input with a line of JSON.
type program struct {
	name    string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	said    *complaints
	cancel  context.CancelFunc
}

// start starts a program in a member.
func (s *stage) start(ctx context.Context, member string, argv ...string) (*program, error) {
	ctx, cancel := context.WithCancel(ctx)
	command, err := s.Command(ctx, member, argv...)
	if err != nil {
		cancel()
		return nil, err
	}
	p := &program{name: strings.Join(argv, " ") + " in " + member, command: command, said: new(complaints), cancel: cancel}
	command.Stderr = p.said
	in, err := command.StdinPipe()
	if err == nil {
		p.in = in
		var out io.ReadCloser
		out, err = command.StdoutPipe()
		p.out = bufio.NewReader(out)
	}
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	return p, nil
}

// stop ends the program.
func (p *program) stop() {
	p.cancel()
	_ = p.command.Wait() // it was killed, and says so
}

// read reads the program's next line into a value.
func (p *program) read(into any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended early: %s", p.name, firstOf(p.said.String(), err.Error()))
	}
	if err := json.Unmarshal(line, into); err != nil {
		return fmt.Errorf("reading from %s: %w", p.name, err)
	}
	return nil
}

// ask sends a line and reads the answer.
func (p *program) ask(line string, into any) error {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return fmt.Errorf("%s ended early: %s", p.name, firstOf(p.said.String(), err.Error()))
	}
	return p.read(into)
}

// complaints keeps the first of what a program writes to its standard error. Safe for concurrent use.
type complaints struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// maxComplaints bounds what is kept.
const maxComplaints = 4096

func (c *complaints) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(data[:min(len(data), maxComplaints-c.text.Len())])
	return len(data), nil
}

func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(c.text.String())
}
