package datagram_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/holdfast/holdfast/internal/tenure/datagram"
	"github.com/holdfast/holdfast/internal/tenure/datagram/datagramtest"
)

// TestSuccessorGoesOn: a second link that goes on from the first one's memory and sockets is the same session for the others: nothing is
// said again, what came meanwhile is heard, and what was taken before is not taken again.
func TestSuccessorGoesOn(t *testing.T) {
	a, b := pair(t, four)
	fds, err := a.Share()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan []byte)
	if err := a.Pause(func(m datagram.Memory) bool {
		data, err := json.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		written <- data
		return false
	}); err != nil {
		t.Fatal(err)
	}
	var m datagram.Memory
	if err := json.Unmarshal(<-written, &m); err != nil {
		t.Fatal(err)
	}
	b.says(t, 1, 0, 102) // nobody reads it yet
	hellos := b.shows(t, "hellos_total", "said")

	o := options(1, a.Local()[0])
	o.Adopted = fds
	l := open(t, o)
	l.Resume(m)
	l.SetPeers(map[int][]netip.AddrPort{2: b.Local()})
	successor := &node{Link: l, Player: datagramtest.NewPlayer(1, l)}
	successor.Player.Play(t)
	successor.hears(t, 102)
	successor.says(t, 2, 0, 103)
	b.hears(t, 100, 103)
	if now := b.shows(t, "hellos_total", "said"); now != hellos {
		t.Errorf("the other node had to say hello %v times", now-hellos)
	}
}

// TestPausedAndGoesOn: a link whose successor failed goes on as if nothing had happened.
func TestPausedAndGoesOn(t *testing.T) {
	a, b := pair(t, four)
	if err := a.Pause(func(datagram.Memory) bool { return true }); err != nil {
		t.Fatal(err)
	}
	a.says(t, 2, 0, 104)
	b.hears(t, 100, 104)
	b.says(t, 1, 0, 105)
	a.hears(t, 101, 105)
}
