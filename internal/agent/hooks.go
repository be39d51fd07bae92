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

// hookRelay runs the operator's hooks around moves: prepare on all nodes that are up, release on the old owner, take and done on
// the new one, in that order for each address. Addresses do not wait for each other's hooks: see gates. With no hooks configured it
// does nothing and costs nothing.
type hookRelay struct {
	runner address.HookRunner
	peers  hookCaller
	others func() []int // the nodes that are up, without this one
	hooks  func() []cluster.Hook
	event  func(kind, subject, message string, fields map[string]string)
	log    *slog.Logger
	gates  hookGates
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
