package load

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/problem"
)

// Link is one reading of one interface. It has the fields of linux/counters.Interface, so that one converts into the
// other.
type Link struct {
	Name           string
	Index          int // another index under the same name is another interface
	Received, Sent uint64
	BitsPerSecond  uint64 // 0: the driver does not say
}

// AssumedBitsPerSecond is the link speed where the driver states none, as virtual network cards do. What matters is that
// it is the same on every node, so that shares can be compared.
const AssumedBitsPerSecond = 10_000_000_000

// shortest is the least time between two readings that yields rates; less would be noise.
const shortest = 10 * time.Millisecond

// Options are what a Sampler needs from outside.
type Options struct {
	LNN         int
	Established func(ports ...uint16) (map[netip.AddrPort]int, error) // linux/sockdiag.Established
	Links       func() ([]Link, error)                                // linux/counters.Read
	Processor   func() ([]byte, error)                                // default: the contents of /proc/stat
	Now         func() time.Time                                      // default: time.Now
	Board       *problem.Board                                        // default: one that nobody reads
	Registerer  prometheus.Registerer                                 // default: metrics are counted and not registered
}

// Sampler measures this node. It is for one goroutine.
type Sampler struct {
	options    Options
	interfaces []string // nil: all
	failures   *prometheus.CounterVec

	last reading
}

// reading is what rates are computed from. The zero reading yields none.
type reading struct {
	at        time.Time
	links     map[string]Link
	processor processorTimes
}

// NewSampler returns a Sampler that has measured nothing yet. It panics without Established and Links, and if its
// metrics are registered already.
func NewSampler(options Options) *Sampler {
	if options.Established == nil || options.Links == nil {
		panic("load: a Sampler needs Established and Links")
	}
	if options.Processor == nil {
		options.Processor = func() ([]byte, error) { return os.ReadFile("/proc/stat") }
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Board == nil {
		options.Board = &problem.Board{}
	}
	s := &Sampler{options: options, failures: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_load_failures_total", Help: "Measurements of this node's load that failed, by what was measured.",
	}, []string{"what"})}
	if options.Registerer != nil {
		options.Registerer.MustRegister(s.failures)
	}
	return s
}

// SetInterfaces limits the samples to the named interfaces, of which the first MaxInterfaces count. Without a call, or
// with none, all are sampled, up to the same bound in the order of their names.
func (s *Sampler) SetInterfaces(names []string) { s.interfaces = slices.Clone(names) }

// Sample measures now. Connections are counted for the given local addresses on the given local ports; every address
// appears, with 0 if need be. Rates are against the previous call, so the first sample is not Rated.
//
// On an error there is no sample: the board then shows this node's load growing stale, which is the truth. A
// problem on the board says what cannot be measured. Rates go on from the last reading that succeeded.
func (s *Sampler) Sample(addresses []netip.Addr, ports []uint16) (Sample, error) {
	if len(addresses) > MaxAddresses {
		return Sample{}, fmt.Errorf("connections of %d addresses asked for, at most %d can be sampled", len(addresses), MaxAddresses)
	}
	now := s.options.Now()
	connections, errConnections := s.connections(addresses, ports)
	links, errLinks := s.links()
	processor, errProcessor := s.processor()
	s.note("connections", errConnections, now)
	s.note("interfaces", errLinks, now)
	s.note("processor", errProcessor, now)
	if err := errors.Join(errConnections, errLinks, errProcessor); err != nil {
		return Sample{}, err
	}
	current := reading{at: now, links: links, processor: processor}
	sample := Sample{LNN: s.options.LNN, Taken: now, Connections: connections}
	if elapsed := now.Sub(s.last.at); !s.last.at.IsZero() && elapsed < shortest && elapsed >= 0 {
		return sample, nil // too soon: keep the old reading to measure against
	}
	cpu, known := busyShare(s.last.processor, current.processor)
	if known && !s.last.at.IsZero() && now.After(s.last.at) {
		sample.Rated, sample.CPU = true, cpu
		sample.Interfaces = rates(s.last, current)
	}
	s.noteSpeeds(links, now)
	s.last = current
	return sample, nil
}

func (s *Sampler) connections(addresses []netip.Addr, ports []uint16) (map[netip.Addr]int, error) {
	counts := make(map[netip.Addr]int, len(addresses))
	for _, address := range addresses {
		counts[address.Unmap()] = 0
	}
	if len(counts) == 0 || len(ports) == 0 {
		return counts, nil
	}
	established, err := s.options.Established(ports...)
	if err != nil {
		return nil, fmt.Errorf("counting connections: %w", err)
	}
	for local, n := range established {
		if _, asked := counts[local.Addr()]; asked && slices.Contains(ports, local.Port()) {
			counts[local.Addr()] += n
		}
	}
	return counts, nil
}

func (s *Sampler) links() (map[string]Link, error) {
	links, err := s.options.Links()
	if err != nil {
		return nil, fmt.Errorf("reading interface counters: %w", err)
	}
	byName := make(map[string]Link, len(links))
	names := make([]string, 0, len(links))
	for _, link := range links {
		byName[link.Name] = link
		names = append(names, link.Name)
	}
	slices.Sort(names)
	if len(s.interfaces) > 0 {
		names = s.interfaces
	}
	chosen := map[string]Link{}
	for _, name := range names {
		if link, present := byName[name]; present && len(chosen) < MaxInterfaces {
			chosen[name] = link
		}
	}
	return chosen, nil
}

func (s *Sampler) processor() (processorTimes, error) {
	stat, err := s.options.Processor()
	if err != nil {
		return processorTimes{}, fmt.Errorf("reading processor times: %w", err)
	}
	times, err := parseProcessor(stat)
	if err != nil {
		return processorTimes{}, fmt.Errorf("reading processor times from /proc/stat: %w", err)
	}
	return times, nil
}

func (s *Sampler) note(what string, err error, now time.Time) {
	detail := ""
	if err != nil {
		s.failures.WithLabelValues(what).Inc()
		detail = err.Error()
	}
	s.options.Board.Is(err != nil, unmeasurable, what, detail, now)
}

// noteSpeeds says for which interfaces the speed is assumed, and takes back what it said about those that are gone.
func (s *Sampler) noteSpeeds(links map[string]Link, now time.Time) {
	for name := range s.last.links {
		if _, present := links[name]; !present {
			s.options.Board.Clear(speedAssumed, name)
		}
	}
	for name, link := range links {
		s.options.Board.Is(link.BitsPerSecond == 0, speedAssumed, name, "10 Gbit/s is assumed for "+name, now)
	}
}

// rates compares two readings. An interface that is new, was made anew or counts from the start again has no rate.
func rates(before, after reading) map[string]Rate {
	elapsed := after.at.Sub(before.at).Seconds()
	measured := map[string]Rate{}
	for name, now := range after.links {
		was, present := before.links[name]
		if !present || was.Index != now.Index || now.Received < was.Received || now.Sent < was.Sent {
			continue
		}
		bits := now.BitsPerSecond
		if bits == 0 {
			bits = AssumedBitsPerSecond
		}
		busier := max(now.Received-was.Received, now.Sent-was.Sent)
		measured[name] = Rate{BytesPerSecond: float64(busier) / elapsed, LinkBytesPerSecond: float64(bits) / 8}
	}
	return measured
}

var (
	unmeasurable = problem.Define(problem.Kind{
		Code: "load.unmeasurable", Severity: problem.Warning,
		Meaning: "This node cannot measure its load, so measured policies treat it as average.",
		Remedy:  "The detail names what cannot be read; for connections, load the kernel modules tcp_diag and inet_diag.",
	})
	speedAssumed = problem.Define(problem.Kind{
		Code: "load.link-speed-unknown", Severity: problem.Info,
		Meaning: "The driver of an interface does not state its speed, so the throughput policy assumes 10 Gbit/s.",
		Remedy:  "Nothing, if the interfaces of all nodes are alike; otherwise use another policy than throughput, or set the speed in the driver.",
	})
)
