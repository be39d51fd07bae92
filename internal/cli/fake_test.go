package cli

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast/holdfast/internal/api"
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// now is the moment of every test.
var now = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

const testConfig = `cluster: {name: lab}
nodes:
  - {name: node1, lnn: 1, interfaces: [eth0], addresses: [10.10.0.11]}
  - {name: node2, lnn: 2, interfaces: [eth0], addresses: [10.10.0.12], rack: b}
groupnets:
  - name: groupnet0
    dns-servers: [10.10.0.2]
    subnets:
      - name: subnet0
        cidr: 10.10.0.0/24
        gateway: 10.10.0.1
        sc-service-name: ssip.lab
        sc-service-addrs: [10.10.0.4-10.10.0.5]
        pools:
          - name: pool0
            ranges: [10.10.0.100-10.10.0.101]
            ifaces: ["1:eth0", "2:eth0"]
            alloc-method: dynamic
            sc-dns-zone: cluster.lab
            weights: {2: 3}
            rules: [{name: rule0, interface: eth*, class: storage}]
            checks: [{name: web, kind: http, port: 80, path: /healthz}]
`

// fake is an agent with canned answers that remembers what it was asked.
type fake struct {
	holdfastv1connect.UnimplementedNodeHandler
	holdfastv1connect.UnimplementedBrokerHandler
	asked  proto.Message    // the last request
	change *pb.ChangeResult // what changes answer; nil: cannedChange
	refuse error            // what every call ends with, when set
}

func answer[A any](f *fake, request proto.Message, a *A) (*A, error) {
	f.asked = request
	if f.refuse != nil {
		return nil, f.refuse
	}
	return a, nil
}

func (f *fake) changed(request proto.Message, o *pb.ChangeOptions) (*pb.ChangeResult, error) {
	result := f.change
	if result == nil {
		result = cannedChange()
	}
	result.DryRun = o.GetDryRun()
	return answer(f, request, result)
}

func cannedChange() *pb.ChangeResult {
	return &pb.ChangeResult{
		Revision: 43,
		Changes: []*pb.Change{
			{Path: "groupnet0.subnet0.pool0.sc-ttl", Old: "0", New: "5"},
			{Path: "groupnet0.subnet0.pool0.sc-dns-zone", New: "cluster.company.com"},
		},
		Moves: []*pb.Move{{Address: "10.10.0.101", From: "2:eth0", To: "1:eth0", FromNode: "node2", ToNode: "node1",
			Reason: "node1 holds fewer", Pool: "groupnet0.subnet0.pool0"}},
	}
}

func (f *fake) Status(_ context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	return answer(f, r, cannedStatus())
}

func cannedStatus() *pb.StatusResponse {
	load := &pb.Load{Known: true, Connections: 150, Throughput: 0.25, Cpu: 0.5, AgeMs: 400, BytesPerSecond: 31250000}
	return &pb.StatusResponse{
		Cluster: "lab", Node: "node1", Lnn: 1, Version: "1.0.0", Serving: true, ConfigRevision: 42, At: before(0), Started: before(3 * time.Hour),
		Nodes: []*pb.NodeStatus{
			{Name: "node1", Lnn: 1, State: pb.NodeStatus_up, Since: before(3 * time.Hour), Why: "observed by 1 of 1", ConfigRevision: 42, Version: "1.0.0",
				Incarnation: &pb.Incarnation{Start: 7}, LeaseUntil: timestamppb.New(now.Add(2 * time.Second)), PoolAddresses: 2, ServiceAddresses: 2, Load: load},
			{Name: "node2", Lnn: 2, State: pb.NodeStatus_down, Since: before(90 * time.Second), Why: "its heartbeats stopped", ConfigRevision: 41, Version: "1.0.0",
				Incarnation: &pb.Incarnation{Start: 8, Lapses: 1}},
		},
		Pools: []*pb.PoolSummary{{Id: "groupnet0.subnet0.pool0", Zone: "cluster.lab", AllocMethod: "dynamic", ConnectPolicy: "round_robin",
			Addresses: 2, Held: 2, Nodes: 2, NodesIn: 1, Serving: true}},
		ServiceAddresses: []*pb.ServiceAddress{
			{Subnet: "groupnet0.subnet0", ServiceName: "ssip.lab", Address: "10.10.0.4", Node: "node1", Lnn: 1, Interface: "eth0", Since: before(2 * time.Hour)},
			{Subnet: "groupnet0.subnet0", ServiceName: "ssip.lab", Address: "10.10.0.5", Node: "node1", Lnn: 1, Interface: "eth0", Since: before(89 * time.Second), NextNode: "node2"},
		},
		Problems: []*pb.Problem{{Code: "node.down", Severity: pb.Problem_error, Subject: "node2", Detail: "last heard of 91 s ago", Node: "node1",
			Meaning: "A node of the cluster is gone; the others carry its clients.", Remedy: "Start its agent, or look at its console.", Since: before(90 * time.Second)}},
		Store: &pb.StoreStatus{Leader: "node1", Healthy: true, Revision: 1042, Members: []*pb.StoreMember{{Name: "node1", Endpoint: "10.10.0.11:2379", Healthy: true}}},
		FailureDetection: &pb.FailureDetection{Method: "heartbeat", IntervalMs: 100, Multiplier: 3, SpanMs: 300, GapMsMax: 320, GapMsTypical: 260,
			Text: "by heartbeats every 100 ms, of which three may be missing: clients of a node that dies wait 260 ms, 320 ms at the worst"},
	}
}

func (f *fake) Leases(_ context.Context, r *pb.LeasesRequest) (*pb.LeasesResponse, error) {
	ms := func(n int64) *int64 { return &n }
	return answer(f, r, &pb.LeasesResponse{
		Node: "node1", Lnn: 1, At: before(0),
		Nodes: []*pb.NodeLeases{
			{Node: "node1", Lnn: 1, Incarnation: 7, MayHold: true, LeftMs: ms(112), IntervalMs: 50, SpanMs: 150,
				Observers: &pb.ObserverSet{Version: 2, Recorded: 1, Current: []int32{2, 3}, Previous: []int32{2, 4}, Changing: true, Need: 1},
				Leases: []*pb.ObserverLease{
					{Observer: "node2", Lnn: 2, Recorded: 1},
					{Observer: "node3", Lnn: 3, LeftMs: 112, Recorded: 2, RecordedPresent: true, Acknowledged: []*pb.NetworkHeard{
						{Name: "10.10.0.0/24", MsAgo: 24}, {Network: 1, Name: "10.99.0.11", MsAgo: 25}}},
				},
				Watched: []*pb.ObservedNode{
					{Node: "node2", Lnn: 2, Incarnation: 8, Over: 7, Observes: true, Heard: []*pb.NetworkHeard{{Name: "10.10.0.0/24", MsAgo: 420}}, SilentInMs: ms(-270),
						Confirmed: 8, PromisedMs: 90, DeclaredMsAgo: ms(269), Words: []*pb.ObserverWord{{Observer: "node3", Lnn: 3, Said: "denied", Why: "it hears the node"},
							{Observer: "node4", Lnn: 4, Said: "no answer"}}},
					{Node: "node3", Lnn: 3, Incarnation: 5, Over: 4, Observes: true, Heard: []*pb.NetworkHeard{{Name: "10.10.0.0/24", MsAgo: 31}}, SilentInMs: ms(119)},
					{Node: "node4", Lnn: 4, Incarnation: 3, Over: 3, Observes: true},
				}},
			{Node: "node3", Lnn: 3, Incarnation: 5, Lapsed: true, Why: "incarnation 5 lapsed", IntervalMs: 50, SpanMs: 150, Observers: &pb.ObserverSet{}},
		},
		Unanswered: []*pb.Unanswered{{Node: "node2", Lnn: 2, Why: "does not answer within 1s"}},
		Sights: []*pb.Sight{
			{Node: "node1", Lnn: 1, Observer: "node2", ObserverLnn: 2, LeaseLeftMs: ms(0), NodeAnswered: true},
			{Node: "node1", Lnn: 1, Observer: "node3", ObserverLnn: 3, LeaseLeftMs: ms(112), HeardMsAgo: ms(28), NodeAnswered: true, ObserverAnswered: true},
			{Node: "node2", Lnn: 2, Observer: "node1", ObserverLnn: 1, HeardMsAgo: ms(420), ObserverAnswered: true},
			{Node: "node3", Lnn: 3, Observer: "node1", ObserverLnn: 1, LeaseLeftMs: ms(0), HeardMsAgo: ms(31), NodeAnswered: true, ObserverAnswered: true},
		},
	})
}

func (f *fake) GetConfig(_ context.Context, r *pb.GetConfigRequest) (*pb.GetConfigResponse, error) {
	return answer(f, r, &pb.GetConfigResponse{Yaml: testConfig, Revision: 42})
}

func (f *fake) ApplyConfig(_ context.Context, r *pb.ApplyConfigRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) Modify(_ context.Context, r *pb.ModifyRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) RebalancePool(_ context.Context, r *pb.RebalancePoolRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) RebalanceServiceAddresses(_ context.Context, r *pb.RebalanceServiceAddressesRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) SuspendNodes(_ context.Context, r *pb.SuspendNodesRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) ResumeNodes(_ context.Context, r *pb.ResumeNodesRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) DrainNode(_ context.Context, r *pb.DrainNodeRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) DeclareDead(_ context.Context, r *pb.DeclareDeadRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) UndrainNode(_ context.Context, r *pb.UndrainNodeRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) PinAddress(_ context.Context, r *pb.PinAddressRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) UnpinAddress(_ context.Context, r *pb.UnpinAddressRequest) (*pb.ChangeResult, error) {
	return f.changed(r, r.Options)
}

func (f *fake) ListInterfaces(_ context.Context, r *pb.ListInterfacesRequest) (*pb.ListInterfacesResponse, error) {
	return answer(f, r, &pb.ListInterfacesResponse{Addresses: []*pb.InterfaceAddress{
		{Address: "10.10.0.4", Kind: pb.InterfaceAddress_service, Pool: "groupnet0.subnet0", Node: "node1", Lnn: 1, Interface: "eth0",
			Since: before(2 * time.Hour), NextNode: "node2", Epoch: 3, State: pb.InterfaceAddress_held, Why: "got the lock first"},
		{Address: "10.10.0.100", Kind: pb.InterfaceAddress_dynamic, Pool: "groupnet0.subnet0.pool0", Node: "node1", Lnn: 1, Interface: "eth0",
			Since: before(30 * time.Second), NextNode: "node2", NextInterface: "eth0", Epoch: 5, State: pb.InterfaceAddress_held, Pinned: true},
		{Address: "10.10.0.101", Kind: pb.InterfaceAddress_dynamic, Pool: "groupnet0.subnet0.pool0", State: pb.InterfaceAddress_orphaned,
			Epoch: 6, Why: "node2 is down and no member is fit"},
	}})
}

func (f *fake) PoolStatus(_ context.Context, r *pb.PoolStatusRequest) (*pb.PoolStatusResponse, error) {
	return answer(f, r, &pb.PoolStatusResponse{Pools: []*pb.PoolState{{
		Id: "groupnet0.subnet0.pool0", Zone: "cluster.lab", ZoneAliases: []string{"files.lab"}, AllocMethod: "dynamic", ConnectPolicy: "round_robin",
		FailoverPolicy: "round_robin", RebalancePolicy: "auto", RebalanceNote: "node2 is back for 12 s; addresses move home after 30 s",
		Nodes: []*pb.PoolNode{
			{Name: "node1", Lnn: 1, Weight: 1, In: true, Why: "fit", Since: before(time.Hour),
				Load:      &pb.Load{Known: true, Connections: 150, Cpu: 0.5, Throughput: 0.25, Stale: true, AgeMs: 5000},
				Addresses: []*pb.PoolAddress{{Address: "10.10.0.100", Interface: "eth0", In: true, Why: "held", Connections: 75, Pinned: true, Since: before(time.Hour)}},
				Checks:    []*pb.CheckState{{Name: "web", Verdict: "up", Since: before(time.Hour), Evidence: "200 OK in 2 ms"}}},
			{Name: "node2", Lnn: 2, Weight: 3, Why: "suspended by the operator", Suspended: true, Since: before(12 * time.Second)},
		},
		Unassigned: []*pb.PoolAddress{{Address: "10.10.0.101", Why: "no member is fit"}},
	}}})
}

func (f *fake) PoolSize(_ context.Context, r *pb.PoolSizeRequest) (*pb.PoolSizeResponse, error) {
	return answer(f, r, &pb.PoolSizeResponse{
		Nodes: 4, Addresses: 4, Clients: 600, EvenAddresses: 12, WithinPercent: 10, AddressesWithinAfterOne: 12, AddressesWithinAfterTwo: 12,
		Now:      &pb.SizeCase{Nodes: 4, AddressesMost: 1, AddressesLeast: 1, ClientsMost: 150, ClientsLeast: 150},
		AfterOne: &pb.SizeCase{Nodes: 3, AddressesMost: 2, AddressesLeast: 1, ClientsMost: 300, ClientsLeast: 150, OverPercent: 50},
		AfterTwo: &pb.SizeCase{Nodes: 2, AddressesMost: 2, AddressesLeast: 2, ClientsMost: 300, ClientsLeast: 300},
	})
}

func (f *fake) PlanDown(_ context.Context, r *pb.PlanDownRequest) (*pb.PlanDownResponse, error) {
	return answer(f, r, &pb.PlanDownResponse{
		Moves:      []*pb.Move{{Address: "10.10.0.101", From: "2:eth0", To: "1:eth0", Reason: "next on record", Pool: "groupnet0.subnet0.pool0"}},
		Unassigned: []*pb.PoolAddress{{Address: "10.10.0.102", Why: "no member would be left"}},
		Pools: []*pb.PlanPool{{Pool: "groupnet0.subnet0.pool0", Nodes: []*pb.PlanNode{
			{Name: "node1", Lnn: 1, AddressesBefore: 1, AddressesAfter: 2}, {Name: "node2", Lnn: 2, AddressesBefore: 1},
		}}},
		AgeMs: 4000,
	})
}

func (f *fake) Delegation(_ context.Context, r *pb.DelegationRequest) (*pb.DelegationResponse, error) {
	return answer(f, r, &pb.DelegationResponse{Text: "; paste into the zone \"lab\"\ncluster IN NS ssip.lab.\nssip IN A 10.10.0.4\n",
		Zones: []*pb.DelegatedZone{{Zone: "cluster.lab", Names: []string{"ssip.lab"}, Addresses: []string{"10.10.0.4"}}}})
}

func (f *fake) CheckDelegation(_ context.Context, r *pb.CheckDelegationRequest) (*pb.CheckDelegationResponse, error) {
	checks := []*pb.DelegationCheck{{Zone: "cluster.lab", Server: "10.10.0.2", Groupnet: "groupnet0", Good: true, TookMs: 1.5}}
	if len(r.Zones) == 0 {
		checks = append(checks, &pb.DelegationCheck{Zone: "files.lab", Server: "10.10.0.2", Groupnet: "groupnet0", TookMs: 2000,
			Wrong: []string{"NS: leads to old.lab, which is not the service name ssip.lab", "A: no address"}, Remedy: "holdfast network dns delegation files.lab"})
	}
	return answer(f, r, &pb.CheckDelegationResponse{Node: "node1", Checks: checks})
}

func (f *fake) Explain(_ context.Context, r *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if r.Event != "" {
		ms := 152.0
		return answer(f, r, &pb.ExplainResponse{Text: "failover 2.8: incarnation 8 of node2 is over\n", Failover: &pb.Failover{Id: "2.8", Node: "node2", Lnn: 2, Incarnation: 8,
			Findings: []*pb.FailoverFinding{{Node: "node1", How: "a majority of its observers confirmed it", Heard: before(time.Second), ConfirmedBy: []string{"node3"},
				Found: before(848 * time.Millisecond), DetectionMs: &ms}},
			Addresses: []*pb.FailoverAddress{{Address: "10.10.0.101", Node: "node1", Within: "groupnet0.subnet0.pool0", Found: before(848 * time.Millisecond)}}}})
	}
	return answer(f, r, &pb.ExplainResponse{Decisions: []*pb.Decision{{
		Subject: "cluster.lab A", Chosen: "10.10.0.100 on node1", Reason: "it is node1's turn", DataAgeMs: 400, At: before(0),
		Among:   []*pb.Considered{{Name: "node1", Weight: 1, Score: 0.5, Note: "turns taken over weight"}},
		LeftOut: []*pb.Excluded{{Name: "node2", Reason: "down: its heartbeats stopped"}},
	}}})
}

func (f *fake) Events(_ context.Context, r *pb.EventsRequest, out *connect.ServerStream[pb.Event]) error {
	f.asked = r
	for _, e := range []*pb.Event{
		{Id: 1, At: before(91 * time.Second), Node: "node1", Kind: "node.down", Subject: "node2", Message: "its heartbeats stopped"},
		{Id: 2, At: before(90 * time.Second), Node: "node1", Kind: "address.taken", Subject: "10.10.0.101", Message: "taken from node2",
			Fields: map[string]string{"pool": "groupnet0.subnet0.pool0", "interface": "eth0", "failover": "2.8"}},
	} {
		if err := out.Send(e); err != nil {
			return err
		}
	}
	return f.refuse
}

func (f *fake) Top(ctx context.Context, r *pb.TopRequest, out *connect.ServerStream[pb.TopSample]) error {
	f.asked = r
	for i := range 100 {
		sample := &pb.TopSample{At: timestamppb.New(now.Add(time.Duration(i) * time.Second)), Nodes: []*pb.TopNode{
			{Name: "node1", Lnn: 1, State: pb.NodeStatus_up, Load: &pb.Load{Known: true, Connections: 150, Cpu: 0.5, Throughput: 0.25, BytesPerSecond: 31250000},
				AnswersPerSecond: 12.5, PoolAddresses: []string{"10.10.0.100", "10.10.0.101"}, ServiceAddresses: []string{"10.10.0.4"}},
			{Name: "node2", Lnn: 2, State: pb.NodeStatus_down},
		}}
		if err := out.Send(sample); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return api.Unavailable("the agent is stopping")
}
