package agent

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/linux/counters"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/steering"
)

// smallCluster is up to how many nodes samples go to all of them. In larger ones only the holders of service addresses and
// their successors get them: they are the ones that choose by load.
const smallCluster = 16

// sampleTimeout bounds the sending of one sample; a lost one is made up for by the next.
const sampleTimeout = 500 * time.Millisecond

// measure samples this node's load each interval and sends it straight to those who choose by it.
func (a *Agent) measure(ctx context.Context) {
	sampler := load.NewSampler(load.Options{
		LNN: a.self.LNN, Established: a.edges.sockets, Links: a.edges.links, Now: a.now, Board: a.board, Registerer: a.registry,
	})
	sampler.SetInterfaces(a.self.Interfaces)
	var sequence atomic.Uint64
	for ctx.Err() == nil {
		interval := 100 * time.Millisecond // nothing is known yet
		if v := a.view.Load(); v != nil {
			interval = v.world.Config.Settings.SampleInterval
			sample, err := sampler.Sample(ownAddresses(v.world), v.world.Config.Settings.ClientPorts)
			if err == nil {
				a.loads.Put(sample, a.now())
				a.loop.noteLoad()
				a.send(ctx, v.world, sample, sequence.Add(1), interval)
			}
		}
		wait(ctx, interval)
	}
}

func readCounters() ([]load.Link, error) {
	interfaces, err := counters.Read()
	links := make([]load.Link, 0, len(interfaces))
	for _, i := range interfaces {
		links = append(links, load.Link(i))
	}
	return links, err
}

// ownAddresses are the pool addresses that the records give to this node.
func ownAddresses(w *steering.World) []netip.Addr {
	var owned []netip.Addr
	for _, record := range w.Pools {
		for addr, st := range record {
			if st.Owner.LNN == w.Self {
				owned = append(owned, addr)
			}
		}
	}
	return owned
}

// choosers are the other nodes that choose by load.
func choosers(w *steering.World) []int {
	chosen := map[int]bool{}
	if len(w.Config.Nodes) <= smallCluster {
		for _, node := range w.Config.Nodes {
			chosen[node.LNN] = true
		}
	}
	for _, st := range w.Services {
		chosen[st.Owner.LNN], chosen[st.Next.LNN] = true, true
	}
	var others []int
	for lnn := range chosen {
		if lnn != w.Self && w.Nodes[lnn].Present {
			others = append(others, lnn)
		}
	}
	return others
}

// send hands a sample to every chooser at once, and waits for none of them.
func (a *Agent) send(ctx context.Context, w *steering.World, sample load.Sample, sequence uint64, interval time.Duration) {
	request := &holdfastv1.SampleRequest{
		Lnn: int32(a.self.LNN), Sequence: sequence, Cpu: sample.CPU, Rated: sample.Rated, TakenUnixNano: sample.Taken.UnixNano(),
		IntervalMs: interval.Milliseconds(), AnswersPerSecond: a.answers.perSecond(),
	}
	for name, rate := range sample.Interfaces {
		request.Interfaces = append(request.Interfaces, &holdfastv1.InterfaceRate{Interface: name, BytesPerSecond: rate.BytesPerSecond, LinkBytesPerSecond: rate.LinkBytesPerSecond})
	}
	for addr, n := range sample.Connections {
		request.Connections = append(request.Connections, &holdfastv1.AddressConnections{Address: addr.String(), Established: int32(n)})
	}
	a.answers.noteRate(a.self.LNN, request.AnswersPerSecond)
	for _, lnn := range choosers(w) {
		client, err := a.peers.of(lnn)
		if err != nil {
			continue
		}
		go func() {
			try, cancel := context.WithTimeout(ctx, sampleTimeout)
			defer cancel()
			_, _ = client.Sample(try, request) // a sample that did not arrive shows as a stale load over there
		}()
	}
}

// Sample takes in another node's load.
func (s peerService) Sample(ctx context.Context, r *holdfastv1.SampleRequest) (*holdfastv1.SampleResponse, error) {
	node, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if int(r.Lnn) != node.LNN {
		return nil, api.Forbidden("%s cannot report the load of node %d", node.Name, r.Lnn)
	}
	if len(r.Interfaces) > load.MaxInterfaces || len(r.Connections) > load.MaxAddresses {
		return nil, api.Invalid("a sample of %d interfaces and %d addresses is too large", len(r.Interfaces), len(r.Connections))
	}
	sample := load.Sample{
		LNN: node.LNN, Taken: time.Unix(0, r.TakenUnixNano), Rated: r.Rated, CPU: r.Cpu,
		Interfaces: map[string]load.Rate{}, Connections: map[netip.Addr]int{},
	}
	for _, i := range r.Interfaces {
		sample.Interfaces[i.Interface] = load.Rate{BytesPerSecond: i.BytesPerSecond, LinkBytesPerSecond: i.LinkBytesPerSecond}
	}
	for _, c := range r.Connections {
		addr, err := netip.ParseAddr(c.Address)
		if err != nil {
			return nil, api.Invalid("%q is not an address", c.Address)
		}
		sample.Connections[addr] = int(c.Established)
	}
	if s.loads.Put(sample, s.now()) == load.Fresh {
		s.answers.noteRate(node.LNN, r.AnswersPerSecond)
		s.loop.noteLoad()
	}
	return &holdfastv1.SampleResponse{}, nil
}
