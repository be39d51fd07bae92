package tenure

import "time"

// happening is one thing that is to happen in the world of the tests: something that is done, or a message that arrives.
type happening struct {
	at     time.Duration
	turn   int
	do     func()
	flight *flight
}

func (h *happening) before(other *happening) bool {
	return h.at < other.at || h.at == other.at && h.turn < other.turn
}

// calendar is a heap, by hand because it is what most of the time of these tests goes to.
type calendar []happening

func (c *calendar) push(h happening) {
	*c = append(*c, h)
	a := *c
	i := len(a) - 1
	for ; i > 0; i = (i - 1) / 2 {
		parent := &a[(i-1)/2]
		if !h.before(parent) {
			break
		}
		a[i] = *parent
	}
	a[i] = h
}

func (c *calendar) pop() happening {
	a := *c
	first, last := a[0], a[len(a)-1]
	a[len(a)-1] = happening{}
	a = a[:len(a)-1]
	*c = a
	for i := 0; len(a) > 0; {
		child := 2*i + 1
		if child+1 < len(a) && a[child+1].before(&a[child]) {
			child++
		}
		if child >= len(a) || !a[child].before(&last) {
			a[i] = last
			break
		}
		a[i] = a[child]
		i = child
	}
	return first
}
