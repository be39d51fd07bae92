package main

import (
	"fmt"
	"slices"
	"strings"
)

// page is the section for docs/benchmarks.md.
func page(r report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Client, target and jump host are %s; each way has aes128-gcm and curve25519-sha256. All is on the loopback interface of one machine, which the ends share\n", r.Version)
	fmt.Fprintf(&out, "with what is between them. The ways take turns; \"of direct\" is the median of the ratios within a round. A transfer is %d MiB of /dev/zero\n", r.MiB)
	fmt.Fprintf(&out, "with its connecting (a quarter of it, as text, in a terminal, all of which the gateway records). Connecting is a client that runs `true`.\n\n")
	fmt.Fprintf(&out, "| transfer | way | rounds | MiB a second, median | lowest | highest | of direct |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, t := range transfers {
		for _, w := range ways {
			if rates := r.Transfers[t.name][w.name]; len(rates) > 0 {
				fmt.Fprintf(&out, "| %s | %s | %d | %.0f | %.0f | %.0f | %.0f%% |\n", t.name, w.name, len(rates), at(rates, 50), slices.Min(rates), slices.Max(rates), 100*at(ratios(rates, r.Transfers[t.name]["direct"]), 50))
			}
		}
	}
	fmt.Fprintf(&out, "\n| way | connects | median | 99th percentile | more than direct, median | 99th percentile |\n|---|--:|--:|--:|--:|--:|\n")
	for _, w := range ways {
		if times := r.Connects[w.name]; len(times) > 0 {
			more := differences(times, r.Connects["direct"])
			fmt.Fprintf(&out, "| %s | %d | %.1f ms | %.1f ms | %.1f ms | %.1f ms |\n", w.name, len(times), 1000*at(times, 50), 1000*at(times, 99), 1000*at(more, 50), 1000*at(more, 99))
		}
	}
	return out.String()
}

// at is a percentile: the smallest figure that so many in a hundred do not exceed.
func at(figures []float64, percent int) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// ratios are those of figures of the same round.
func ratios(of, to []float64) []float64 {
	out := make([]float64, min(len(of), len(to)))
	for i := range out {
		out[i] = of[i] / to[i]
	}
	return out
}

func differences(of, to []float64) []float64 {
	out := make([]float64, min(len(of), len(to)))
	for i := range out {
		out[i] = of[i] - to[i]
	}
	return out
}
