package placement

import (
	"math"
	"slices"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Choice is one node that a DNS answer may name.
type Choice struct {
	LNN      int // unique in a list of choices
	Name     string
	Weight   int // see MaxWeight
	Eligible bool
	Why      string // when not eligible: the reason, for messages
	Load     Load
}

// Bounds of a Rotation. MaxTurns is the number of nodes that it keeps account of; answers of other holders for nodes
// beyond it are not counted, see Rotation.Ignored. A node that is more than maxLag behind the foremost one, or all others
// where one is that far ahead, has its difference forgiven: nobody is herded or starved for long because of what other
// holders did or a peer claimed. Positions are moved down at rebaseAt, so that they never overflow.
const (
	MaxTurns = 1024

	maxLag    = turn << 3
	shortRuns = 8 // see Rotation.lookForCrowd
	rebaseAt  = position(1) << 60
)

// position counts answers in weighted fair order: an answer of a node with weight w advances it by turn/w.
type position uint64

const turn position = 1 << 24

// Rotation is the state of one pool's connection policy on one holder: how far each node has come in the weighted fair
// order, and how many answers named it since its last load sample. The zero value is ready. It is for one caller at a
// time, and a copy of one that is in use shares its account: use Clone.
//
// The order is that of fair queueing: the eligible node whose next turn lies earliest is next, and each answer moves its
// next turn on by 1/weight. With equal weights any n answers in a row name n nodes. A node that joins or returns starts
// at the position where the others are: it gets its share from now on, but nothing for the time it was away.
//
// Answers of other holders count like one's own, so that holders that hear of each other after each answer are together
// as even as one. Where they hear of each other only after whole rounds, all would make up for the same differences and
// together overshoot them; each then keeps its own answers even (crowded), and the sum differs by at most their number.
type Rotation struct {
	turns   []turnOf // the first ones in the order of the last choices; others, which were only heard of, follow
	aligned int      // how many of turns belong to the last choices
	now     position // the latest start of an answer that was given or merged
	count   uint64   // answers and merges so far
	run     int      // own answers since the last Merge
	longRun bool     // the last run that ended was a whole round or longer
	shorts  int      // runs in a row that ended before a whole round
	crowded bool     // others answer at the same time: own answers are kept even by themselves
	known   uint64   // answers given and merged, and what an adopted Standing knew
	ignored uint64
}

// turnOf is one node's account.
type turnOf struct {
	lnn     int
	weight  int
	inverse float64  // 1/weight
	step    position // turn/weight; 0: the weight is not known yet
	start   position // where its next answer starts
	recent  uint64   // Rotation.count at its last answer: of equal ones the one that waited longest is next
	own     position // like start, of own answers alone
	pending uint32   // merged answers that wait for the weight to be known
	answers uint32   // own and merged, since its last load sample
	taking  bool     // it was eligible at the last Pick
}

// Clone copies the state.
func (r *Rotation) Clone() *Rotation {
	copied := *r
	copied.turns = slices.Clone(r.turns)
	return &copied
}

// CopyFrom makes r a copy of another, in r's own memory where that is large enough.
func (r *Rotation) CopyFrom(other *Rotation) {
	turns := append(r.turns[:0], other.turns...)
	*r = *other
	r.turns = turns
}

// Ignored is how many merges were not counted, as MaxTurns nodes were on account already.
func (r *Rotation) Ignored() uint64 { return r.ignored }

// Pick chooses the next answer and counts it. It gives the index of the chosen node in choices, or -1 if none is
// eligible. While the same nodes are listed in the same order it allocates nothing.
//
// round_robin takes the nodes by turns. The measured policies take the node with the least load, where each answer since
// the node's last sample counts as a connection or as one hundredth of a node of weight 1; equal nodes are taken by
// turns, the lower LNN first. A node whose load is not known or stale counts at the mean of the others.
func (r *Rotation) Pick(policy cluster.Policy, choices []Choice) int {
	best, usual := r.quickChoice(policy, choices)
	if !usual {
		r.prepare(policy, choices)
		best = r.choose(policy, choices)
	}
	if best < 0 {
		return best
	}
	t := &r.turns[best]
	t.answers = addSaturating(t.answers, 1)
	t.own += t.step
	r.run++
	r.known++
	r.advance(t, 1)
	return best
}

// prepare brings the account in line with the choices. Under a measured policy nodes may fall behind: load decides.
func (r *Rotation) prepare(policy cluster.Policy, choices []Choice) {
	m := measureOf(policy)
	if !r.inLine(choices) {
		r.align(choices)
	}
	joining := false
	for i := range choices {
		t := &r.turns[i]
		if t.weight != choices[i].Weight || t.step == 0 {
			r.setWeight(t, choices[i].Weight)
		}
		if !choices[i].Eligible {
			t.taking = false
		} else if !t.taking || m == byNumber && t.start+maxLag < r.now {
			t.taking = false
			joining = true
		}
	}
	if joining {
		r.join(choices)
	}
}

// inLine reports whether the account lists the nodes in the order of choices.
func (r *Rotation) inLine(choices []Choice) bool {
	if len(choices) != r.aligned {
		return false
	}
	for i := range choices {
		if r.turns[i].lnn != choices[i].LNN {
			return false
		}
	}
	return true
}

// align orders the account as choices are. Nodes that are not among them follow, as long as there is room.
func (r *Rotation) align(choices []Choice) {
	at := make(map[int]int, len(r.turns))
	for i := range r.turns {
		at[r.turns[i].lnn] = i
	}
	listed := make([]bool, len(r.turns))
	turns := make([]turnOf, 0, max(len(choices), len(r.turns)))
	for _, choice := range choices {
		i, found := at[choice.LNN]
		if !found || listed[i] {
			turns = append(turns, turnOf{lnn: choice.LNN})
			continue
		}
		listed[i] = true
		turns = append(turns, r.turns[i])
	}
	for i, t := range r.turns {
		if !listed[i] && len(turns) < MaxTurns {
			t.taking = false
			turns = append(turns, t)
		}
	}
	r.turns, r.aligned = turns, len(choices)
}

// setWeight makes a node's weight known and counts the merged answers that waited for it.
func (r *Rotation) setWeight(t *turnOf, weight int) {
	t.weight = weight
	t.step = turn / position(clampWeight(weight))
	t.inverse = 1 / float64(clampWeight(weight))
	if t.pending > 0 {
		r.advance(t, t.pending)
		t.pending = 0
	}
}

// join lets the nodes that are eligible but did not take part start where the others are.
func (r *Rotation) join(choices []Choice) {
	for i := range choices {
		if t := &r.turns[i]; choices[i].Eligible && !t.taking {
			t.start = max(t.start, r.now)
			t.taking = true
		}
	}
	r.forgetOwn()
}

// forgetOwn starts the account of own answers anew.
func (r *Rotation) forgetOwn() {
	for i := range r.turns {
		r.turns[i].own = 0
	}
}

// advance moves a node on by a number of answers.
func (r *Rotation) advance(t *turnOf, answers uint32) {
	if answers == 0 {
		return
	}
	r.count++
	t.recent = r.count
	t.start += position(answers) * t.step
	r.now = max(r.now, t.start-t.step)
	if r.now >= rebaseAt {
		r.rebase()
	}
}

// rebase moves all positions down, long before they overflow.
func (r *Rotation) rebase() {
	by := r.now - rebaseAt/2
	for i := range r.turns {
		r.turns[i].start -= min(r.turns[i].start, by)
	}
	r.now -= by
	r.forgetOwn()
}

// Merge counts answers that another holder gave for the same pool. Holders that merge each other's answers are together
// as even as one. All that one message tells is best merged without a Pick in between.
func (r *Rotation) Merge(lnn int, answers uint32) {
	if answers == 0 {
		return
	}
	r.known += uint64(answers)
	i := slices.IndexFunc(r.turns, func(t turnOf) bool { return t.lnn == lnn })
	if i < 0 {
		if len(r.turns) >= MaxTurns {
			r.ignored++
			return
		}
		i = len(r.turns)
		r.turns = append(r.turns, turnOf{lnn: lnn, start: r.now})
	}
	t := &r.turns[i]
	t.answers = addSaturating(t.answers, answers)
	if t.step == 0 {
		t.pending = addSaturating(t.pending, answers)
		return
	}
	r.lookForCrowd(t, answers)
	if !t.taking {
		t.start = max(t.start, r.now)
	}
	r.advance(t, answers)
}

// lookForCrowd finds out whether other holders answer at the same time. They do when after a whole round of own answers one message
// tells of whole rounds of theirs; they no longer do when time after time something is heard within less than a round.
func (r *Rotation) lookForCrowd(t *turnOf, answers uint32) {
	if r.run > 0 {
		r.longRun = r.run >= r.aligned
		r.run = 0
		r.shorts++
		if r.longRun {
			r.shorts = 0
		}
		r.crowded = r.crowded && r.shorts < shortRuns
	}
	if r.longRun && !r.crowded && position(answers)*t.step >= 2*turn {
		r.crowded = true
		r.settleOwn()
	}
}

// settleOwn starts the account of own answers anew if it was not even: there is no making up for what was right then.
func (r *Rotation) settleOwn() {
	least, most := position(math.MaxUint64), position(0)
	for i := range r.turns[:r.aligned] {
		if t := &r.turns[i]; t.taking {
			least, most = min(least, t.own), max(most, t.own)
		}
	}
	if most > least+turn {
		r.forgetOwn()
	}
}

// Sampled says that a fresh load sample of a node arrived: the answers that it shows are no longer counted by themselves.
func (r *Rotation) Sampled(lnn int) {
	for i := range r.turns {
		if r.turns[i].lnn == lnn {
			r.turns[i].answers = 0
			return
		}
	}
}

func addSaturating(a, b uint32) uint32 {
	if a > math.MaxUint32-b {
		return math.MaxUint32
	}
	return a + b
}
