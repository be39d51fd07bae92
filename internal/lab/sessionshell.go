package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// shell is one that a user has open on a server, in a terminal of the server's.
type shell struct {
	command *exec.Cmd
	in      io.WriteCloser
	lines   chan string // what it shows, by the line; closed when it ends
	said    *complaints
	cancel  context.CancelFunc
	number  int
}

// maxShellLines bounds what is kept of a shell that nobody reads.
const maxShellLines = 1000

// openShell runs a program in a member that opens a shell somewhere, and returns when that one answers.
func (s *sessions) openShell(ctx context.Context, member string, argv ...string) (*shell, error) {
	ctx, cancel := context.WithCancel(ctx)
	command, err := s.Command(ctx, member, argv...)
	if err != nil {
		cancel()
		return nil, err
	}
	sh := &shell{command: command, lines: make(chan string, maxShellLines), said: new(complaints), cancel: cancel}
	command.Stderr = sh.said
	in, errIn := command.StdinPipe()
	out, errOut := command.StdoutPipe()
	if err = errors.Join(errIn, errOut); err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("opening a shell: %w", err)
	}
	sh.in = in
	go sh.read(out)
	if _, err := sh.do(ctx, "stty -echo; PS1="); err != nil {
		sh.close()
		return nil, err
	}
	return sh, nil
}

func (s *shell) read(out io.Reader) {
	defer close(s.lines)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		select {
		case s.lines <- strings.TrimRight(lines.Text(), "\r"):
		default: // nobody reads
		}
	}
}

// shellPatience is how long a shell may take to answer.
const shellPatience = 10 * time.Second

// do types a command, and returns what the shell shows of it, in one line.
func (s *shell) do(ctx context.Context, command string) (string, error) {
	s.number++
	// The mark is shown in another form than it is typed, so that the terminal's echo is not taken for the answer.
	if _, err := fmt.Fprintf(s.in, "%s; echo done-$((%d + 1))\n", command, s.number-1); err != nil {
		return "", s.ended()
	}
	mark := fmt.Sprintf("done-%d", s.number)
	var shown []string
	limit := time.NewTimer(shellPatience)
	defer limit.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			before, _, last := strings.Cut(line, mark)
			switch {
			case !ok:
				return "", s.ended()
			case last:
				return strings.TrimSpace(strings.Join(append(shown, before), " ")), nil
			}
			shown = append(shown, line)
		case <-limit.C:
			return "", fmt.Errorf("the shell shows nothing for %v", shellPatience)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// gone waits until the shell has ended, and says whether it did.
func (s *shell) gone(ctx context.Context, patience time.Duration) bool {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case _, ok := <-s.lines:
			if !ok {
				return true
			}
		case <-limit.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

func (s *shell) ended() error {
	return fmt.Errorf("the shell has ended: %s", firstOf(s.said.String(), "it said nothing"))
}

// close ends the shell. It is left first: what is killed leaves programs behind that hold on to its output.
func (s *shell) close() {
	_, _ = io.WriteString(s.in, "exit\n") // it may have ended
	s.in.Close()
	s.gone(context.Background(), shellPatience)
	s.cancel()
	_ = s.command.Wait() // it was killed, and says so
}
