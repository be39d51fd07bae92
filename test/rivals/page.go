package main

import (
	"fmt"
	"slices"
	"strings"
)

// picture is where the page finds the plot.
const picture = "images/failover-gaps.svg"

// page writes the section of docs/benchmarks.md: how it is measured, the picture, the tables, and what could not be measured.
func page(r report) string {
	var out strings.Builder
	out.WriteString(howMeasured(r.ProbeMS, r.Beside))
	fmt.Fprintf(&out, "\n%s, %s; began %s; rounds: %d.\n", r.Machine, r.Kernel, r.Began.Format("2006-01-02 15:04 MST"), r.Rounds)
	fmt.Fprintf(&out, "\n![Gaps for each fault and system, on a logarithmic scale](%s)\n", picture)
	out.WriteString("\n| system | settings | version |\n|---|---|---|\n")
	for _, s := range r.Systems {
		fmt.Fprintf(&out, "| %s | %s | %s |\n", s.Name, cell(s.Settings), cell(s.Version))
	}
	out.WriteString(gapTable(r))
	out.WriteString(idleTable(r))
	out.WriteString(notMeasured(r))
	return out.String()
}

// howMeasured is what a reader must know of the numbers.
func howMeasured(probeMS, beside int) string {
	return fmt.Sprintf(`Every system runs in the same lab: four nodes, twelve addresses, three of them on each node, one client, one switch, all in network
namespaces of this machine. Where a node would run the agent it runs keepalived or ctdbd. The systems take turns in each round,
one lab at a time; those whose gaps are seconds have each fault done once in a turn, after the others, with %d labs at once. The client sends an echo
request to each address every %d ms. The gap is the longest time for which any address did not answer, from before the fault
until the addresses had moved and a second more. A run counts only if the client's packets for every address were seen to go to
nodes other than the victim afterwards, by the MAC address.

keepalived has the priorities that favour it most (254 for the first choice, one less for each further one); its planned move
is a reload with the lowest priority. CTDB has its usual event scripts, and its cluster lock in a file that every node reaches at
all times; the victim is not its leader; its planned move is one `+"`ctdb moveip`"+` for each address. "Held" counts the runs in which the
victim had an address on its interface a second after other nodes had taken them all: until clients learn of the other node the
victim's kernel goes on answering, which makes the gap short, and for whoever does not learn of it two nodes hold one address.

An idle client has a TCP connection to the victim and sends nothing. It is timed from the cut of the link until its own stack
tells it that the connection is gone, and given up %.0f s after the failover. keepalived knows of no connections; ctdb is
told of this one by `+"`ctdb addtickle`"+`, as its event scripts for NFS do.

    RIVALROUNDS=20 RIVALREPEATS=5 RIVALBESIDE=5 make bench
`, beside, probeMS, idlePatience.Seconds())
}

func gapTable(r report) string {
	var out strings.Builder
	out.WriteString("\n| fault | system | runs | median | 99th percentile | longest | held |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, f := range allFaults {
		name := fmt.Sprintf("%s: %s", f.name, f.meaning)
		for _, s := range r.Systems {
			i := slices.IndexFunc(s.Cases, func(c caseReport) bool { return c.Fault == f.name })
			if i < 0 {
				continue
			}
			c := s.Cases[i]
			fmt.Fprintf(&out, "| %s | %s | %d | %s | %s | %s | %d |\n", name, s.Name, c.Runs,
				ms(c.Runs, c.GapMS.Median), ms(c.Runs, c.GapMS.P99), ms(c.Runs, c.GapMS.Max), c.Held)
			name = ""
		}
	}
	return out.String()
}

func idleTable(r report) string {
	var out strings.Builder
	for _, s := range r.Systems {
		if s.Idle == nil {
			continue
		}
		if out.Len() == 0 {
			out.WriteString("\n| idle client after a link cut | runs | median | 99th percentile | longest | noticed nothing |\n|---|--:|--:|--:|--:|--:|\n")
		}
		n := len(s.Idle.AftersMS)
		fmt.Fprintf(&out, "| %s | %d | %s | %s | %s | %d |\n", s.Name, s.Idle.Runs,
			ms(n, s.Idle.AfterMS.Median), ms(n, s.Idle.AfterMS.P99), ms(n, s.Idle.AfterMS.Max), s.Idle.Unnoticed)
	}
	return out.String()
}

// notMeasured names everything that is missing in the tables, with the reason. At most so many runs are told for each case.
func notMeasured(r report) string {
	const most = 3
	var lines []string
	for _, s := range r.Systems {
		if s.Absent != "" {
			lines = append(lines, fmt.Sprintf("- %s: %s", s.Name, s.Absent))
		}
		for _, trouble := range s.Troubles {
			lines = append(lines, fmt.Sprintf("- %s did not come up in a round: %s", s.Name, trouble))
		}
		for _, c := range s.Cases {
			for i, why := range c.Failures {
				if i == most {
					lines = append(lines, fmt.Sprintf("- %s, %s: %d more", s.Name, c.Fault, len(c.Failures)-most))
					break
				}
				lines = append(lines, fmt.Sprintf("- %s, %s: %s", s.Name, c.Fault, why))
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\nNot measured, or not counted:\n\n" + strings.Join(lines, "\n") + "\n"
}

// ms writes milliseconds; a dash for what no run measured.
func ms(runs int, value float64) string {
	if runs == 0 {
		return "-"
	}
	if value < 100 {
		return fmt.Sprintf("%.1f ms", value)
	}
	return fmt.Sprintf("%.0f ms", value)
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
