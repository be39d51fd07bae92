package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
)

// observePools turns what is known of the pools' members into problems, and ends those of pools that are no longer configured.
func (l *loop) observePools(w *steering.World, now time.Time) {
	known := map[string]bool{}
	for id := range w.Pools { // one that is no longer configured has a record until everybody has let go
		known[id.String()] = true
	}
	for _, id := range w.Config.Pools() {
		known[id.String()] = true
		pool, _, _, _ := w.Config.Pool(id)
		fit, unfit := fitNodes(w, id)
		nobody := len(fit) == 0 && len(unfit) > 0 && !w.Settling
		alone := len(fit) == 1 && len(unfit) > 0 && pool.AllocMethod == cluster.AllocDynamic && !w.Settling
		detail := ""
		if nobody || alone {
			detail = fewReasons(unfit)
		}
		l.board.Is(nobody, problemNobodyFit, id.String(), detail, now)
		l.board.Is(alone, problemNoSuccessor, id.String(), "only "+strings.Join(fit[:min(len(fit), 1)], "")+" is fit; "+detail, now)
	}
	for _, active := range l.board.List() {
		ofPool := slices.Contains([]*problem.Kind{problemNobodyFit, problemNoSuccessor, problemUneven, problemOrphaned}, active.Kind)
		if ofPool && !known[active.Subject] {
			l.board.Clear(active.Kind, active.Subject)
		}
	}
}

// fitNodes names the nodes with a fit member interface, and says of the others why they have none.
func fitNodes(w *steering.World, id cluster.PoolID) (fit, unfit []string) {
	lnn, name, fits, why := 0, "", false, ""
	end := func() {
		switch {
		case lnn == 0:
		case fits:
			fit = append(fit, name)
		default:
			unfit = append(unfit, name+": "+why)
		}
	}
	steering.Fitness(w, id, func(m cluster.Member, node, reason string) { // sorted by member, so that those of one node are neighbours
		if m.LNN != lnn {
			end()
			lnn, name, fits, why = m.LNN, node, false, reason
		}
		fits = fits || reason == ""
	})
	end()
	return fit, unfit
}

// fewReasons lists the first few.
func fewReasons(reasons []string) string {
	const few = 4
	if len(reasons) > few {
		return fmt.Sprintf("%s; and %d more", strings.Join(reasons[:few-1], "; "), len(reasons)-few+1)
	}
	return strings.Join(reasons, "; ")
}

// observeEvenness says when a pool waits for an operator.
func (l *loop) observeEvenness(w *steering.World, id cluster.PoolID, evenness steering.Evenness, now time.Time) {
	waits := evenness.Moves > 0 && evenness.Operator
	detail := ""
	if waits {
		detail = unevenText(w, id, evenness)
	}
	l.board.Is(waits, problemUneven, id.String(), detail, now)
}

// unevenText says how uneven a pool is and what it waits for; empty when it is even.
func unevenText(w *steering.World, id cluster.PoolID, evenness steering.Evenness) string {
	if evenness.Moves == 0 {
		return ""
	}
	if evenness.May {
		return fmt.Sprintf("%s are about to move: %s", plural(evenness.Moves, "address", "addresses"), evenness.Reason)
	}
	text := fmt.Sprintf("a rebalance would move %s (%s): %s", plural(evenness.Moves, "address", "addresses"), spreadText(w, id), evenness.Reason)
	if evenness.Wait > 0 {
		text += fmt.Sprintf(", another %s", evenness.Wait.Round(100*time.Millisecond))
	}
	return text
}

// spreadText says how many addresses each node of a pool holds, the most first; of many nodes only the ends.
func spreadText(w *steering.World, id cluster.PoolID) string {
	held := counts(w.Pools[id])
	lnns := lnnsOf(w.Config.Members(id))
	slices.SortStableFunc(lnns, func(a, b int) int { return held[b] - held[a] })
	const few = 6
	var parts []string
	for i, lnn := range lnns {
		if len(lnns) > few && i == few-2 {
			parts = append(parts, "...")
		} else if len(lnns) <= few || i < few-2 || i == len(lnns)-1 {
			parts = append(parts, fmt.Sprintf("%s has %d", nameOf(w, lnn), held[lnn]))
		}
	}
	return strings.Join(parts, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
