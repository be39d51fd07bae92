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
	plotLeft     = 170
	plotRight    = 800
	rowHeight    = 18
	headHeight   = 28
	topHeight    = 56
	bottomHeight = 62
)

const plotStyle = `  <style>
    text { fill: #1f2328 } .title { font-size: 16px; font-weight: 600 } .head { font-weight: 600 } .note, .tick { fill: #57606a; font-size: 11px }
    .grid { stroke: #d0d7de } .holdfast { fill: #0969da; stroke: #0969da } .other { fill: #bc4c00; stroke: #bc4c00 } .bare { fill: #57606a; stroke: #57606a }
    .run { fill-opacity: .35; stroke: none } .median { fill-opacity: 1; stroke: none } .span { stroke-opacity: .45 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note, .tick { fill: #9198a1 } .grid { stroke: #3d444d }
      .holdfast { fill: #58a6ff; stroke: #58a6ff } .other { fill: #f0883e; stroke: #f0883e } .bare { fill: #9198a1; stroke: #9198a1 }
      .run, .median { stroke: none }
    }
  </style>
`

// plot draws every run on one processor as a dot, a row for each server, once for each way of asking. It follows the reader's choice of light or dark.
func plot(r report) string {
	ways := []struct{ how, title string }{{alike, "alike: names of one length, asked for in segments"}, {unlike, "unlike: names of seven lengths in turn"}}
	most, height := 1.0, topHeight+bottomHeight
	for _, way := range ways {
		height += headHeight
		for i := range r.Servers {
			if values := r.Servers[i].values(way.how, 1, perSecond); len(values) > 0 {
				most, height = max(most, slices.Max(values)), height+rowHeight
			}
		}
	}
	step := stepFor(most)
	most = math.Ceil(most/step) * step
	x := func(value float64) float64 { return plotLeft + value/most*(plotRight-plotLeft) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="12" role="img" aria-label="Answers a second on one processor, for each server">`+"\n", plotWidth, height)
	out.WriteString(plotStyle)
	fmt.Fprintf(&out, `  <text class="title" x="%d" y="22">Answers a second on one processor</text>`+"\n", plotLeft)
	fmt.Fprintf(&out, `  <text class="note" x="%d" y="%d">median · of gdnsd</text>`+"\n", plotRight+12, topHeight-16)
	for value := 0.0; value <= most; value += step {
		fmt.Fprintf(&out, `  <path class="grid" d="M%.1f %d V%d"/><text class="tick" x="%.1f" y="%d" text-anchor="middle">%.0fk</text>`+"\n", x(value), topHeight-12, height-bottomHeight+4, x(value), height-bottomHeight+18, value/1000)
	}
	y := topHeight
	for _, way := range ways {
		fmt.Fprintf(&out, `  <text class="head" x="8" y="%d">%s</text>`+"\n", y+12, html.EscapeString(way.title))
		y += headHeight
		for i := range r.Servers {
			s := &r.Servers[i]
			if values := s.values(way.how, 1, perSecond); len(values) > 0 {
				note := fmt.Sprintf("%.0fk · %s", median(values)/1000, times(r.ratio(s, rivalName, way.how, 1)))
				drawRow(&out, s.Name, note, values, x, y-4)
				y += rowHeight
			}
		}
	}
	fmt.Fprintf(&out, `  <text class="note" x="%d" y="%d" text-anchor="middle">dots: single runs · circle: median</text>`+"\n", (plotLeft+plotRight)/2, y+45)
	out.WriteString("</svg>\n")
	return out.String()
}

// stepFor is a round number of which the scale has up to ten.
func stepFor(most float64) float64 {
	step := math.Pow10(int(math.Floor(math.Log10(most))) - 1)
	for _, factor := range []float64{1, 2, 5, 10, 20} {
		if most/(step*factor) <= 10 {
			return step * factor
		}
	}
	return step * 50
}

func drawRow(out *strings.Builder, name, note string, values []float64, x func(float64) float64, y int) {
	class := "other"
	switch first, _, _ := strings.Cut(name, " "); first {
	case "holdfast", "bare":
		class = first
	}
	fmt.Fprintf(out, `  <text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLeft-10, y+4, html.EscapeString(name))
	fmt.Fprintf(out, `  <text class="note" x="%d" y="%d">%s</text>`+"\n", plotRight+12, y+4, html.EscapeString(note))
	fmt.Fprintf(out, `  <g class="%s"><path class="span" d="M%.1f %d H%.1f"/>`, class, x(slices.Min(values)), y, x(slices.Max(values)))
	for _, value := range values {
		fmt.Fprintf(out, `<circle class="run" cx="%.1f" cy="%d" r="2.5"/>`, x(value), y)
	}
	fmt.Fprintf(out, `<circle class="median" cx="%.1f" cy="%d" r="4.5"/></g>`+"\n", x(median(values)), y)
}
