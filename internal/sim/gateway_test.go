package sim

import "testing"

// TestTwoWithoutAWitness: storms of two nodes that ask the gateway are few among all histories; here are only those.
func TestTwoWithoutAWitness(t *testing.T) {
	count := 40
	if testing.Short() {
		count = 5
	}
	for seed := uint64(1); count > 0; seed++ {
		scenario := Generate(seed)
		if !scenario.NoWitness {
			continue
		}
		count--
		if r := Play(scenario, Options{}); r.Failure != "" {
			t.Errorf("seed %d failed after %s: %s", seed, r.At, r.Failure)
		}
	}
}

// A story of two that are cut from each other shows that both hold the same: that is what no-witness costs, and nothing else is excused.
func TestWhatNoWitnessCosts(t *testing.T) {
	for kind, want := range map[FailureKind]bool{TwoHolders: true, RightOfOver: true, WithoutRight: true, GivenByForce: true, KeptTooLong: false, NoHolder: false, MoveTooLong: false} {
		scenario, _ := Directed("two are cut from each other", 1)
		s := setUp(scenario, Unbroken, nil)
		if s.excused(kind) {
			t.Errorf("%s is excused while nothing is wrong", kind)
		}
		end := s.cause(Fault{Kind: Cut, Node: 1, Other: 2})
		if s.excused(kind) != want {
			t.Errorf("%s is excused while the link is cut: %t", kind, !want)
		}
		silent := s.cause(Fault{Kind: Gateway, Node: 1})
		s.now = s.gateway.heard
		if s.excused(kind) {
			t.Errorf("%s is excused although the gateway does not answer one of them", kind)
		}
		silent()
		end()
		if s.now = s.gateway.heard; s.excused(kind) {
			t.Errorf("%s is excused after they have heard each other again", kind)
		}
	}
}
