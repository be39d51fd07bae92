// Command testreport reads the output of `go test -json` and prints what `go test` would have printed, and at the end
// every test that was skipped, with its reason: a skip that nobody sees is a test that nobody runs.
//
// It exits with 1 when a test, a package or a module failed, and when no test ran at all. It keeps the output of the
// tests that are running, and nothing else. Of a test that its process took with it when it crashed, it prints the
// first lines, which say why.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	r := newReport(os.Stdout)
	err := r.read(os.Stdin)
	r.close()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testreport: reading go test's output:", err)
		os.Exit(1)
	case r.failed():
		os.Exit(1)
	}
}

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	Test       string
	ImportPath string
	Output     string
	Elapsed    float64
}

// skip is a test that did not run.
type skip struct{ test, reason string }

type report struct {
	out     io.Writer
	output  map[string][]string // of each test that is running, by package and test
	passed  int
	faults  []string // what failed, in the order in which it ended
	skips   []skip
	modules bool // a module failed as a whole
}

func newReport(out io.Writer) *report { return &report{out: out, output: map[string][]string{}} }

// read takes events until the input ends. Lines that are no events go out as they are.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "{") && json.Unmarshal([]byte(text), &e) == nil {
			r.take(e)
		} else {
			fmt.Fprint(r.out, line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			r.output[key] = append(r.output[key], e.Output)
		}
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.faults = append(r.faults, e.ImportPath+" (build)")
	case "module-failed":
		r.modules = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(e, r.output[key])
		} else {
			r.testEnded(e, r.output[key])
		}
		delete(r.output, key)
	}
}

func (r *report) testEnded(e event, output []string) {
	name := shortPackage(e.Package) + "." + e.Test
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.faults = append(r.faults, name)
		fmt.Fprint(r.out, strings.Join(output, ""))
	case "skip":
		r.skips = append(r.skips, skip{name, reason(output)})
		return
	}
	r.skips = append(r.skips, within(name, output)...)
}

func (r *report) packageEnded(e event, output []string) {
	switch {
	case e.Action == "skip": // no test files
	case e.Action == "pass":
		cached := ""
		if strings.Contains(strings.Join(output, ""), "(cached)") {
			cached = " (cached)"
		}
		fmt.Fprintf(r.out, "ok    %-60s %7.1f s%s\n", e.Package, e.Elapsed, cached)
	default:
		for _, line := range output {
			if !strings.HasPrefix(line, "FAIL") { // that is said in our way
				fmt.Fprint(r.out, line)
			}
		}
		r.cutShort(e.Package)
		fmt.Fprintf(r.out, "FAIL  %-60s %7.1f s\n", e.Package, e.Elapsed)
		r.faults = append(r.faults, e.Package)
	}
}

// crashLines is how much is printed of a test that was running when its process ended; the rest are other goroutines.
const crashLines = 60

// cutShort tells of the tests that had not ended when their package did.
func (r *report) cutShort(of string) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		where, test, _ := strings.Cut(key, " ")
		if where != of || test == "" {
			continue
		}
		name, lines := shortPackage(of)+"."+test, r.output[key]
		fmt.Fprintf(r.out, "--- RUNNING when its process ended: %s\n%s", name, strings.Join(lines[:min(len(lines), crashLines)], ""))
		if more := len(lines) - crashLines; more > 0 {
			fmt.Fprintf(r.out, "    (%d more lines)\n", more)
		}
		r.faults = append(r.faults, name+" (cut short)")
		delete(r.output, key)
	}
}

func shortPackage(path string) string {
	return strings.TrimPrefix(path, "github.com/holdfast/holdfast/")
}

var (
	verdictLine  = regexp.MustCompile(`^\s*--- [A-Z]+: `)
	logLine      = regexp.MustCompile(`^\s*[a-z0-9_]+\.go:\d+: (.*)`)
	embeddedSkip = regexp.MustCompile(`^\s+--- SKIP: (\S+)`)
)

// reason is what a test said when it was skipped: the last thing that it logged.
func reason(output []string) string {
	lines := strings.Split(strings.Join(output, ""), "\n")
	for i, line := range slices.Backward(lines) {
		if match := logLine.FindStringSubmatch(line); match != nil {
			more := []string{match[1]}
			for _, next := range lines[i+1:] {
				if text := strings.TrimSpace(next); text != "" && !verdictLine.MatchString(next) {
					more = append(more, text)
				}
			}
			return strings.Join(more, " ")
		}
	}
	return "no reason given"
}

// within finds the tests that were skipped in a test run that a test started (as another user) and logged.
func within(name string, output []string) []skip {
	var skips []skip
	lines := strings.Split(strings.Join(output, ""), "\n")
	for i, line := range lines {
		match := embeddedSkip.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		// The log comes before the verdict in a verbose run, and after it otherwise.
		why := "no reason given"
		for _, j := range []int{i - 1, i + 1} {
			if j >= 0 && j < len(lines) {
				if log := logLine.FindStringSubmatch(lines[j]); log != nil {
					why = log[1]
					break
				}
			}
		}
		skips = append(skips, skip{name + ": " + match[1], why})
	}
	return skips
}

func (r *report) failed() bool { return len(r.faults) > 0 || r.modules || r.passed == 0 }

// close prints the end of the report: what was skipped and why, what failed, and the counts.
func (r *report) close() {
	byReason := map[string][]string{}
	var reasons []string
	for _, s := range r.skips {
		if byReason[s.reason] == nil {
			reasons = append(reasons, s.reason)
		}
		byReason[s.reason] = append(byReason[s.reason], s.test)
	}
	if len(reasons) > 0 {
		fmt.Fprintf(r.out, "\nSkipped:\n")
	}
	for _, why := range reasons {
		fmt.Fprintf(r.out, "  %s\n", why)
		for _, test := range byReason[why] {
			fmt.Fprintf(r.out, "      %s\n", test)
		}
	}
	if len(r.faults) > 0 {
		fmt.Fprintf(r.out, "\nFailed:\n  %s\n", strings.Join(r.faults, "\n  "))
	}
	if r.modules && len(r.faults) == 0 {
		fmt.Fprintf(r.out, "\nFailed: go test ended with an error; its own words are above\n")
	}
	fmt.Fprintf(r.out, "\n%d tests passed, %d failed, %d were skipped\n", r.passed, len(r.faults), len(r.skips))
}
