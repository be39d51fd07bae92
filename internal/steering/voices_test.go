package steering

import "testing"

// The second of two voices hosts nothing that moves, and what does not move it keeps. A third voice, or an operator's word that the
// first is dead, ends that.
func TestTwoVoices(t *testing.T) {
	m := newModel(t, 2, 6, "")
	m.settle()
	expect(t, "two voices", m.spread(), map[int]int{1: 6, 2: 0})
	expect(t, "service addresses", m.serviceSpread(), map[int]int{1: 3})
	if why := m.world(1).UnfitFor(poolID, m.world(1).Config.Members(poolID)[1]); why != dependence {
		t.Errorf("node 2 is unfit because %q", why)
	}
	m.kill(2)
	m.settle()
	expect(t, "without the second", m.spread(), map[int]int{1: 6})
	m.start(2)
	m.kill(1)
	m.nodes[1].Declared = true
	m.settle()
	expect(t, "the first declared dead", m.spread(), map[int]int{2: 6})

	alike := newModel(t, 2, 6, "")
	alike.config.Settings.NoWitness = true
	alike.settle()
	expect(t, "two voices that ask the gateway", alike.spread(), map[int]int{1: 3, 2: 3})

	static := newModel(t, 2, 6, "")
	pool, _, _, _ := static.config.Pool(poolID)
	pool.AllocMethod = "static"
	static.settle()
	expect(t, "a static pool", static.spread(), map[int]int{1: 1, 2: 1})

	three := newModel(t, 3, 6, "")
	three.settle()
	expect(t, "three voices", three.spread(), map[int]int{1: 2, 2: 2, 3: 2})
}
