package sim

import "time"

// happening is something that is to happen.
type happening struct {
	at   time.Duration // since the beginning of the history
	turn uint64        // of those at one moment, what was entered first comes first
	do   func()
}

// calendar is what is to happen, as a heap whose first is what comes next.
type calendar struct {
	heap []happening
	turn uint64
}

func (h happening) before(o happening) bool { return h.at < o.at || h.at == o.at && h.turn < o.turn }

// enter puts something into the calendar.
func (c *calendar) enter(at time.Duration, do func()) {
	c.turn++
	c.heap = append(c.heap, happening{at, c.turn, do})
	for i := len(c.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !c.heap[i].before(c.heap[parent]) {
			return
		}
		c.heap[i], c.heap[parent] = c.heap[parent], c.heap[i]
		i = parent
	}
}

// next takes out what comes first, if it comes before a moment.
func (c *calendar) next(until time.Duration) (happening, bool) {
	if len(c.heap) == 0 || c.heap[0].at > until {
		return happening{}, false
	}
	first, last := c.heap[0], len(c.heap)-1
	c.heap[0], c.heap[last] = c.heap[last], happening{}
	c.heap = c.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if c.heap[child].before(c.heap[least]) {
				least = child
			}
		}
		if least == i {
			return first, true
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
}
