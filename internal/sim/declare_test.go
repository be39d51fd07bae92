package sim

import (
	"testing"
	"time"
)

// TestDeclaredDead: of a majority that is gone nobody finds out; an operator's word lets the rest hold everything. A node that has power is
// not declared dead, and one that comes back is a later incarnation.
func TestDeclaredDead(t *testing.T) {
	s := setUp(Scenario{Seed: 1, Nodes: 3, Multiplier: 3, Interval: 100 * time.Millisecond, Addresses: 3, Networks: 1, External: true, Delay: time.Millisecond}, Unbroken, nil)
	s.play(8 * time.Second)
	if s.declare(Fault{}) {
		t.Error("nodes with power were declared dead")
	}
	for _, lnn := range []int{2, 3} {
		s.node(lnn).unpowered++
		s.node(lnn).powerOff()
	}
	if s.declare(Fault{Node: 2}) {
		t.Error("one that was just heard was declared dead")
	}
	s.play(s.now + 6*time.Second)
	if len(s.missing()) == 0 {
		t.Fatal("the rest holds everything without an operator's word")
	}
	s.declareDead(Fault{})
	s.play(s.now + 6*time.Second)
	if without := s.missing(); len(without) > 0 {
		t.Errorf("nobody holds %v", without)
	}
	if record, _ := s.store.entries[memberKey(3)].value.(memberRecord); !record.Declared || !record.Over {
		t.Errorf("the word is not on record: %+v", record)
	}
	for _, lnn := range []int{2, 3} {
		s.node(lnn).unpowered--
	}
	s.settle()
	s.awaitHolders()
	if s.node(1).process.peer.Declared(3) || s.node(3).named < 2 {
		t.Errorf("it has come back under incarnation %d, and is said to be dead", s.node(3).named)
	}
}
