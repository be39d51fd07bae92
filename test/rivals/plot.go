package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The measures of the plot, in pixels.
const (
	plotWidth    = 1060
	plotLeft     = 150 // where the scale begins
	plotRight    = 770 // where it ends, and the numbers begin
	rowHeight    = 18
	headHeight   = 28
	topHeight    = 56
	bottomHeight = 62
	numbered     = 4 // with more decades only the tens have numbers
)

// row is one system under one fault.
type row struct {
	label, class string
	values       []float64
	note         string // the numbers, and what the dots do not show
}

// group is one fault.
type group struct {
	title string
	rows  []row
}

// plot draws every run of every case as a dot on a logarithmic scale of milliseconds, with median and 99th percentile, one row
// for each system under each fault. It follows the reader's choice of light or dark.
func plot(r report) string {
	groups := groupsOf(r)
	scale := scaleOf(groups)
	height := topHeight + bottomHeight
	for _, g := range groups {
		height += headHeight + rowHeight*len(g.rows)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12" role="img" aria-label="%s">`+"\n",
		plotWidth, height, "How long addresses did not answer after each fault, for each system, in milliseconds on a logarithmic scale")
	out.WriteString(plotStyle)
	fmt.Fprintf(&out, `  <text class="title" x="%d" y="22">How long an address did not answer its client</text>`+"\n", plotLeft)
	fmt.Fprintf(&out, `  <text class="note" x="%d" y="%d">median · 99th percentile · remarks</text>`+"\n", plotRight+12, topHeight-16)
	scale.grid(&out, topHeight-12, height-bottomHeight+4)
	y := topHeight
	for _, g := range groups {
		fmt.Fprintf(&out, `  <text class="head" x="8" y="%d">%s</text>`+"\n", y+12, html.EscapeString(g.title))
		y += headHeight
		for _, one := range g.rows {
			one.draw(&out, scale, y-4)
			y += rowHeight
		}
	}
	fmt.Fprintf(&out, `  <text x="%d" y="%d" text-anchor="middle">milliseconds, logarithmic</text>`+"\n", (plotLeft+plotRight)/2, y+38)
	fmt.Fprintf(&out, `  <text class="note" x="%d" y="%d" text-anchor="middle">dots: single runs · circle: median · bar: 99th percentile, with fewer than 100 runs the longest · held: the victim had the address still</text>`+"\n", (plotLeft+plotRight)/2, y+55)
	out.WriteString("</svg>\n")
	return out.String()
}

const plotStyle = `  <style>
    text { fill: #1f2328 } .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 } .note, .tick { fill: #57606a; font-size: 11px }
    .grid { stroke: #d0d7de } .fine { stroke: #eaeef2 }
    .holdfast { fill: #0969da; stroke: #0969da } .keepalived { fill: #bc4c00; stroke: #bc4c00 } .ctdb { fill: #8250df; stroke: #8250df }
    .run { fill-opacity: .35; stroke: none } .median { fill-opacity: 1; stroke: none } .p99 { stroke-width: 2.5 } .span { stroke-opacity: .45 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note, .tick { fill: #9198a1 } .grid { stroke: #3d444d } .fine { stroke: #21262d }
      .holdfast { fill: #58a6ff; stroke: #58a6ff } .keepalived { fill: #f0883e; stroke: #f0883e } .ctdb { fill: #bc8cff; stroke: #bc8cff }
      .run, .median { stroke: none }
    }
  </style>
`

// groupsOf arranges a report for the plot: the faults in their order, and the idle client at the end.
func groupsOf(r report) []group {
	var groups []group
	for _, f := range allFaults {
		g := group{title: f.name + ": " + f.meaning}
		for _, s := range r.Systems {
			i := slices.IndexFunc(s.Cases, func(c caseReport) bool { return c.Fault == f.name })
			if i < 0 {
				continue
			}
			g.rows = append(g.rows, rowOf(s.Name, s.Cases[i].GapsMS, remarks(s.Cases[i])...))
		}
		if len(g.rows) > 0 {
			groups = append(groups, g)
		}
	}
	idle := group{title: "link-cut, until an idle TCP client notices"}
	for _, s := range r.Systems {
		if s.Idle == nil {
			continue
		}
		var remarks []string
		if s.Idle.Unnoticed > 0 {
			remarks = append(remarks, fmt.Sprintf("not in %d of %d", s.Idle.Unnoticed, s.Idle.Runs))
		}
		idle.rows = append(idle.rows, rowOf(s.Name, s.Idle.AftersMS, remarks...))
	}
	if len(idle.rows) > 0 {
		groups = append(groups, idle)
	}
	return groups
}

// remarks are what the dots of a case do not show.
func remarks(c caseReport) []string {
	var all []string
	if c.Held > 0 {
		all = append(all, fmt.Sprintf("held %d/%d", c.Held, c.Runs))
	}
	if failed := len(c.Failures); failed > 0 {
		all = append(all, fmt.Sprintf("failed %d/%d", failed, failed+c.Runs))
	}
	return all
}

// rowOf makes a row, coloured by the first word of the system's name.
func rowOf(name string, values []float64, remarks ...string) row {
	class, _, _ := strings.Cut(name, " ")
	if len(values) > 0 {
		d := distributionOf(values)
		remarks = append([]string{ms(1, d.Median), ms(1, d.P99)}, remarks...)
	}
	return row{label: name, class: class, values: values, note: strings.Join(remarks, " · ")}
}

// decades is a logarithmic scale from 10^low to 10^high milliseconds.
type decades struct{ low, high int }

// scaleOf spans all values with whole decades; without any it is 1 ms to 1 s.
func scaleOf(groups []group) decades {
	least, most := math.Inf(1), math.Inf(-1)
	for _, g := range groups {
		for _, one := range g.rows {
			for _, value := range one.values {
				least, most = min(least, value), max(most, value)
			}
		}
	}
	if math.IsInf(least, 1) {
		return decades{0, 3}
	}
	low := int(math.Floor(math.Log10(max(least, 0.1))))
	return decades{low, max(low+1, int(math.Ceil(math.Log10(max(most, 0.1)))))}
}

// x is where a value lies.
func (d decades) x(value float64) float64 {
	share := (math.Log10(max(value, 0.1)) - float64(d.low)) / float64(d.high-d.low)
	return plotLeft + share*(plotRight-plotLeft)
}

// grid draws the lines of the scale and their numbers.
func (d decades) grid(out *strings.Builder, top, bottom int) {
	for decade := d.low; decade <= d.high; decade++ {
		for _, step := range []float64{1, 2, 5} {
			value := step * math.Pow10(decade)
			if step > 1 && decade == d.high {
				continue
			}
			class := "fine"
			if step == 1 {
				class = "grid"
			}
			x := d.x(value)
			fmt.Fprintf(out, `  <path class="%s" d="M%.1f %d V%d"/>`, class, x, top, bottom)
			if step == 1 || d.high-d.low <= numbered {
				fmt.Fprintf(out, `<text class="tick" x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, bottom+14, plain(value))
			}
			out.WriteString("\n")
		}
	}
}

// plain writes a tick's number with thousands apart.
func plain(value float64) string {
	if value >= 10000 {
		return fmt.Sprintf("%.0f\u2009000", value/1000)
	}
	return fmt.Sprintf("%g", value)
}

// draw draws a row whose middle is at y.
func (r row) draw(out *strings.Builder, d decades, y int) {
	fmt.Fprintf(out, `  <text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLeft-10, y+4, html.EscapeString(r.label))
	fmt.Fprintf(out, `  <text class="note" x="%d" y="%d">%s</text>`+"\n", plotRight+12, y+4, html.EscapeString(r.note))
	if len(r.values) == 0 {
		return
	}
	fmt.Fprintf(out, `  <g class="%s"><path class="span" d="M%.1f %d H%.1f"/>`, html.EscapeString(r.class), d.x(slices.Min(r.values)), y, d.x(slices.Max(r.values)))
	for _, value := range r.values {
		fmt.Fprintf(out, `<circle class="run" cx="%.1f" cy="%d" r="2.5"/>`, d.x(value), y)
	}
	spread := distributionOf(r.values)
	fmt.Fprintf(out, `<path class="p99" d="M%.1f %d V%d"/><circle class="median" cx="%.1f" cy="%d" r="4.5"/></g>`+"\n", d.x(spread.P99), y-6, y+6, d.x(spread.Median), y)
}
