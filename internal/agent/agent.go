// Package agent is one node: it assembles the rooms and owns their lifetimes.
//
// One agent runs on each node. It keeps a replica of the store by one watch, keeps this node's right to hold and observes the
// others (tenancy), puts addresses on interfaces (applier), answers names (answers), and lets the loop turn
// what is known into what is done, by the pure decisions of steering. It serves the local API on a Unix socket and the other
// nodes over mutual TLS.
//
// It guarantees that a moving address is on an interface only while the records name this node's present incarnation as its
// owner and the right to hold has not run out, and that loss of the store moves nothing. Everything that it keeps is bounded.
//
// It decides nothing by itself and talks to the kernel only through internal/linux and internal/address.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
	"github.com/holdfast/holdfast/internal/guard"
	"github.com/holdfast/holdfast/internal/identity"
	"github.com/holdfast/holdfast/internal/linux/arrival"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/linux/link"
	"github.com/holdfast/holdfast/internal/linux/neigh"
	"github.com/holdfast/holdfast/internal/linux/sockdiag"
	"github.com/holdfast/holdfast/internal/linux/tickle"
	"github.com/holdfast/holdfast/internal/load"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/store"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
	"github.com/holdfast/holdfast/internal/verdict"
)

// Ports on a node's cluster network.
const (
	PeerPort        = 7700 // nodes to nodes
	StoreClientPort = 7701 // agents to members of the embedded store
	StorePeerPort   = 7702 // members of the embedded store to each other
)

// Files in an agent's directory.
const (
	identityDir   = "identity"
	storeDir      = "store"
	configFile    = "cluster.yaml"    // the last configuration that was in effect; at first the one that init wrote
	clusterIDFile = "cluster-id.json" // whose store this node belongs to, once it has seen it
)

// Options are what an operator sets when starting an agent.
type Options struct {
	Dir            string // identity, store and the last known configuration
	Socket         string // of the local API; default api.DefaultSocket
	SocketGroup    string // group that may use the socket besides root; default none
	GuardSocket    string // of this node's guard; empty: none is looked for
	Replace        bool   // take the place of the agent that runs, if one does
	Took           func() // called when that is done, or was not needed; may be nil
	BrokerFile     string // the broker's own settings; empty, or not there: no session tokens are made
	MetricsAddress string // host:port for Prometheus besides the socket; default none
	Version        string
	Logger         *slog.Logger
}

// Agent is one running node.
type Agent struct {
	options   Options
	ctx       context.Context
	log       *slog.Logger
	now       func() time.Time
	started   time.Time
	identity  *identity.Identity
	self      cluster.Node
	begun     *cluster.Config // the configuration in its directory at the start
	clusterID store.ClusterID
	lock      atomic.Pointer[os.File] // of its directory, held until the process ends; nil: it could not be locked, or a predecessor still has it

	board    *problem.Board
	registry *prometheus.Registry
	events   *eventLog
	store    store.Store
	seat     *seat
	edges    edges
	tenancy  *tenancy
	gateways *gateways
	peers    *peers
	applier  *applier
	hooks    *hookRelay
	clients  *clients
	writer   *writer
	checks   *verdict.Runner
	loads    *load.Board
	answers  *answers
	loop     *loop
	guard    *guard.Client // nil: none is looked for
	servers  []*api.Server // for the other nodes, and the local one
	broker   *brokerRoom
	rooms    *rooms

	// Of a handover.
	config      *cluster.Config   // of this node's directory, at the start
	from        *predecessor      // whose place this agent takes; nil: nobody's
	successors  *net.UnixListener // whoever wants this one's place comes here
	ending      sync.Mutex        // held by a handover, and from the moment on at which the agent ends otherwise
	wasReplaced atomic.Bool
	replaced    chan struct{} // closed when another agent has this one's place

	view       atomic.Pointer[view] // what the loop saw last; what the API answers from
	beat       atomic.Int64         // when the loop last came round, for the watchdog
	leaving    atomic.Bool
	historyMu  sync.Mutex
	history    steering.Past // of this node's own starts and outages
	drew       time.Time     // when the present start drew its first number, by the wall clock
	drewAt     time.Time     // and by the agent's
	links      linkState
	releases   releases   // what others let go of in favour of this node
	readyWords readyWords // what others could take from this node
	networks   networkFaults
	haste      *haste
	wg         sync.WaitGroup
	beating    chan error // why the heartbeats ended

	declarations *declarations // what operators said of dead nodes, and the store has not taken yet
}

// edges are the parts of the world that an agent touches, as it sees them; tests put others there.
type edges struct {
	kernel    kernel
	announcer address.Announcer
	wire      wire                                                  // heartbeats
	held      heldAsker                                             // the other nodes, asked for what is on their interfaces
	checks    checkAsker                                            // and how their own checks stand
	inside    insideAsker                                           // and what they alone know
	names     func(answered func(dns.Told)) names                   // the server that answers names
	runner    func(verdict.Options) *verdict.Runner                 // what runs this node's checks
	sockets   func(ports ...uint16) (map[netip.AddrPort]int, error) // established connections
	links     func() ([]load.Link, error)                           // bytes and speeds

	connections func(visit func(address.Connection)) error                   // the established ones
	destroy     func(on func(netip.Addr) bool) ([]address.Connection, error) // ends connections
	tickles     address.TickleSender                                         // wakes far ends
	arrivals    arrivalListener                                              // hears the first packets of clients
	pushes      connectionPusher                                             // the other nodes, told of connections
	releases    releaser                                                     // and of addresses that they may take
	declared    declaredAsker                                                // and of what an operator declared
	gateways    openAsker                                                    // this node's gateways, asked whether they are there
	site        siteAsker                                                    // the site's DNS servers
	hurry       func() (back func() error, err error)                        // runs this process in real time; nil: it cannot
}

// arrivalListener is arrival.Listener.
type arrivalListener interface {
	FirstPackets(ctx context.Context, iface string, addresses []netip.Addr, heard func(arrival.First)) error
}

// kernel is what the agent itself needs of link.Kernel; the rest is the address room's.
type kernel interface {
	address.Kernel
}

// Run runs an agent until the context ends, then hands over what it holds and stops. It returns an error when it cannot start
// or when a part that it cannot do without fails.
func Run(ctx context.Context, options Options) error {
	a, config, err := prepare(options)
	if err != nil {
		return err
	}
	if err := link.CheckCapabilities(); err != nil {
		return err
	}
	if err := a.enterDirectory(); err != nil {
		return err
	}
	defer a.leaveDirectory()
	if options.Replace {
		if a.from, err = a.meetPredecessor(ctx); err != nil {
			return err
		}
	}
	if a.from == nil && a.lock.Load() == nil { // whoever had the directory has been drained
		if err := a.claimDirectory(); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	a.ctx, a.config = running, config
	a.peers = newPeers(a.identity, a.self)
	defer a.peers.Close()
	e, closeKernel, err := a.openEdges()
	if err != nil {
		return err
	}
	defer closeKernel()
	if a.servers, err = a.listen(); err != nil {
		return err
	}
	if err := a.assemble(config, e); err != nil {
		return errors.Join(err, closeAll(a.servers))
	}
	if a.from != nil {
		defer a.closeStore()
		return a.replace(ctx, running, stop)
	}
	a.startServers(a.servers)
	defer a.heartbeat()() // it observes the others before it can hold itself: they may depend on it while the store is away
	defer a.closeStore()
	if err := a.openStore(ctx, config); err != nil {
		return err
	}
	a.rooms = newRooms(a, running)
	a.rooms.learn(a.store.Watch(running, "", 0))
	return a.serve(ctx, running, stop)
}

// listen opens the node's own sockets. It comes before anything is touched: where an agent runs already it fails, and what that
// one holds stays as it is.
func (a *Agent) listen() ([]*api.Server, error) {
	peerServer, err := a.listenPeers()
	if err != nil {
		return nil, err
	}
	local, err := a.listenLocal()
	if err != nil {
		return nil, errors.Join(err, peerServer.Close())
	}
	if err := a.listenHandover(); err != nil {
		return nil, errors.Join(err, peerServer.Close(), local.Close())
	}
	return []*api.Server{peerServer, local}, nil
}

func closeAll(servers []*api.Server) error {
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// startServers answers the local API and the other nodes from the first moment, so that an operator sees what a starting agent
// waits for. What is not known yet is refused with a word on why. The broker needs nothing of the cluster, and begins with them.
func (a *Agent) startServers(servers []*api.Server) {
	a.wg.Go(func() { a.broker.run(a.ctx) })
	for _, server := range servers {
		a.wg.Go(func() {
			if err := server.Serve(a.ctx); err != nil {
				a.log.Error("a server of the agent stopped", "error", err)
			}
		})
	}
}

// prepare reads what the node is.
func prepare(options Options) (*Agent, *cluster.Config, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{
		options: options, log: options.Logger, now: boottime.Now, started: time.Now(), board: &problem.Board{},
		registry: prometheus.NewRegistry(), events: newEventLog(), replaced: make(chan struct{}),
	}
	a.broker = &brokerRoom{Agent: a}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	id, err := identity.Load(filepath.Join(options.Dir, identityDir))
	if err != nil {
		return nil, nil, fmt.Errorf("loading this node's identity: %w", err)
	}
	a.identity = id
	config, err := readConfig(filepath.Join(options.Dir, configFile))
	if err != nil {
		return nil, nil, err
	}
	node, known := config.NodeNamed(id.Node)
	if !known {
		return nil, nil, fmt.Errorf("this node's certificate is for %q, which is not among the nodes of %s; add it there, or issue a certificate for a node that is", id.Node, filepath.Join(options.Dir, configFile))
	}
	if len(node.Addresses) == 0 {
		return nil, nil, fmt.Errorf("node %q has no addresses in %s; it needs one of a cluster network, on which the others reach it", id.Node, filepath.Join(options.Dir, configFile))
	}
	a.self = node
	return a, config, nil
}

func readConfig(path string) (*cluster.Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's configuration: %w; `holdfast init` writes it", err)
	}
	return cluster.Parse(path, data)
}

// openEdges opens the kernel, the other nodes, and the server that answers names.
func (a *Agent) openEdges() (edges, func(), error) {
	kernel, err := link.Open()
	if err != nil {
		return edges{}, nil, fmt.Errorf("opening the kernel's network interface: %w", err)
	}
	announcer, err := neigh.Open(kernel.In)
	if err != nil {
		kernel.Close()
		return edges{}, nil, fmt.Errorf("opening a raw socket for announcements: %w", err)
	}
	heartbeats, err := a.openHeartbeats()
	if err != nil {
		announcer.Close()
		kernel.Close()
		return edges{}, nil, err
	}
	closeAll := func() {
		_ = heartbeats.Close()
		announcer.Close()
		kernel.Close()
	}
	return edges{
		kernel: kernel, announcer: announcer, wire: heartbeats, held: a.peers, checks: a.peers, inside: a.peers, runner: verdict.NewRunner, sockets: sockdiag.Established, links: readCounters,
		connections: establishedConnections, destroy: destroyConnections, tickles: &tickle.Sender{}, arrivals: &arrival.Listener{}, pushes: a.peers, releases: a.peers, declared: a.peers, site: askSite, hurry: hurryThreads,
		gateways: func(iface string, gateway netip.Addr) (gatewayAsker, error) { return announcer.Asker(iface, gateway) },
		names: func(answered func(dns.Told)) names {
			return dns.NewServer(dns.Options{
				Logger: a.log, Registerer: a.registry, Board: a.board, Now: a.now, OnAnswered: answered, CookieSecrets: a.cookieSecrets(),
			})
		},
	}, closeAll, nil
}

// openHeartbeats binds the sockets of the heartbeats, one for each address of this node in the cluster's networks.
func (a *Agent) openHeartbeats() (*datagram.Link, error) {
	options := datagram.Options{Self: a.self.LNN, Logger: a.log, Registerer: a.registry, Now: a.now, Realtime: true}
	copy(options.Key[:], a.identity.Derive("heartbeats"))
	for _, addr := range a.self.Addresses[:min(len(a.self.Addresses), datagram.MaxNetworks)] {
		options.Local = append(options.Local, netip.AddrPortFrom(addr, HeartbeatPort))
	}
	if a.from != nil {
		options.Adopted, a.from.heartbeats = a.from.heartbeats, nil
	}
	opened, err := datagram.Open(options)
	if err != nil {
		return nil, fmt.Errorf("%w; are these addresses on this node, and does no other agent run here?", err)
	}
	return opened, nil
}

// movingAddress says which addresses may move: those of dynamic pools, and service addresses.
func movingAddress(config *cluster.Config) func(netip.Addr) bool {
	moving := movingAddresses(config)
	return func(addr netip.Addr) bool { return moving[addr] }
}

func movingAddresses(config *cluster.Config) map[netip.Addr]bool {
	moving := map[netip.Addr]bool{}
	for _, id := range config.Pools() {
		if pool, _, _, _ := config.Pool(id); pool.AllocMethod == cluster.AllocDynamic {
			for _, addr := range config.Addresses(id) {
				moving[addr] = true
			}
		}
	}
	for _, id := range config.Subnets() {
		for _, addr := range config.ServiceAddresses(id) {
			moving[addr] = true
		}
	}
	return moving
}

func (a *Agent) listenPeers() (*api.Server, error) {
	at := netip.AddrPortFrom(a.self.Addresses[0], PeerPort).String()
	var listener net.Listener
	var err error
	if a.from != nil && a.from.peers.Addr().String() == at {
		listener = a.from.peers
	} else if listener, err = net.Listen("tcp", at); err != nil {
		return nil, fmt.Errorf("listening for the other nodes on %s: %w; is that address on this node, and does no other agent run here?", at, err)
	}
	return api.NewPeerServer(api.PeerOptions{
		Listener: listener, TLS: a.identity.ServerTLS(), Peer: peerService{a}, Logger: a.log, Registerer: a.registry,
	})
}

func (a *Agent) listenLocal() (*api.Server, error) {
	metrics := promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{})
	var inherited net.Listener
	if a.from != nil {
		inherited = a.from.local
	}
	server, err := api.ListenLocal(api.LocalOptions{
		Inherited: inherited,
		Path:      a.options.Socket, Group: a.options.SocketGroup, Node: nodeService{a}, Broker: brokerService{brokerRoom: a.broker}, Logger: a.log,
		Pages: map[string]http.Handler{"/metrics": metrics}, Registerer: a.registry,
	})
	if err != nil {
		return nil, err
	}
	if a.options.MetricsAddress != "" && a.from == nil {
		if err := a.listenMetrics(); err != nil {
			return nil, err
		}
	}
	return server, nil
}

// listenMetrics opens the port for Prometheus.
func (a *Agent) listenMetrics() error {
	listener, err := net.Listen("tcp", a.options.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listening for Prometheus on %s: %w", a.options.MetricsAddress, err)
	}
	go a.serveMetrics(listener, promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	return nil
}

func (a *Agent) serveMetrics(listener net.Listener, metrics http.Handler) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("the port for Prometheus stopped", "error", err)
	}
}

// event records what happened.
func (a *Agent) event(kind, subject, message string, fields map[string]string) {
	a.events.add(event{At: time.Now(), Node: a.self.Name, Kind: kind, Subject: subject, Message: message, Fields: fields})
	a.log.Info(message, "event", kind, "subject", subject)
}
