package placement

import (
	"cmp"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// choose finds the eligible choice that is next, without counting it. The account is in line with choices.
func (r *Rotation) choose(policy cluster.Policy, choices []Choice) int {
	if m := measureOf(policy); m != byNumber {
		if s := r.survey(m, choices); s.known > 0 {
			return r.chooseByLoad(m, choices, s)
		}
	}
	best := -1
	for i := range choices {
		if choices[i].Eligible && (best < 0 || r.before(i, best, r.crowded)) {
			best = i
		}
	}
	return best
}

// middle is the position that counts: the middle of the next answer. It spreads the answers of heavy nodes among those of
// light ones.
func (t *turnOf) middle() position { return t.start + t.step/2 }

// quickChoice does the work of prepare and choose in one pass for the usual case: the same nodes as at the last Pick, all
// taking part as then, and under a measured policy all with a load that counts. It changes nothing. False: not usual.
func (r *Rotation) quickChoice(policy cluster.Policy, choices []Choice) (best int, usual bool) {
	if len(choices) != r.aligned {
		return -1, false
	}
	m := measureOf(policy)
	best, least, next := -1, 0.0, position(0)
	turns := r.turns[:len(choices)]
	for i := range turns {
		c, t := &choices[i], &turns[i]
		if t.lnn != c.LNN || t.weight != c.Weight || t.taking != c.Eligible || t.step == 0 {
			return -1, false
		}
		if !c.Eligible {
			continue
		}
		score, at := 0.0, t.middle()
		switch {
		case m != byNumber:
			if !c.Load.counts(m) {
				return -1, false
			}
			score = t.loadScore(m, &c.Load)
		case t.start+maxLag < r.now:
			return -1, false
		case r.crowded:
			score = float64(t.own + t.step/2)
		}
		if best < 0 || score < least || score == least && (at < next || at == next && t.waitedLonger(&turns[best])) {
			best, least, next = i, score, at
		}
	}
	return best, true
}

// before reports whether the turn of choice i lies before the one of choice j; with byOwn, in one's own answers first.
func (r *Rotation) before(i, j int, byOwn bool) bool {
	a, b := &r.turns[i], &r.turns[j]
	if byOwn {
		if ownA, ownB := a.own+a.step/2, b.own+b.step/2; ownA != ownB {
			return ownA < ownB
		}
	}
	atA, atB := a.middle(), b.middle()
	return atA < atB || atA == atB && a.waitedLonger(b)
}

// waitedLonger breaks ties: whose last answer is older comes first, of two without any the lower LNN.
func (t *turnOf) waitedLonger(than *turnOf) bool {
	return t.recent < than.recent || t.recent == than.recent && t.lnn < than.lnn
}

// survey is what a measured policy needs to know of all choices together.
type survey struct {
	known       int     // eligible choices with a load that counts
	meanUse     float64 // of their samples
	meanAnswers float64 // of what their answers since then count for
}

func (r *Rotation) survey(m measure, choices []Choice) survey {
	var s survey
	for i := range choices {
		c := &choices[i]
		if !c.Eligible || !c.Load.counts(m) {
			continue
		}
		s.known++
		s.meanUse += r.turns[i].use(m, &c.Load)
		s.meanAnswers += r.turns[i].answersCount(m)
	}
	if s.known > 0 {
		s.meanUse /= float64(s.known)
		s.meanAnswers /= float64(s.known)
	}
	return s
}

// use is how much of the node's capacity was in use at its sample: connections for each unit of weight, or a share.
func (t *turnOf) use(m measure, load *Load) float64 { return load.use(m, t.inverse) }

// answersCount is what the answers since the node's last sample count for, in the same measure.
func (t *turnOf) answersCount(m measure) float64 {
	count := float64(t.answers) * t.inverse
	if m != byConnections {
		count *= answerShare
	}
	return count
}

// loadScore is the load of a node whose sample counts.
func (t *turnOf) loadScore(m measure, load *Load) float64 {
	return t.use(m, load) + t.answersCount(m)
}

func (r *Rotation) chooseByLoad(m measure, choices []Choice, s survey) int {
	best, least := -1, 0.0
	for i := range choices {
		if !choices[i].Eligible {
			continue
		}
		score := r.score(m, &choices[i], i, s)
		if best < 0 || score < least || score == least && r.before(i, best, false) {
			best, least = i, score
		}
	}
	return best
}

// score is the load of a choice. One without a load that counts stands at the mean of the others' samples; its own
// answers are counted as far as the others have got answers too, as no sample will ever set them back.
func (r *Rotation) score(m measure, c *Choice, i int, s survey) float64 {
	t := &r.turns[i]
	if c.Load.counts(m) {
		return t.loadScore(m, &c.Load)
	}
	return s.meanUse + min(t.answersCount(m), s.meanAnswers)
}

// Explain is the Decision that the next Pick with these arguments will make, without making it.
func (r *Rotation) Explain(policy cluster.Policy, choices []Choice, now time.Time) Decision {
	preview := r.Clone()
	preview.prepare(policy, choices)
	best := preview.choose(policy, choices)
	var s survey
	m := measureOf(policy)
	if m != byNumber {
		s = preview.survey(m, choices)
	}
	d := Decision{At: now}
	for i := range choices {
		c := &choices[i]
		if !c.Eligible {
			d.LeftOut = append(d.LeftOut, Excluded{Name: c.Name, Reason: cmp.Or(c.Why, noReason)})
			continue
		}
		considered := Considered{Name: c.Name, Weight: clampWeight(c.Weight)}
		if s.known > 0 {
			considered.Score = preview.score(m, c, i, s)
			considered.Note = preview.loadNote(m, c, i)
			if c.Load.counts(m) {
				d.DataAge = max(d.DataAge, c.Load.Age)
			}
		} else {
			considered.Score, considered.Note = preview.turnsAway(i, best)
		}
		d.Among = append(d.Among, considered)
	}
	d.Reason = pickReason(policy, choices, best, s)
	if best >= 0 {
		d.Chosen = choices[best].Name
	}
	return d
}

// turnsAway is how far choice i is behind the chosen one in the fair order, in turns of a node of weight 1.
func (r *Rotation) turnsAway(i, best int) (float64, string) {
	a, b := &r.turns[i], &r.turns[best]
	away := (float64(a.middle()) - float64(b.middle())) / float64(turn)
	if i == best {
		return 0, "its turn is next"
	}
	return away, "its turn is " + strconv.FormatFloat(away, 'f', 2, 64) + " later"
}

// loadNote says what the score of choice i is made of.
func (r *Rotation) loadNote(m measure, c *Choice, i int) string {
	since := strconv.FormatUint(uint64(r.turns[i].answers), 10) + " answers since the last sample"
	if !c.Load.counts(m) {
		if c.Load.Known {
			return "its load is stale and counts as the mean of the others; " + since
		}
		return "its load is not known and counts as the mean of the others; " + since
	}
	age := ", sampled " + c.Load.Age.Round(time.Millisecond).String() + " ago; " + since
	switch m {
	case byConnections:
		return strconv.Itoa(max(c.Load.Connections, 0)) + " connections" + age
	case byThroughput:
		return percent(c.Load.Throughput) + " of its link in use" + age
	}
	return percent(c.Load.CPU) + " of its processor busy" + age
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + "%" }

func pickReason(policy cluster.Policy, choices []Choice, best int, s survey) string {
	if policy == "" {
		policy = cluster.RoundRobin
	}
	switch {
	case len(choices) == 0:
		return "the pool has no node"
	case best < 0:
		return "no node is eligible"
	case s.known > 0:
		return string(policy) + ": " + choices[best].Name + " has the least load"
	case measureOf(policy) != byNumber:
		return string(policy) + ": no load is known and fresh, so the nodes take turns; it is " + choices[best].Name + "'s"
	}
	return string(policy) + ": it is " + choices[best].Name + "'s turn"
}
