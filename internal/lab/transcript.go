package lab

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// transcript is what a scenario tells people: titles, sentences and tables, with colour on a terminal only.
type transcript struct {
	out    io.Writer
	colour bool
	step   int
}

// Terminal attributes (ECMA-48, SGR).
const (
	sgrBold  = "1"
	sgrDim   = "2"
	sgrRed   = "31"
	sgrGreen = "32"
	sgrCyan  = "36"
)

func newTranscript(out io.Writer) *transcript {
	t := &transcript{out: out}
	if file, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
		t.colour = err == nil
	}
	return t
}

func (t *transcript) paint(attribute, text string) string {
	if !t.colour || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[0m"
}

// title begins a numbered step.
func (t *transcript) title(format string, arguments ...any) {
	t.step++
	fmt.Fprintf(t.out, "\n%s\n", t.paint(sgrBold, fmt.Sprintf("%d. ", t.step)+fmt.Sprintf(format, arguments...)))
}

// say prints a sentence.
func (t *transcript) say(format string, arguments ...any) {
	fmt.Fprintf(t.out, "   %s\n", fmt.Sprintf(format, arguments...))
}

// command shows what is typed next.
func (t *transcript) command(format string, arguments ...any) {
	fmt.Fprintf(t.out, "   %s\n", t.paint(sgrCyan, "$ "+fmt.Sprintf(format, arguments...)))
}

// verdict prints one thing that had to be so, and whether it was. It returns good.
func (t *transcript) verdict(good bool, format string, arguments ...any) bool {
	mark := t.paint(sgrGreen, "ok")
	if !good {
		mark = t.paint(sgrRed, "NO")
	}
	fmt.Fprintf(t.out, "   %s %s\n", mark, fmt.Sprintf(format, arguments...))
	return good
}

// table prints rows under a head, every column as wide as it must be.
func (t *transcript) table(head []string, rows [][]string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(row []string) string {
		var out strings.Builder
		for i, cell := range row {
			out.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		return strings.TrimRight(out.String(), " ")
	}
	fmt.Fprintf(t.out, "\n   %s\n", t.paint(sgrDim, line(head)))
	for _, row := range rows {
		fmt.Fprintf(t.out, "   %s\n", line(row))
	}
	fmt.Fprintln(t.out)
}

// progress takes lines about what becomes ready.
func (t *transcript) progress() io.Writer { return indented{t} }

type indented struct{ *transcript }

func (i indented) Write(data []byte) (int, error) {
	for line := range strings.Lines(string(data)) {
		fmt.Fprintf(i.out, "   %s\n", i.paint(sgrDim, strings.TrimSpace(line)))
	}
	return len(data), nil
}
