// Command benchtable turns the output of `go test -bench` into a table for a page: for each benchmark and each thing that it
// measures, the median of its runs, the lowest and the highest.
//
// It reads standard input to the end and keeps all of it. It exits with 1 when there is no result in it.
package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	results, err := read(os.Stdin)
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("no benchmark ran")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
	write(os.Stdout, results)
}

// result is what the runs of one benchmark measured in one unit.
type result struct {
	name, unit string
	values     []float64
}

// read takes the lines of results (go.dev/design/14313-benchmark-format): name, iterations, then pairs of value and unit.
func read(in io.Reader) ([]*result, error) {
	var results []*result
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of processors
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q in %q is no number", fields[i], lines.Text())
			}
			at := slices.IndexFunc(results, func(r *result) bool { return r.name == name && r.unit == fields[i+1] })
			if at < 0 {
				at = len(results)
				results = append(results, &result{name: name, unit: fields[i+1]})
			}
			results[at].values = append(results[at].values, value)
		}
	}
	return results, lines.Err()
}

// measures are the units that Go's own benchmarks have, in words. Others say what they are themselves.
var measures = map[string]string{"ns/op": "time", "B/op": "memory", "allocs/op": "allocations"}

func write(out io.Writer, results []*result) {
	fmt.Fprint(out, "| benchmark | measured | median | lowest | highest |\n|---|---|--:|--:|--:|\n")
	last := ""
	for _, r := range results {
		name := r.name
		if name == last {
			name = ""
		}
		last = r.name
		sorted := slices.Sorted(slices.Values(r.values))
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", name, cmp.Or(measures[r.unit], strings.TrimSuffix(r.unit, "-ms")),
			quantity(sorted[len(sorted)/2], r.unit), quantity(sorted[0], r.unit), quantity(sorted[len(sorted)-1], r.unit))
	}
}

// quantity writes a value with a unit that keeps it short, to three digits.
func quantity(value float64, unit string) string {
	switch {
	case unit == "ns/op":
		return scaled(value, 1000, "ns", "µs", "ms", "s")
	case unit == "B/op":
		return scaled(value, 1024, "B", "KiB", "MiB", "GiB")
	case strings.HasSuffix(unit, "-ms"):
		return digits(value) + " ms"
	}
	return digits(value)
}

func scaled(value, step float64, units ...string) string {
	i := 0
	for value >= step && i < len(units)-1 {
		value, i = value/step, i+1
	}
	return digits(value) + " " + units[i]
}

// digits writes three of them, and all that are before the point.
func digits(value float64) string {
	switch {
	case value == float64(int64(value)) || value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(value, 'f', 1, 64)
	}
	return strconv.FormatFloat(value, 'f', 2, 64)
}
