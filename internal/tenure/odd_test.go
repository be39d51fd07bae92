package tenure

import (
	"slices"
	"testing"
)

// Of an even number of nodes the last that hosts no member of the store is nobody's observer, so that one half of two that lose each other
// goes on.
func TestAnOddNumberObserves(t *testing.T) {
	voters := func(all []Voice, lnns ...int) []Voice {
		for i := range all {
			all[i].Voter = slices.Contains(lnns, all[i].LNN)
		}
		return all
	}
	dead := func(all []Voice, lnn int) []Voice {
		all[lnn-1].Over = true
		return all
	}
	for _, c := range []struct {
		name   string
		self   int
		voices []Voice
		want   []int
	}{
		{"three: all others", 1, voices(3), []int{2, 3}},
		{"four: not the last", 1, voices(4), []int{2, 3}},
		{"whom the others observe", 4, voices(4), []int{1, 2, 3}},
		{"not one that hosts the store, if another does not", 1, voters(voices(4), 1, 3, 4), []int{3, 4}},
		{"with one dead, three: all others", 1, dead(voices(4), 3), []int{2, 4}},
		{"five: all others", 2, voices(5), []int{1, 3, 4, 5}},
		{"six: not the last", 2, voices(6), []int{1, 3, 4, 5}},
		{"two: the second depends on the first", 2, voices(2), []int{1}},
	} {
		if got := ChooseObservers(c.self, c.voices, nil); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
