package main

import (
	"fmt"
	"strings"
)

// picture is where the page finds the plot.
const picture = "images/names.svg"

// Those that others are compared with.
const (
	limitName = "bare C responder"
	rivalName = "gdnsd"
)

// page writes the section of docs/benchmarks.md.
func page(r report) string {
	var out strings.Builder
	out.WriteString(`All servers are up at once, each kept to the same processor with one worker; a generator of ours on another processor asks each in
turn, round by round. What it asks for are 100 names of one zone. Holdfast picks an address for each answer (round robin over 7 nodes with 3 addresses
each, shared rotation; weighted: weights of 10, 20 and 30), with rate limiting on and its limit out of reach. gdnsd answers
with one plain address, or by weight with one of three that it checks. PowerDNS Lua picks by weight (shared state). The others answer with one plain
address; so does the responder in C, which copies the question without looking at it, in batches of 32 by recvmmsg and sendmmsg. All rate limits are off.

"Alike" is the most that can be asked: names of one length, 32 queries handed to the kernel as one segmented datagram (UDP_SEGMENT), from four sockets with
256 queries under way on each; answers of one size that go to one client leave as segments too, where a server does that (Holdfast does).
"Unlike" has names of seven lengths in turn, so that hardly any two datagrams can be put together, on either side. Ratios are medians of those within each round. Latency is
at 10,000 queries a second from one socket. Processor time includes what the kernel does in the server's name; much of the way over the loopback is
done in the generator's. On two processors each server has two workers`)
	out.WriteString(", and where the machine has no more the generator shares them, so that these figures compare and say no more.\n\n    NAMEROUNDS=5 make bench SECTIONS=names\n")
	fmt.Fprintf(&out, "\n%s, %s; began %s, load %s, at the end %s; rounds: %d of %g s.\n", r.Machine, r.Kernel, r.Began.Format("2006-01-02 15:04 MST"), r.LoadBefore, r.LoadAfter, r.Rounds, r.Seconds)
	fmt.Fprintf(&out, "\n![Answers a second on one processor, for each server](%s)\n", picture)
	out.WriteString(answersTable(r, 1))
	out.WriteString(latencyTable(r))
	out.WriteString(answersTable(r, 2))
	out.WriteString(missing(r))
	return out.String()
}

func answersTable(r report, workers int) string {
	var out strings.Builder
	for _, s := range r.Servers {
		if len(s.values(alike, workers, perSecond)) == 0 {
			continue
		}
		if out.Len() == 0 {
			fmt.Fprintf(&out, "\n| on %s | alike | of gdnsd | of bare C | processor | unlike | of gdnsd | of bare C | processor |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
				map[int]string{1: "one processor", 2: "two processors"}[workers])
		}
		fmt.Fprintf(&out, "| %s |", s.Name)
		for _, how := range []string{alike, unlike} {
			fmt.Fprintf(&out, " %.0fk/s | %s | %s | %.2f µs |", median(s.values(how, workers, perSecond))/1000,
				times(r.ratio(&s, rivalName, how, workers)), times(r.ratio(&s, limitName, how, workers)),
				median(s.values(how, workers, func(r run) float64 { return r.NanosecondsEach }))/1000)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// times writes a ratio.
func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

func latencyTable(r report) string {
	var out strings.Builder
	out.WriteString("\n| at 10,000/s | median | 99th percentile | processor | resident memory | version |\n|---|--:|--:|--:|--:|---|\n")
	for _, s := range r.Servers {
		if len(s.values(paced, 1, perSecond)) == 0 {
			continue
		}
		fmt.Fprintf(&out, "| %s | %.0f µs | %.0f µs | %.1f µs | %.0f MB | %s |\n", s.Name,
			median(s.values(paced, 1, func(r run) float64 { return r.P50 })), median(s.values(paced, 1, func(r run) float64 { return r.P99 })),
			median(s.values(paced, 1, func(r run) float64 { return r.NanosecondsEach }))/1000, float64(s.ResidentBytes)/1e6, strings.ReplaceAll(s.Version, "|", "/"))
	}
	return out.String()
}

// missing says what could not be measured.
func missing(r report) string {
	var out strings.Builder
	for _, s := range r.Servers {
		if s.Missing != "" {
			fmt.Fprintf(&out, "\nNot measured: %s, because %s.\n", s.Name, strings.TrimSpace(s.Missing))
		}
		for _, failure := range s.Failures {
			fmt.Fprintf(&out, "\nA run of %s failed: %s.\n", s.Name, strings.TrimSpace(failure))
		}
	}
	return out.String()
}
