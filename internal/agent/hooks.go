package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
)

// hookRelay runs the operator's hooks around moves: prepare on all nodes, release on the old owner, take and done on the new
// one, in that order for each address. With no hooks configured it does nothing and costs nothing.
type hookRelay struct {
	runner address.HookRunner
	peers  hookCaller
	others func() []int
	hooks  func() []cluster.Hook
	event  func(kind, subject, message string, fields map[string]string)
	log    *slog.Logger
}

type hookCaller interface {
	// Hook runs one phase on another node and returns its output.
	Hook(ctx context.Context, lnn int, phase cluster.HookPhase, addr netip.Addr, from, to cluster.Member) (output string, err error)
}

// hookCallExtra is what a call to another node may take beyond the hook's own timeout.
const hookCallExtra = time.Second

func (h *hookRelay) has(phase cluster.HookPhase) bool {
	for _, hook := range h.hooks() {
		if hook.Phase == phase {
			return true
		}
	}
	return false
}

// beforeRelease runs prepare everywhere and release here, for addresses that leave by a planned move.
func (h *hookRelay) beforeRelease(ctx context.Context, w wish, held map[netip.Addr]bool) {
	wanted := w.wanted()
	for addr, ends := range w.moving {
		if !held[addr] || wanted[addr] {
			continue
		}
		h.everywhere(ctx, cluster.HookPrepare, addr, ends)
		h.here(ctx, cluster.HookRelease, addr, ends)
	}
}

// beforeTake runs prepare everywhere for addresses that come by failover: nobody ran it for them. After a planned move the old
// owner did.
func (h *hookRelay) beforeTake(ctx context.Context, w wish, held map[netip.Addr]bool) {
	if !h.has(cluster.HookPrepare) {
		return
	}
	for _, holding := range w.holdings {
		if ends, moving := w.moving[holding.Address]; !held[holding.Address] && moving && ends.from.IsZero() {
			h.everywhere(ctx, cluster.HookPrepare, holding.Address, ends)
		}
	}
}

// afterTake runs take and done here for what came.
func (h *hookRelay) afterTake(ctx context.Context, w wish, before, held map[netip.Addr]bool) {
	for _, holding := range w.holdings {
		if held[holding.Address] && !before[holding.Address] {
			ends := w.moving[holding.Address]
			h.here(ctx, cluster.HookTake, holding.Address, ends)
			h.here(ctx, cluster.HookDone, holding.Address, ends)
		}
	}
}

func (w wish) wanted() map[netip.Addr]bool {
	wanted := make(map[netip.Addr]bool, len(w.holdings))
	for _, holding := range w.holdings {
		wanted[holding.Address] = true
	}
	return wanted
}

// here runs one phase on this node.
func (h *hookRelay) here(ctx context.Context, phase cluster.HookPhase, addr netip.Addr, ends moveEnds) {
	if !h.has(phase) {
		return
	}
	for _, result := range h.runner.Run(ctx, h.hooks(), address.HookCall{Phase: phase, Address: addr, From: ends.from, To: ends.to}) {
		h.report(phase, addr, "this node", result.Output, result.Err)
	}
}

// everywhere runs one phase on all nodes at once and waits for all of them, each bounded by its own timeout.
func (h *hookRelay) everywhere(ctx context.Context, phase cluster.HookPhase, addr netip.Addr, ends moveEnds) {
	if !h.has(phase) {
		return
	}
	limit := hookCallExtra
	for _, hook := range h.hooks() {
		if hook.Phase == phase {
			limit += hook.Timeout
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all sync.WaitGroup
	for _, lnn := range h.others() {
		all.Go(func() {
			output, err := h.peers.Hook(ctx, lnn, phase, addr, ends.from, ends.to)
			h.report(phase, addr, "node "+strconv.Itoa(lnn), output, err)
		})
	}
	h.here(ctx, phase, addr, ends)
	all.Wait()
}

// answer runs one phase at the wish of another node.
func (h *hookRelay) answer(ctx context.Context, phase cluster.HookPhase, addr netip.Addr, ends moveEnds) *holdfastv1.HookResponse {
	response := &holdfastv1.HookResponse{Ok: true}
	for _, result := range h.runner.Run(ctx, h.hooks(), address.HookCall{Phase: phase, Address: addr, From: ends.from, To: ends.to}) {
		h.report(phase, addr, "this node", result.Output, result.Err)
		response.Output += result.Output
		if result.Err != nil {
			response.Ok, response.Reason = false, result.Err.Error()
		}
	}
	return response
}

func (h *hookRelay) report(phase cluster.HookPhase, addr netip.Addr, where, output string, err error) {
	fields := map[string]string{"phase": string(phase), "where": where, "output": output}
	message := string(phase) + " hook ran on " + where
	if err != nil {
		fields["error"] = err.Error()
		message = string(phase) + " hook failed on " + where + ": " + err.Error()
		h.log.Warn("hook failed", "phase", phase, "address", addr, "where", where, "error", err)
	}
	h.event("hook."+string(phase), addr.String(), message, fields)
}
