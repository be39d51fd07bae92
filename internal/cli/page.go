package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// page is a text for people under construction.
type page struct {
	out    *strings.Builder
	colour bool
	now    time.Time
}

func (p *page) line(text string) { p.out.WriteString(clean(text) + "\n") }

func (p *page) linef(format string, args ...any) { p.line(fmt.Sprintf(format, args...)) }

func (p *page) blank() { p.out.WriteByte('\n') }

// title starts a section.
func (p *page) title(text string) {
	if p.out.Len() > 0 {
		p.blank()
	}
	if p.colour {
		p.out.WriteString("\x1b[1m" + clean(text) + "\x1b[0m\n")
		return
	}
	p.line(text)
}

// facts writes names and values in two columns; those without a value are left out.
func (p *page) facts(pairs ...[2]string) {
	width := 0
	for _, pair := range pairs {
		if pair[1] != "" {
			width = max(width, utf8.RuneCountInString(pair[0]))
		}
	}
	for _, pair := range pairs {
		if pair[1] != "" {
			p.out.WriteString(clean(pair[0]) + strings.Repeat(" ", width-utf8.RuneCountInString(pair[0])+2) + p.painted(clean(pair[1])) + "\n")
		}
	}
}

// table writes rows under headings, each column as wide as its widest cell. No heading, no heading line.
func (p *page) table(header []string, rows [][]string) {
	lines := rows
	if header != nil {
		lines = append([][]string{header}, rows...)
	}
	var widths []int
	for _, row := range lines {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(clean(cell)))
		}
	}
	for n, row := range lines {
		var b strings.Builder
		for i, cell := range row {
			cell = clean(cell)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
			if n > 0 || header == nil {
				cell = p.painted(cell)
			}
			b.WriteString(cell + pad)
		}
		p.out.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
}

// Colours of the words that mean good, doubtful and bad.
var wordColours = map[string]string{
	"up": "32", "held": "32", "in": "32", "yes": "32",
	"unfit": "33", "draining": "33", "moving": "33", "unknown": "33", "warning": "33", "stale": "33", "full": "33",
	"down": "31", "orphaned": "31", "unassigned": "31", "out": "31", "no": "31", "error": "31", "critical": "31",
}

func (p *page) painted(word string) string {
	if code, known := wordColours[word]; known && p.colour {
		return "\x1b[" + code + "m" + word + "\x1b[0m"
	}
	return word
}

// ago is how long something lasts, as people say it; a dash where nothing is known of it.
func (p *page) ago(stamp *timestamppb.Timestamp) string {
	if stamp == nil || stamp.AsTime().IsZero() || stamp.AsTime().Unix() == 0 {
		return "-"
	}
	return span(p.now.Sub(stamp.AsTime()))
}

// span writes a duration with its two largest units.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// count writes a number and its noun: "1 node", "3 nodes", "2 addresses".
func count[N ~int | ~int32](n N, noun string) string {
	if n != 1 {
		switch {
		case strings.HasSuffix(noun, "s"):
			noun += "es"
		default:
			noun += "s"
		}
	}
	return strconv.Itoa(int(n)) + " " + noun
}

func number[N ~int | ~int32 | ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func inOut(in bool) string {
	if in {
		return "in"
	}
	return "out"
}

// clean takes out what would steer the reader's terminal: a message may quote what came from the network.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
