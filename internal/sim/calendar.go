package sim

import "time"

// happening is something that is to happen.
type happening struct {
	at   time.Duration // since the beginning of the history
	turn uint64        // of those at one moment, what was entered first comes first
	what event
}

// event is what happens.
type event interface{ happen() }

// act is an event that is just done.
type act func()

func (a act) happen() { a() }

// calendar is what is to happen, as a heap whose first is what comes next.
type calendar struct {
	heap []happening
	turn uint64
}

// fan is how many entries of the heap are below one.
const fan = 4

func (h *happening) before(o *happening) bool { return h.at < o.at || h.at == o.at && h.turn < o.turn }

// enter puts something into the calendar.
func (c *calendar) enter(at time.Duration, what event) {
	c.turn++
	entry, i := happening{at, c.turn, what}, len(c.heap)
	c.heap = append(c.heap, entry)
	for i > 0 {
		parent := (i - 1) / fan
		if !entry.before(&c.heap[parent]) {
			break
		}
		c.heap[i] = c.heap[parent]
		i = parent
	}
	c.heap[i] = entry
}

// next takes out what comes first, if it comes before a moment.
func (c *calendar) next(until time.Duration) (happening, bool) {
	if len(c.heap) == 0 || c.heap[0].at > until {
		return happening{}, false
	}
	first, last := c.heap[0], len(c.heap)-1
	entry, i := c.heap[last], 0
	c.heap[last] = happening{}
	c.heap = c.heap[:last]
	for fan*i+1 < last {
		least := fan*i + 1
		for child := least + 1; child <= fan*i+fan && child < last; child++ {
			if c.heap[child].before(&c.heap[least]) {
				least = child
			}
		}
		if !c.heap[least].before(&entry) {
			break
		}
		c.heap[i] = c.heap[least]
		i = least
	}
	if last > 0 {
		c.heap[i] = entry
	}
	return first, true
}
