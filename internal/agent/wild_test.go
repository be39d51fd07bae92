package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/link/linktest"
)

// wildSeeds is how many histories the test plays unless HOLDFAST_TEST_SEEDS says "from-to".
const wildSeeds = 20

// TestRandomChanges plays random histories in which the operator changes things while the cluster has faults: pools change their
// ranges, names, methods and numbers, nodes are drained, agents are started anew on a kernel that has what their predecessor left,
// answers of the store are lost, its history is compacted, and kernels refuse.
func TestRandomChanges(t *testing.T) {
	from, to := uint64(0), uint64(wildSeeds)
	if first, last, given := strings.Cut(os.Getenv("HOLDFAST_TEST_SEEDS"), "-"); given {
		from, _ = strconv.ParseUint(first, 10, 64)
		to, _ = strconv.ParseUint(last, 10, 64)
	}
	for seed := from; seed < to; seed++ {
		t.Run(fmt.Sprintf("nodes fail, seed %d", seed), func(t *testing.T) { playWild(t, seed, true) })
		t.Run(fmt.Sprintf("kernels refuse, seed %d", seed), func(t *testing.T) { playWild(t, seed, false) })
	}
}

func playWild(t *testing.T, seed uint64, failing bool) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		random := rand.New(rand.NewPCG(seed, 2))
		var history []string
		defer func() {
			if t.Failed() {
				t.Logf("history: %s\n%s", strings.Join(history, "; "), c.story())
			}
		}()
		w := &wild{testCluster: c, random: random, dead: map[int]bool{}}
		for range 16 {
			what := ""
			if random.IntN(2) == 0 {
				what = w.change()
			} else if failing {
				what = w.fail()
			} else {
				what = w.refuse()
			}
			history = append(history, fmt.Sprintf("%s: %s", time.Now().Format("05.000"), what))
			c.pass(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
		history = append(history, time.Now().Format("05.000")+": all is well")
		w.mend()
		for range 9000 { // hold-downs that grew with the faults last for minutes
			if c.spreadIs(3, 3, 3, 3) && c.everybodyServes() {
				c.pass(3 * time.Second)
				if c.spreadIs(3, 3, 3, 3) && c.everybodyServes() {
					return
				}
			}
			time.Sleep(100 * time.Millisecond)
			c.pass(5 * time.Millisecond)
		}
		t.Fatal("when all was well again, not everything was held, or not evenly")
	})
}

type wild struct {
	*testCluster
	random    *rand.Rand
	dead      map[int]bool
	storeAway bool
}

// configurations are what an operator may put into effect; each keeps the nodes.
var configurations = map[string]string{
	"as at first":             testConfig,
	"fewer addresses":         strings.Replace(testConfig, "10.0.0.100-10.0.0.111", "10.0.0.100-10.0.0.105", 1),
	"other addresses":         strings.Replace(testConfig, "10.0.0.100-10.0.0.111", "10.0.0.106-10.0.0.117", 1),
	"static":                  strings.Replace(testConfig, "alloc-method: dynamic", "alloc-method: static", 1),
	"static and few":          strings.NewReplacer("alloc-method: dynamic", "alloc-method: static", "10.0.0.100-10.0.0.111", "10.0.0.104-10.0.0.107").Replace(testConfig),
	"two pools":               testConfig[:strings.Index(testConfig, "          - {name: pool0")] + twoPools,
	"another name":            strings.ReplaceAll(testConfig, "pool0", "pool9"),
	"another subnet":          strings.ReplaceAll(testConfig, "subnet0", "subnet9"),
	"no pool":                 strings.Replace(testConfig[:strings.Index(testConfig, "        pools:")], "\n        pools:", "", 1),
	"fewer members":           strings.Replace(testConfig, allMembers, membersBut3, 1),
	"one service address":     strings.Replace(testConfig, "10.0.0.4-10.0.0.6", "10.0.0.5-10.0.0.5", 1),
	"pool and service change": strings.NewReplacer("10.0.0.4-10.0.0.6", "10.0.0.109-10.0.0.111", "10.0.0.100-10.0.0.111", "10.0.0.4-10.0.0.6").Replace(testConfig),
}

var configurationNames = []string{"as at first", "fewer addresses", "other addresses", "static", "static and few", "two pools", "another name",
	"another subnet", "no pool", "fewer members", "one service address", "pool and service change"}

// change is something that an operator does.
func (w *wild) change() string {
	lnn := 1 + w.random.IntN(4)
	switch w.random.IntN(4) {
	case 0:
		on := w.random.IntN(2) == 0
		w.try(func() { w.drain(lnn, on) })
		return fmt.Sprintf("node %d drains: %v", lnn, on)
	default:
		name := configurationNames[w.random.IntN(len(configurationNames))]
		w.try(func() { w.applyText(configurations[name]) })
		return "configuration " + name
	}
}

// try does what needs the store, if it is there.
func (w *wild) try(f func()) {
	if w.storeAway {
		return
	}
	f()
}

// fail is a fault of nodes, network or store.
func (w *wild) fail() string {
	lnn, on := 1+w.random.IntN(4), w.random.IntN(2) == 0
	n := w.nodes[lnn]
	switch w.random.IntN(10) {
	case 0:
		if !w.dead[lnn] && len(w.dead) == 0 {
			w.kill(lnn)
			w.dead[lnn] = true
			return fmt.Sprintf("node %d dies", lnn)
		}
	case 1:
		if w.dead[lnn] {
			w.startAlone(lnn)
			delete(w.dead, lnn)
			return fmt.Sprintf("node %d starts", lnn)
		}
	case 2:
		if !w.dead[lnn] {
			w.restartAlone(lnn)
			return fmt.Sprintf("node %d's agent starts anew", lnn)
		}
	case 3:
		w.isolate(lnn, on)
		return fmt.Sprintf("node %d is isolated: %v", lnn, on)
	case 4:
		w.store.LoseQuorum(on)
		w.storeAway = on
		return fmt.Sprintf("the store has no quorum: %v", on)
	case 5:
		n.store.Cut(on)
		return fmt.Sprintf("node %d is cut off from the store: %v", lnn, on)
	case 6:
		other := 1 + w.random.IntN(4)
		w.net.Lock()
		w.cut[[2]int{lnn, other}] = on
		w.net.Unlock()
		return fmt.Sprintf("node %d cannot ask node %d: %v", lnn, other, on)
	case 7:
		n.store.LoseAnswers(1 + w.random.IntN(3))
		return fmt.Sprintf("the store's next answers to node %d are lost", lnn)
	case 8:
		w.store.Compact()
		return "the store forgets its history"
	case 9:
		n.kernel.Fail(func(o link.Operation) error {
			if on && o.Verb != link.Remove {
				return errKernel
			}
			return nil
		})
		return fmt.Sprintf("node %d's kernel adds and renews nothing: %v", lnn, on)
	}
	return "nothing"
}

// refuse is a kernel that does not do what it is told, in a cluster whose nodes all work: a node that had to let go at once could not.
func (w *wild) refuse() string {
	lnn := 1 + w.random.IntN(4)
	n := w.nodes[lnn]
	switch w.random.IntN(4) {
	case 0:
		n.kernel.Fail(keepsAddresses)
		return fmt.Sprintf("node %d's kernel removes nothing", lnn)
	case 1:
		n.kernel.Fail(func(link.Operation) error { return errors.New("the kernel does nothing") })
		return fmt.Sprintf("node %d's kernel does nothing", lnn)
	case 2:
		n.kernel.Fail(nil)
		return fmt.Sprintf("node %d's kernel does everything", lnn)
	default:
		carrier := w.random.IntN(2) == 0
		i := linktest.Ethernet(2, "eth0")
		i.Carrier = carrier
		n.kernel.SetInterface(i)
		return fmt.Sprintf("node %d has carrier: %v", lnn, carrier)
	}
}

// mend makes all well and puts the first configuration into effect.
func (w *wild) mend() {
	for lnn, n := range w.nodes {
		n.kernel.Fail(nil)
		n.kernel.SetInterface(linktest.Ethernet(2, "eth0"))
		n.store.LoseAnswers(0)
		w.isolate(lnn, false)
	}
	w.net.Lock()
	clear(w.cut)
	w.net.Unlock()
	w.store.LoseQuorum(false)
	for lnn := range w.dead {
		w.startAlone(lnn)
	}
	for lnn := range w.nodes {
		w.drain(lnn, false)
	}
	w.applyText(testConfig)
}
