package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
)

// nodeService is the local API: what the command line and the console ask. It answers from the view that the loop saw last and
// changes nothing but records in the store.
type nodeService struct{ *Agent }

// seen is the present view, or why there is none.
func (s nodeService) seen() (*view, error) {
	if v := s.view.Load(); v != nil {
		return v, nil
	}
	return nil, errNoView
}

func (s nodeService) GetConfig(context.Context, *holdfastv1.GetConfigRequest) (*holdfastv1.GetConfigResponse, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	return &holdfastv1.GetConfigResponse{Yaml: string(cluster.Print(v.world.Config)), Revision: v.configRevision}, nil
}

func (s nodeService) ApplyConfig(ctx context.Context, r *holdfastv1.ApplyConfigRequest) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	name := r.Name
	if name == "" {
		name = "the new configuration"
	}
	config, faults := cluster.ParseWithWarnings(name, []byte(r.Yaml))
	if len(faults.Errors()) > 0 {
		return &holdfastv1.ChangeResult{DryRun: r.Options.GetDryRun(), Faults: faultMessages(faults.Errors()), Revision: v.configRevision}, nil
	}
	result, err := s.change(ctx, v, config, r.ExpectedRevision, r.Options)
	if result != nil {
		result.Warnings = faultMessages(faults)
	}
	return result, err
}

func (s nodeService) Modify(ctx context.Context, r *holdfastv1.ModifyRequest) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	config, err := modified(v.world.Config, r)
	if err != nil {
		return refusal(err, r.Options, v)
	}
	result, err := s.change(ctx, v, config, r.ExpectedRevision, r.Options)
	if result != nil {
		result.Warnings = faultMessages(warningsOf(v.world.Config, config, r.Edits))
	}
	return result, err
}

// refusal answers with the faults where there are such; any other error is that something is not there.
func refusal(err error, options *holdfastv1.ChangeOptions, v *view) (*holdfastv1.ChangeResult, error) {
	var faults cluster.Faults
	if errors.As(err, &faults) {
		return &holdfastv1.ChangeResult{DryRun: options.GetDryRun(), Faults: faultMessages(faults), Revision: v.configRevision}, nil
	}
	return nil, api.NotFound("%v", err)
}

// change puts a configuration into the store, or says what it would do.
func (s nodeService) change(ctx context.Context, v *view, config *cluster.Config, expected int64, options *holdfastv1.ChangeOptions) (*holdfastv1.ChangeResult, error) {
	if expected != 0 && expected != v.configRevision {
		return nil, api.Changed("the configuration has changed meanwhile: it is at revision %d, not %d; read it again and repeat the change", v.configRevision, expected)
	}
	if faults := immovable(v.world.Config, config); len(faults) > 0 {
		return &holdfastv1.ChangeResult{DryRun: options.GetDryRun(), Faults: faultMessages(faults), Revision: v.configRevision}, nil
	}
	result := &holdfastv1.ChangeResult{DryRun: options.GetDryRun(), Revision: v.configRevision, Moves: s.movesUnder(v, config)}
	for _, change := range cluster.Diff(v.world.Config, config) {
		result.Changes = append(result.Changes, &holdfastv1.Change{Path: change.Path, Old: change.Old, New: change.New})
	}
	if options.GetDryRun() || len(result.Changes) == 0 {
		return result, nil
	}
	put, err := store.PutOp(keyConfig, configRecord{YAML: string(cluster.Print(config)), By: s.self.Name, At: time.Now()}, 0)
	if err != nil {
		return nil, err
	}
	txn := store.Txn{If: []store.Condition{{Key: keyConfig, Revision: v.configRevision}}, Then: append([]store.Op{put}, forget(v.world.Config, config)...)}
	revision, err := s.store.Commit(ctx, txn)
	if err != nil {
		return nil, storeRefusal(err)
	}
	result.Revision = revision
	result.PendingNodes = s.await(ctx, options, configured(v, revision))
	return result, nil
}

// forget takes the wishes away that concern nodes which are no longer configured: one that is added again later begins without.
func forget(old, new *cluster.Config) []store.Op {
	var ops []store.Op
	for _, node := range old.Nodes {
		if _, kept := new.Node(node.LNN); !kept {
			ops = append(ops, store.Delete{Key: drainKey(node.LNN)})
		}
	}
	return ops
}

// immovable names what this version cannot change in a running cluster.
func immovable(old, new *cluster.Config) cluster.Faults {
	var faults cluster.Faults
	refuse := func(path, message string) { faults = append(faults, cluster.Fault{Path: path, Message: message}) }
	if old.Settings.Name != new.Settings.Name {
		refuse("cluster.name", "the name is part of every certificate and cannot change")
	}
	if !slices.Equal(old.Settings.StoreEndpoints, new.Settings.StoreEndpoints) {
		refuse("cluster.store.endpoints", "the store cannot be exchanged under running agents; stop them, move the data, and change the file of each")
	}
	return faults
}

func storeRefusal(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return api.Changed("somebody else changed it at the same moment; nothing of this change was done; look at it again and repeat it")
	}
	return api.Unavailable("the store did not take the change: %v", err)
}

func (s nodeService) RebalancePool(ctx context.Context, r *holdfastv1.RebalancePoolRequest) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	pools := v.world.Config.Pools()
	if !r.All {
		id, err := cluster.ParsePoolID(v.world.Config, r.Pool)
		if err != nil {
			return nil, api.NotFound("%v", err)
		}
		pools = []cluster.PoolID{id}
	}
	result := &holdfastv1.ChangeResult{DryRun: r.Options.GetDryRun(), Revision: v.configRevision}
	var revision int64
	for _, id := range pools {
		proposal, _, ok := steering.ProposePool(v.world, id, true, s.now())
		if !ok || len(proposal.Moves) == 0 {
			continue
		}
		result.Moves = append(result.Moves, moveMessages(v.world, id, steering.Foresee(v.world, id, true, s.now()).Moves)...)
		if !r.Options.GetDryRun() {
			if revision, err = s.commitPool(ctx, v, proposal); err != nil {
				return nil, err
			}
		}
	}
	if len(result.Moves) == 0 {
		result.Note = "the addresses are even already"
		return result, nil
	}
	if !r.Options.GetDryRun() {
		result.PendingNodes = s.await(ctx, r.Options, moved(v, revision))
	}
	return result, nil
}

// commitPool writes a proposal that an operator asked for.
func (s nodeService) commitPool(ctx context.Context, v *view, p steering.Proposal) (revision int64, err error) {
	put, err := store.PutOp(poolKey(p.Pool), p.Record, 0)
	if err != nil {
		return 0, err
	}
	txn := store.Txn{If: []store.Condition{{Key: poolKey(p.Pool), Revision: v.poolRevisions[p.Pool]}, {Key: keyConfig, Revision: v.configRevision}}, Then: []store.Op{put}}
	for _, lnn := range p.Trusted {
		trust, err := store.PutOp(trustKey(lnn), trustRecord{Incarnation: v.world.Nodes[lnn].Incarnation, By: s.self.Name, At: time.Now()}, 0)
		if err != nil {
			return 0, err
		}
		txn.Then = append(txn.Then, trust)
	}
	if revision, err = s.store.Commit(ctx, txn); err != nil {
		return 0, storeRefusal(err)
	}
	return revision, nil
}

func (s nodeService) RebalanceServiceAddresses(ctx context.Context, r *holdfastv1.RebalanceServiceAddressesRequest) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	subnet, err := cluster.ParseSubnetID(v.world.Config, r.Subnet)
	if err != nil {
		return nil, api.NotFound("%v", err)
	}
	before := v
	result := &holdfastv1.ChangeResult{DryRun: r.Options.GetDryRun(), Revision: v.configRevision}
	if r.Options.GetDryRun() {
		result.Moves = serviceMoveMessages(v.world, steering.ForeseeSpread(v.world, subnet, s.now()))
	}
	for range len(v.world.Config.ServiceAddresses(subnet)) { // one at a time, and never more moves than addresses
		p, ok := steering.SpreadService(v.world, subnet, s.now())
		if !ok || r.Options.GetDryRun() {
			break
		}
		result.Moves = append(result.Moves, moveMessage(v.world, subnet.String(), placement.Move{
			Address: p.Key.Address, From: p.Statement.Owner.Member(), To: p.Statement.To.Member(), Reason: p.Why}))
		if v, err = s.moveService(ctx, v, p, r.Options); err != nil {
			return result, err
		}
	}
	if len(result.Moves) == 0 {
		result.Note = "the service addresses are even already"
	} else if !r.Options.GetDryRun() {
		result.PendingNodes = s.await(ctx, r.Options, moved(before, v.storeRevision))
	}
	return result, nil
}

// moveService writes one move of a service address and waits until it is done.
func (s nodeService) moveService(ctx context.Context, v *view, p steering.ServiceProposal, options *holdfastv1.ChangeOptions) (*view, error) {
	put, err := store.PutOp(serviceKey(p.Key), p.Statement, 0)
	if err != nil {
		return v, err
	}
	if _, err := s.store.Commit(ctx, store.Txn{If: []store.Condition{{Key: serviceKey(p.Key), Revision: v.serviceRevisions[p.Key]}}, Then: []store.Op{put}}); err != nil {
		return v, storeRefusal(err)
	}
	deadline := time.Now().Add(defaultWait)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		v = s.view.Load()
		if st := v.world.Services[p.Key]; st.Epoch > p.Statement.Epoch {
			return v, nil
		}
		wait(ctx, 5*time.Millisecond)
	}
	return v, api.NotNow("%s has not let go of %s in time; see `holdfast explain %s`", nameOf(v.world, p.Statement.Owner.LNN), p.Key.Address, p.Key.Address)
}

func (s nodeService) SuspendNodes(ctx context.Context, r *holdfastv1.SuspendNodesRequest) (*holdfastv1.ChangeResult, error) {
	return s.suspension(ctx, r.Pool, r.Nodes, r.Options, cluster.SuspendNodes)
}

func (s nodeService) ResumeNodes(ctx context.Context, r *holdfastv1.ResumeNodesRequest) (*holdfastv1.ChangeResult, error) {
	return s.suspension(ctx, r.Pool, r.Nodes, r.Options, cluster.ResumeNodes)
}

func (s nodeService) suspension(ctx context.Context, pool string, nodes []string, options *holdfastv1.ChangeOptions, edit func(*cluster.Config, cluster.PoolID, []int) (*cluster.Config, error)) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	id, err := cluster.ParsePoolID(v.world.Config, pool)
	if err != nil {
		return nil, api.NotFound("%v", err)
	}
	lnns, err := findNodes(v.world.Config, nodes)
	if err != nil {
		return nil, err
	}
	config, err := edit(v.world.Config, id, lnns)
	if err != nil {
		return refusal(err, options, v)
	}
	return s.change(ctx, v, config, 0, options)
}

func (s nodeService) DrainNode(ctx context.Context, r *holdfastv1.DrainNodeRequest) (*holdfastv1.ChangeResult, error) {
	return s.drain(ctx, r.Node, r.Options, true)
}

func (s nodeService) UndrainNode(ctx context.Context, r *holdfastv1.UndrainNodeRequest) (*holdfastv1.ChangeResult, error) {
	return s.drain(ctx, r.Node, r.Options, false)
}

// drain records that an operator wants a node to hold nothing, or no longer wants it.
func (s nodeService) drain(ctx context.Context, name string, options *holdfastv1.ChangeOptions, on bool) (*holdfastv1.ChangeResult, error) {
	v, err := s.seen()
	if err != nil {
		return nil, err
	}
	node, err := findNode(v.world.Config, name)
	if err != nil {
		return nil, err
	}
	result := &holdfastv1.ChangeResult{DryRun: options.GetDryRun(), Revision: v.configRevision, Moves: s.movesIfDrained(v, node.LNN, on)}
	if v.world.Nodes[node.LNN].Draining == on {
		result.Note = map[bool]string{true: "it is being drained already", false: "it is not being drained"}[on]
		return result, nil
	}
	result.Changes = []*holdfastv1.Change{{Path: node.Name + " draining", Old: strconv.FormatBool(!on), New: strconv.FormatBool(on)}}
	if options.GetDryRun() {
		return result, nil
	}
	var op store.Op = store.Delete{Key: drainKey(node.LNN)}
	if on {
		if op, err = store.PutOp(drainKey(node.LNN), drainRecord{By: s.self.Name, At: time.Now()}, 0); err != nil {
			return nil, err
		}
	}
	revision, err := s.store.Commit(ctx, store.Txn{Then: []store.Op{op}})
	if err != nil {
		return nil, storeRefusal(err)
	}
	drained := moved(v, revision)
	drained.also = func(now *view, lnn int) string {
		if lnn == node.LNN && on && now.owned(lnn) > 0 && now.othersFitBut(lnn) {
			return fmt.Sprintf("it still holds %d addresses", now.owned(lnn))
		}
		return ""
	}
	result.PendingNodes = s.await(ctx, options, drained)
	return result, nil
}

func (s nodeService) PinAddress(ctx context.Context, r *holdfastv1.PinAddressRequest) (*holdfastv1.ChangeResult, error) {
	return s.pin(ctx, r.Pool, r.Address, r.Member, r.Options, true)
}

func (s nodeService) UnpinAddress(ctx context.Context, r *holdfastv1.UnpinAddressRequest) (*holdfastv1.ChangeResult, error) {
	return s.pin(ctx, r.Pool, r.Address, "", r.Options, false)
}
