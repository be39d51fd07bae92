package grants

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Window is a time of the week. One that ends at or before its beginning goes on until the next day, and belongs to the day on which it begins.
type Window struct {
	Days        [7]bool // by time.Weekday
	Begin, End  int     // minutes after midnight, by the clock on the wall; End up to 24 h
	days, hours string  // as they were written
}

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

const minutesOfDay = 24 * 60

// ParseWindow reads days, as mon-fri or sat,sun or daily, and hours, as 08:00-18:00; empty ones mean every day and all day.
func ParseWindow(days, hours string) (Window, error) {
	w := Window{End: minutesOfDay, days: days, hours: hours}
	if days == "" || days == "daily" {
		w.days, w.Days = "daily", [7]bool{true, true, true, true, true, true, true}
	} else {
		for part := range strings.SplitSeq(days, ",") {
			from, to, two := strings.Cut(strings.TrimSpace(part), "-")
			if !two {
				to = from
			}
			first, last := dayNamed(from), dayNamed(to)
			if first < 0 || last < 0 {
				return Window{}, fmt.Errorf("%.40q is no day and no span of days: write mon-fri, or sat,sun", part)
			}
			for d := first; ; d = (d + 1) % 7 {
				if w.Days[d] = true; d == last {
					break
				}
			}
		}
	}
	if hours == "" {
		w.hours = "all day"
		return w, nil
	}
	begin, end, two := strings.Cut(hours, "-")
	var ok1, ok2 bool
	w.Begin, ok1 = minuteOf(begin)
	w.End, ok2 = minuteOf(end)
	if !two || !ok1 || !ok2 || w.Begin == w.End || w.Begin == minutesOfDay {
		return Window{}, fmt.Errorf("%.40q are no hours: write 08:00-18:00, or 22:00-06:00 for a night", hours)
	}
	return w, nil
}

func dayNamed(text string) int {
	for i, name := range dayNames {
		if strings.EqualFold(strings.TrimSpace(text), name) {
			return i
		}
	}
	return -1
}

func minuteOf(text string) (int, bool) {
	h, m, found := strings.Cut(strings.TrimSpace(text), ":")
	hour, err1 := strconv.Atoi(h)
	minute, err2 := strconv.Atoi(m)
	at := hour*60 + minute
	if !found || len(h) > 2 || len(m) != 2 || err1 != nil || err2 != nil || hour < 0 || minute < 0 || minute > 59 || at > minutesOfDay {
		return 0, false
	}
	return at, true
}

// Has tells whether a moment is within the window, by the clock on the wall where it is.
func (w Window) Has(at time.Time) bool {
	minute, today := at.Hour()*60+at.Minute(), int(at.Weekday())
	if w.Begin < w.End {
		return w.Days[today] && minute >= w.Begin && minute < w.End
	}
	return w.Days[today] && minute >= w.Begin || w.Days[(today+6)%7] && minute < w.End
}

// String is the window as it was written.
func (w Window) String() string { return w.days + " " + w.hours }
