package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// report is what was measured.
type report struct {
	Began      time.Time      `json:"began"`
	Machine    string         `json:"machine"`
	Kernel     string         `json:"kernel"`
	LoadBefore string         `json:"load_before"`
	LoadAfter  string         `json:"load_after"`
	Rounds     int            `json:"rounds"`
	Seconds    float64        `json:"seconds"`
	Servers    []serverReport `json:"servers"`
}

// serverReport is one server's part.
type serverReport struct {
	Name          string   `json:"name"`
	Version       string   `json:"version,omitempty"`
	Missing       string   `json:"missing,omitempty"` // why it was not measured
	ResidentBytes int      `json:"resident_bytes"`
	Runs          []run    `json:"runs"`
	Failures      []string `json:"failures,omitempty"`
}

// run is one run of one server.
type run struct {
	How     string `json:"how"`
	Workers int    `json:"workers"`
	heard
	NanosecondsEach float64 `json:"ns_each"` // of processor time of the server, what the kernel does in its name included
}

func newReport(rounds int, seconds float64) report {
	r := report{Began: time.Now().UTC(), Rounds: rounds, Seconds: seconds, LoadBefore: loadNow(), Machine: fmt.Sprintf("%d processors", runtime.NumCPU())}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				r.Machine = strings.TrimSpace(value) + ", " + r.Machine
				break
			}
		}
	}
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		r.Kernel = "Linux " + unix.ByteSliceToString(uname.Release[:])
	}
	return r
}

func loadNow() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:min(3, len(strings.Fields(string(text))))], " ")
}

// values are those of the runs of a kind.
func (s *serverReport) values(how string, workers int, of func(run) float64) (out []float64) {
	for _, r := range s.Runs {
		if r.How == how && r.Workers == workers {
			out = append(out, of(r))
		}
	}
	return out
}

func perSecond(r run) float64 { return r.PerSecond }

// median is the middle of values; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// ratio is the median of the ratios within the rounds to another server; 0 where they cannot be compared.
func (r *report) ratio(s *serverReport, to, how string, workers int) float64 {
	i := slices.IndexFunc(r.Servers, func(s serverReport) bool { return s.Name == to })
	if i < 0 {
		return 0
	}
	mine, others := s.values(how, workers, perSecond), r.Servers[i].values(how, workers, perSecond)
	if len(mine) != len(others) {
		return 0
	}
	var ratios []float64
	for k := range mine {
		ratios = append(ratios, mine[k]/others[k])
	}
	return median(ratios)
}
