package dns

import (
	"container/list"
	"net"
	"net/netip"
	"time"
)

// waiting is the open connections in the order in which each has last got a response, or began: the first has been silent for longest.
type waiting struct {
	order  *list.List // of *silence
	places map[net.Conn]*list.Element
}

// silence is one connection and since when it has not been answered.
type silence struct {
	conn   net.Conn
	client netip.Addr
	since  time.Time
}

func newWaiting() waiting {
	return waiting{order: list.New(), places: map[net.Conn]*list.Element{}}
}

// join appends a connection.
func (w *waiting) join(c net.Conn, client netip.Addr, now time.Time) {
	w.places[c] = w.order.PushBack(&silence{conn: c, client: client, since: now})
}

// answered moves a connection to the end, if it is there.
func (w *waiting) answered(c net.Conn, now time.Time) {
	if place := w.places[c]; place != nil {
		place.Value.(*silence).since = now
		w.order.MoveToBack(place)
	}
}

// longest is the first, if it has been silent since a moment or longer.
func (w *waiting) longest(until time.Time) (c net.Conn, client netip.Addr, found bool) {
	first := w.order.Front()
	if first == nil {
		return nil, netip.Addr{}, false
	}
	s := first.Value.(*silence)
	return s.conn, s.client, !s.since.After(until)
}

// leave takes a connection out; false: it was not there.
func (w *waiting) leave(c net.Conn) bool {
	place := w.places[c]
	if place == nil {
		return false
	}
	w.order.Remove(place)
	delete(w.places, c)
	return true
}
