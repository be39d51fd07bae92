package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/bubble"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/steering"
)

// hookNodes are the other nodes as a hookRelay calls them; each call is noted in the order in which it ended.
type hookNodes struct {
	mu    sync.Mutex
	notes *[]string
	fail  map[int]error
}

func (h *hookNodes) Hook(_ context.Context, lnn int, phase cluster.HookPhase, addr netip.Addr, from, to cluster.Member) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.notes = append(*h.notes, fmt.Sprintf("%s on node %d: %s from %s to %s", phase, lnn, addr, from, to))
	return "", h.fail[lnn]
}

// relay makes a hookRelay whose own hooks append their phase to a file.
func relay(t *testing.T, nodes *hookNodes) (*hookRelay, func() []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "phases")
	var hooks []cluster.Hook
	for _, phase := range []cluster.HookPhase{cluster.HookPrepare, cluster.HookRelease, cluster.HookTake, cluster.HookDone} {
		hooks = append(hooks, cluster.Hook{Phase: phase, Timeout: 5 * time.Second,
			Command: []string{"/bin/sh", "-c", `echo "$HOLDFAST_PHASE here: $HOLDFAST_ADDRESS from ${HOLDFAST_FROM:-nobody} to $HOLDFAST_TO" >> ` + file}})
	}
	h := &hookRelay{
		runner: address.HookRunner{}, peers: nodes, others: func() []int { return []int{2, 3} }, hooks: func() []cluster.Hook { return hooks },
		event: func(string, string, string, map[string]string) {}, log: slog.New(slog.DiscardHandler),
	}
	return h, func() []string {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

var (
	movingAddr = netip.MustParseAddr("10.0.0.100")
	fromHere   = moveEnds{cluster.Member{LNN: 1, Interface: "eth0"}, cluster.Member{LNN: 2, Interface: "eth0"}}
)

// Samba bug 15858: during a staggered shutdown one node was not told to enter its grace period. The word before a move goes to
// all nodes, also to those that cannot answer well, before the old owner lets go.
func TestReport12PrepareOnAllNodesBeforeRelease(t *testing.T) {
	var notes []string
	nodes := &hookNodes{notes: &notes, fail: map[int]error{3: errors.New("it is shutting down")}}
	h, own := relay(t, nodes)
	w := wish{moving: map[netip.Addr]moveEnds{movingAddr: fromHere}}
	here := map[netip.Addr]bool{movingAddr: true}
	passed := make(chan struct{}, 1)
	if stay, _ := h.due(t.Context(), w, here, func() { passed <- struct{}{} }); !stay[movingAddr] {
		t.Error("the address leaves before anybody was told")
	}
	<-passed
	if stay, _ := h.due(t.Context(), w, here, nil); stay[movingAddr] {
		t.Error("the address stays although everybody was told")
	}
	h.gates.Wait()
	slices.Sort(notes)
	want := []string{"prepare on node 2: 10.0.0.100 from 1:eth0 to 2:eth0", "prepare on node 3: 10.0.0.100 from 1:eth0 to 2:eth0"}
	if !slices.Equal(notes, want) {
		t.Errorf("the others were told %q, want %q", notes, want)
	}
	if got := own(); !slices.Equal(got, []string{"prepare here: 10.0.0.100 from 1:eth0 to 2:eth0", "release here: 10.0.0.100 from 1:eth0 to 2:eth0"}) {
		t.Errorf("the old owner ran %q", got)
	}
}

func TestHooksOfATakeoverAreRunByTheNewOwner(t *testing.T) {
	var notes []string
	h, own := relay(t, &hookNodes{notes: &notes})
	to := moveEnds{to: cluster.Member{LNN: 1, Interface: "eth0"}}
	w := wish{holdings: []steering.Holding{{Address: movingAddr, Interface: "eth0"}}, moving: map[netip.Addr]moveEnds{movingAddr: to}}
	passed := make(chan struct{}, 1)
	if _, notYet := h.due(t.Context(), w, nil, func() { passed <- struct{}{} }); !notYet[movingAddr] {
		t.Error("the address is taken before anybody was told")
	}
	<-passed
	if _, notYet := h.due(t.Context(), w, nil, nil); notYet[movingAddr] {
		t.Error("the address waits although everybody was told")
	}
	h.afterTake(t.Context(), w, nil, map[netip.Addr]bool{movingAddr: true})
	h.gates.Wait()
	if len(notes) != 2 {
		t.Errorf("nobody ran prepare for a dead owner, so the new one must have all do it; told were %q", notes)
	}
	want := []string{"prepare here: 10.0.0.100 from nobody to 1:eth0", "take here: 10.0.0.100 from nobody to 1:eth0", "done here: 10.0.0.100 from nobody to 1:eth0"}
	if got := own(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHooksOfAPlannedMoveAreNotPreparedTwice(t *testing.T) {
	var notes []string
	h, own := relay(t, &hookNodes{notes: &notes})
	arrived := moveEnds{cluster.Member{LNN: 2, Interface: "eth0"}, cluster.Member{LNN: 1, Interface: "eth0"}}
	w := wish{holdings: []steering.Holding{{Address: movingAddr, Interface: "eth0"}}, moving: map[netip.Addr]moveEnds{movingAddr: arrived}}
	if _, notYet := h.due(t.Context(), w, nil, nil); notYet[movingAddr] {
		t.Error("the address waits for hooks that the old owner ran")
	}
	h.afterTake(t.Context(), w, nil, map[netip.Addr]bool{movingAddr: true})
	h.gates.Wait()
	if len(notes) != 0 {
		t.Errorf("the old owner prepared already; told were %q", notes)
	}
	if got := own(); len(got) != 2 || !strings.HasPrefix(got[0], "take") || !strings.HasPrefix(got[1], "done") {
		t.Errorf("got %q", got)
	}
	h.afterTake(t.Context(), w, map[netip.Addr]bool{movingAddr: true}, map[netip.Addr]bool{movingAddr: true})
	h.gates.Wait()
	if got := own(); len(got) != 2 {
		t.Errorf("what was held before is not taken again; got %q", got)
	}
}

// A hook that hangs for one address keeps nothing else waiting: what comes by failover meanwhile, and has no hook to wait for, is
// taken at once, and the address that leaves stays until its hooks have ended.
func TestAHungHookKeepsOnlyItsOwnAddress(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, kernel, hang := hungApplier()
		go a.Run(ctx)
		go a.reconciler.Run(ctx)
		one := steering.Holding{Address: movingAddr, Interface: "eth0", Kind: steering.Dynamic, Epoch: 7}
		other := one
		other.Address = netip.MustParseAddr("10.0.0.101")
		on := func(addr netip.Addr) bool {
			synctest.Wait()
			addresses, err := kernel.Addresses()
			return err == nil && slices.ContainsFunc(addresses, func(a link.Address) bool { return a.Prefix.Addr() == addr })
		}
		a.Want(wish{generation: 1, holdings: []steering.Holding{one}})
		if !on(movingAddr) {
			t.Fatal("the address is not on at first")
		}
		leaving := map[netip.Addr]moveEnds{movingAddr: fromHere}
		a.Want(wish{generation: 2, moving: leaving})
		time.Sleep(time.Minute)
		if !on(movingAddr) {
			t.Error("it left before its hook ended")
		}
		a.Want(wish{generation: 3, moving: leaving, holdings: []steering.Holding{other}})
		if !on(other.Address) || !on(movingAddr) {
			t.Error("what came meanwhile waits for the hook of another address, or that one left")
		}
		close(hang.release)
		if on(movingAddr) || !on(other.Address) {
			t.Error("its hook has ended, and it is still there, or the other one is not")
		}
	})
}
