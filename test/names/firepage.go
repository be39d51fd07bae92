package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// firePage writes the section of docs/benchmarks.md about attacks.
func firePage(r fireReport) string {
	var out strings.Builder
	out.WriteString(`One server on all processors, with rate limiting and cookies as by default, the attacker and honest clients share one machine, in a network
namespace of their own. The attacker sends as many packets as one thread can, unless said otherwise. Honest clients ask 200 times a second over UDP,
one with a cookie, one without, and one without whose /24 the floods are forged to come from; one connects 20 times a second over TCP. Lost is what was
not answered within a second, without a second try; led is what was told to come over TCP. Sent to
attackers is what left for the forged sources; amplification its payload over that of what they sent (of SYN segments, packets with their headers).

    make bench SECTIONS=flood
`)
	if r.Family == 6 {
		out.Reset()
		out.WriteString("The same over IPv6, where the 65,536 sources are of 256 prefixes of /56, as they are of 256 /24 above.\n")
	}
	fmt.Fprintf(&out, "\n%s, %s; began %s, load %s, at the end %s; each attack %g s.\n", r.Machine, r.Kernel, r.Began.Format("2006-01-02 15:04 MST"), r.LoadBefore, r.LoadAfter, r.Seconds)
	out.WriteString("\n| attack | packets | sent to attackers | amplification | server's processors | for each query | its memory at the peak |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, a := range r.Attacks {
		cost := fmt.Sprintf("%.0f%% | %.1f µs | %.0f MB |", 100*a.Used.Seconds()/a.Seconds,
			float64(a.Used.Microseconds())/max(a.Counters["queries_total udp"]+a.Counters["queries_total tcp"], 1), float64(a.Memory)/1e6)
		if a.Fired.Connected > 0 {
			fmt.Fprintf(&out, "| %s | %.0f connections/s, %d open | - | - | %s\n", a.Title, float64(a.Fired.Sent)/a.Seconds, a.Fired.Connected, cost)
			continue
		}
		fmt.Fprintf(&out, "| %s | %s/s | %s/s | %s | %s\n", a.Title, thousands(float64(a.Fired.Sent)/a.Seconds), thousands(float64(a.Answers)/a.Seconds),
			factor(a.amplification()), cost)
	}
	for _, kind := range []struct{ name, title string }{{withCookie, "UDP with a cookie"}, {withoutCookie, "UDP without"}, {neighbour, "UDP without, from the forged /24"}, {overTCP, "TCP"}} {
		fmt.Fprintf(&out, "\n| honest: %s | answers/s before | during | after | median before | during | after | 99th before | during | after | lost during | led |\n", kind.title)
		out.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		for _, a := range r.Attacks {
			b, d, e := a.Before[kind.name], a.During[kind.name], a.After[kind.name]
			fmt.Fprintf(&out, "| %s | %.0f | %.0f | %.0f | %s | %s | %s | %s | %s | %s | %.1f%% | %.1f%% |\n", a.Title,
				float64(b.Answered)/calm.Seconds(), float64(d.Answered)/r.Seconds, float64(e.Answered)/calm.Seconds(),
				micros(b.P50), micros(d.P50), micros(e.P50), micros(b.P99), micros(d.P99), micros(e.P99), 100*d.lost(), 100*float64(d.Led)/float64(max(d.Asked, 1)))
		}
	}
	out.WriteString("\n| attack | what the counters say (`holdfast_dns_`, honest clients included; kernel: of the namespace) |\n|---|---|\n")
	for _, a := range r.Attacks {
		var told []string
		for _, name := range slices.Sorted(maps.Keys(a.Counters)) {
			told = append(told, fmt.Sprintf("`%s` %s", name, thousands(a.Counters[name])))
		}
		fmt.Fprintf(&out, "| %s | %s |\n", a.Title, strings.Join(told, ", "))
	}
	return out.String()
}

// thousands writes a large number short.
func thousands(n float64) string {
	switch {
	case n >= 10000:
		return fmt.Sprintf("%.0fk", n/1000)
	case n >= 1000:
		return fmt.Sprintf("%.1fk", n/1000)
	}
	return fmt.Sprintf("%.0f", n)
}

func factor(f float64) string {
	if math.IsNaN(f) {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

// micros writes a latency; none where nothing was answered.
func micros(us float64) string {
	switch {
	case us == 0:
		return "-"
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.1f ms", us/1000)
}
