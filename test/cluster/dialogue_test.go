package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// dialogue is a program that answers each line by one.
type dialogue struct {
	input  io.Writer
	output *bufio.Reader
}

// converse starts a program that ends with its input, at the end of the test.
func converse(t *testing.T, command *exec.Cmd) *dialogue {
	t.Helper()
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("starting %s: %v", strings.Join(command.Args, " "), err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait()
	})
	return &dialogue{input: input, output: bufio.NewReader(output)}
}

func (d *dialogue) ask(line string) (answer string, err error) {
	if _, err = fmt.Fprintln(d.input, line); err == nil {
		answer, err = d.output.ReadString('\n')
	}
	return strings.TrimSpace(answer), err
}
