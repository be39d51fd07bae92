package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/problem"
)

// maxPanicLogs bounds how many panics are written to the log; all are counted.
const maxPanicLogs = 10

// Options configure a Server. The zero value is complete.
type Options struct {
	Logger     *slog.Logger          // default: none
	Registerer prometheus.Registerer // default: metrics are counted and not shown
	Board      *problem.Board        // default: a board that nobody reads
	Now        func() time.Time      // default: time.Now
	// OnAnswered is told which nodes were given out by pools with shared rotation, at most once in 2 ms, in the long run once in 20 ms,
	// and never concurrently. While it runs, further answers are added up.
	OnAnswered func(Told)

	Port          uint16         // default 53
	Sockets       int            // UDP sockets of each service address, each with a reader; default one for each processor, 16 at most
	CookieSecrets []CookieSecret // see AnswererOptions
	RateLimit     RateLimit
	TCP           TCPLimits
}

// Server answers over UDP and TCP on service addresses.
type Server struct {
	answerer *Answerer
	log      *slog.Logger
	board    *problem.Board
	now      func() time.Time
	port     uint16
	sockets  int
	metrics  *metrics
	streams  *streams

	onAnswered func(Told)
	wake       chan struct{} // something is given and not yet shared
	done       chan struct{} // closed by Close
	running    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners map[netip.Addr]*listener
	heritage  map[netip.Addr]Socket // sockets of a process before this one, not served yet
	empty     map[string]bool       // subjects of the problem that a name has no node
}

// NewServer returns a Server that has no view and listens nowhere. Close it when it is no longer needed.
func NewServer(o Options) *Server {
	s := &Server{
		log: o.Logger, board: o.Board, now: o.Now, port: o.Port, onAnswered: o.OnAnswered,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		listeners: map[netip.Addr]*listener{}, empty: map[string]bool{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.board == nil {
		s.board = &problem.Board{}
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.port == 0 {
		s.port = 53
	}
	if s.sockets = o.Sockets; s.sockets <= 0 {
		s.sockets = min(runtime.GOMAXPROCS(0), runtime.NumCPU()) // the first may be more
	}
	s.sockets = min(s.sockets, maxSockets)
	a := AnswererOptions{CookieSecrets: o.CookieSecrets, RateLimit: o.RateLimit}
	if o.OnAnswered != nil {
		a.Given = s.given
		s.running.Go(s.share)
	}
	s.answerer = NewAnswerer(a)
	s.metrics = newMetrics(o.Registerer, s.answerer)
	s.streams = newStreams(o.TCP, s.metrics, s.answer)
	return s
}

// Problems that a Server finds.
var (
	problemListen = problem.Define(problem.Kind{
		Code: "dns.listen-failed", Severity: problem.Error,
		Meaning: "A service address gives no answers from this node, because its DNS port could not be opened.",
		Remedy: "If another program has the port (see ss -lnp 'sport = :53'), bind it to other addresses; if permission is " +
			"missing, grant the agent CAP_NET_BIND_SERVICE and CAP_NET_RAW.",
	})
	problemNoNode = problem.Define(problem.Kind{
		Code: "dns.no-node", Severity: problem.Critical,
		Meaning: "A zone has no node that may be given to clients, so that its on-none setting decides what they get.",
		Remedy:  "See holdfast network pools status for why each node of the pool is left out.",
	})
	problemName = problem.Define(problem.Kind{
		Code: "dns.name-left-out", Severity: problem.Error,
		Meaning: "A name of the configuration cannot be answered.",
		Remedy:  "Correct the name or remove one of the two that claim it, then apply the configuration again.",
	})
)

// SetView makes v what queries are answered from. Names that cannot be answered are put on the problem board.
func (s *Server) SetView(v *View) {
	faults := s.answerer.SetView(v)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.board.Is(len(faults) > 0, problemName, "configuration", fmt.Sprint(errors.Join(faults...)), now)
	empty := map[string]bool{}
	for _, z := range v.Zones {
		for _, p := range z.Pools {
			if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Eligible && len(n.Addresses) > 0 }) {
				subject := fmt.Sprintf("%s (%v)", z.Name, p.ID)
				empty[subject] = true
				s.board.Set(problemNoNode, subject, fmt.Sprintf("none of %d nodes is eligible", len(p.Nodes)), now)
			}
		}
	}
	for subject := range s.empty {
		if !empty[subject] {
			s.board.Clear(problemNoNode, subject)
		}
	}
	s.empty = empty
}

// Merge counts what another holder of service addresses tells; see Options.OnAnswered and Answerer.Merge.
func (s *Server) Merge(told Told) (apart []Standing) { return s.answerer.Merge(told) }

// Rotation is where a pool's shared rotation stands; see Answerer.Rotation.
func (s *Server) Rotation(id cluster.PoolID) (Rotation, bool) { return s.answerer.Rotation(id) }

// Adopt goes on from where another holder's rotation stands; see Answerer.Adopt.
func (s *Server) Adopt(r Rotation, own Standing) bool { return s.answerer.Adopt(r, own) }

// Explain returns the next answer to a question and why, without changing what comes next.
func (s *Server) Explain(name string, qtype dnsmessage.Type) (placement.Decision, error) {
	return s.answerer.Explain(name, qtype, s.now())
}

// Serve makes the server listen on exactly these addresses: it opens what is missing and closes what is too much, with
// the connections to it. An address need not be held yet. Addresses that cannot be opened are named in the error and on
// the problem board, the others are served; a further call tries again. ctx bounds the opening only.
func (s *Server) Serve(ctx context.Context, addresses []netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("serving DNS: the server is closed")
	}
	for address, l := range s.listeners {
		if !slices.Contains(addresses, address) {
			l.close()
			delete(s.listeners, address)
			s.answerer.Release(address)
			s.board.Clear(problemListen, address.String())
			s.log.Info("no longer answering DNS", "address", address)
		}
	}
	var faults []error
	for _, address := range addresses {
		if s.listeners[address] != nil {
			continue
		}
		l, err := s.listen(ctx, netip.AddrPortFrom(address, s.port))
		s.board.Is(err != nil, problemListen, address.String(), fmt.Sprint(err), s.now())
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.listeners[address] = l
		s.log.Info("answering DNS", "address", address, "port", s.port)
	}
	s.metrics.listeners.Set(float64(len(s.listeners)))
	return errors.Join(faults...)
}

// Close stops listening, ends all connections and waits until nothing of the server runs.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	for address, l := range s.listeners {
		l.close()
		delete(s.listeners, address)
	}
	s.disinherit()
	s.mu.Unlock()
	s.running.Wait()
}

// given notes that there is something to share. It never waits.
func (s *Server) given() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// share tells the other holders what was given out, at the pace of sharePace.
func (s *Server) share() {
	var pace sharePace
	for {
		select {
		case <-s.wake:
		case <-s.done:
			return
		}
		select {
		case <-time.After(pace.next(time.Now())):
		case <-s.done:
		}
		if told := s.answerer.TakeGiven(); len(told.Answers) > 0 {
			s.onAnswered(told)
		}
	}
}

// answer answers one query and counts it.
func (s *Server) answer(dst []byte, req Request) (out []byte, outcome Outcome) {
	req.Now = s.now()
	out, outcome = s.answerOne(dst, req, undecided)
	s.metrics.count(req.TCP, outcome)
	return out, outcome
}

// answerOne answers one query. A panic costs the one query that caused it: the same query asked of each service address in turn must not
// take a whole cluster down.
func (s *Server) answerOne(dst []byte, req Request, allowance allowance) (out []byte, outcome Outcome) {
	defer func() {
		if fault := recover(); fault != nil {
			out, outcome = dst, Outcome{Dropped: dropPanic}
			s.panicked(fault, req.Message, req.Client)
		}
	}()
	return s.answerer.answer(dst, req, allowance)
}

// panicked writes down that answering panicked.
func (s *Server) panicked(fault any, message []byte, client netip.Addr) {
	if s.metrics.panics.Add(1) <= maxPanicLogs {
		s.log.Error("a DNS query could not be handled; this is a fault of the program",
			"client", client, "query", fmt.Sprintf("%x", message), "fault", fault, "stack", string(debug.Stack()))
	}
}
