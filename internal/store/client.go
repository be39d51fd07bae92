package store

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast/holdfast/internal/problem"
)

// maxEndpoints bounds the members that one client knows; etcd itself advises at most 7.
const maxEndpoints = 16

// Options say where the store is and how to talk to it.
type Options struct {
	Endpoints []string    // "host:port" or "https://host:port" of each member; the nearest first. 1 to 16
	TLS       *tls.Config // required; TLS 1.3 is enforced
	Cluster   string      // the cluster's name: its records live under /holdfast/CLUSTER/, so that an etcd can be shared

	Logger     *slog.Logger          // default: discard
	Board      *problem.Board        // default: none
	Registerer prometheus.Registerer // default: none

	// TryTimeout is how long a member gets at most to answer a first try: ten times what answers usually take, at least 50 ms.
	// Later tries wait a quarter of the time that the call has taken so far, up to 2 s. Default 200 ms. Too short costs slow
	// stores useless tries; too long costs failover time.
	TryTimeout time.Duration
	// CallTimeout bounds a call whose context has no earlier deadline. Default 10 s.
	CallTimeout time.Duration
}

// client is a Store over the etcd v3 protocol.
//
// It has one connection to each member and speaks the protocol's own messages: etcd's client library picks the member by
// itself and waits for it, which is what costs 5 to 7 s when a leader dies.
type client struct {
	options Options
	log     *slog.Logger
	prefix  string // of records: /holdfast/CLUSTER/data/
	writers string // of this client's commit slots: /holdfast/CLUSTER/writers/RANDOM/
	metrics *metrics

	known   sync.Mutex                // held while the members are exchanged
	all     atomic.Pointer[[]*member] // never empty
	current atomic.Pointer[member]    // the member that calls try first
	slots   slots

	ctx     context.Context // ends at Close
	stop    context.CancelFunc
	watches atomic.Int64
	usual   atomic.Int64 // nanoseconds that an answer takes, smoothed
	full    atomic.Bool  // a write was refused for space
	running sync.WaitGroup
}

// member is one endpoint.
type member struct {
	endpoint string
	conn     *grpc.ClientConn
	kv       etcdserverpb.KVClient
	lease    etcdserverpb.LeaseClient
	watch    etcdserverpb.WatchClient
	status   etcdserverpb.MaintenanceClient

	watches atomic.Int64 // streams open here
	mu      sync.Mutex
	good    context.Context // ends when the member is given up; then replaced
	giveUp  context.CancelFunc
}

// Open returns a Store over the members at the endpoints. It does not wait for them: calls do.
func Open(options Options) (Client, error) {
	c := &client{options: options, log: options.Logger}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.options.Board == nil {
		c.options.Board = new(problem.Board)
	}
	if c.options.TryTimeout <= 0 {
		c.options.TryTimeout = 200 * time.Millisecond
	}
	if c.options.CallTimeout <= 0 {
		c.options.CallTimeout = 10 * time.Second
	}
	if options.TLS == nil {
		return nil, errors.New("opening the store: no TLS settings; the store is reached over mutual TLS only")
	}
	if options.Cluster == "" || strings.ContainsAny(options.Cluster, "/\x00") {
		return nil, fmt.Errorf("opening the store: %q cannot be a cluster name", options.Cluster)
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("naming this writer: %w", err)
	}
	c.prefix = "/holdfast/" + options.Cluster + "/data/"
	c.writers = "/holdfast/" + options.Cluster + "/writers/" + hex.EncodeToString(random) + "/"
	c.slots.init()
	c.ctx, c.stop = context.WithCancel(context.Background())
	var err error
	c.metrics, err = newMetrics(options.Registerer)
	if err == nil {
		err = c.SetEndpoints(options.Endpoints)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	c.running.Go(c.watchOver)
	return c, nil
}

func (c *client) dial(address string) (*member, error) {
	settings := c.options.TLS.Clone()
	settings.MinVersion = max(settings.MinVersion, tls.VersionTLS13)
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(settings)),
		grpc.WithNoProxy(), // the store is in the cluster's own network; an environment variable must not redirect it
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
	)
	if err != nil {
		return nil, fmt.Errorf("opening the store at %s: %w", address, err)
	}
	m := &member{endpoint: address, conn: conn,
		kv: etcdserverpb.NewKVClient(conn), lease: etcdserverpb.NewLeaseClient(conn),
		watch: etcdserverpb.NewWatchClient(conn), status: etcdserverpb.NewMaintenanceClient(conn)}
	m.good, m.giveUp = context.WithCancel(c.ctx)
	return m, nil
}

// hostPort reads an endpoint.
func hostPort(endpoint string) (string, error) {
	address := endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil {
			return "", fmt.Errorf("store endpoint %q is not a URL: %w", endpoint, err)
		}
		if u.Scheme != "https" {
			return "", fmt.Errorf("store endpoint %q: only https is spoken, because the store decides who holds what", endpoint)
		}
		if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
			return "", fmt.Errorf("store endpoint %q: give https://host:port and nothing else", endpoint)
		}
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("store endpoint %q: give host:port, with brackets around an IPv6 address", endpoint)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", fmt.Errorf("store endpoint %q: the port must be a number from 1 to 65535", endpoint)
	}
	return address, nil
}

// generation returns the context that ends when the member is given up.
func (m *member) generation() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.good
}

// abandon ends the streams on a member, which makes their watches go elsewhere.
func (m *member) abandon(parent context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveUp()
	m.good, m.giveUp = context.WithCancel(parent)
}

// leave ends the streams on a member for good.
func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveUp()
}

// Close implements Store.
func (c *client) Close() error {
	select {
	case <-c.ctx.Done():
		return nil
	default:
	}
	c.forgetWriter()
	c.stop()
	c.running.Wait()
	c.metrics.unregister()
	c.known.Lock()
	defer c.known.Unlock()
	return c.closeConns()
}

func (c *client) closeConns() error {
	var errs []error
	for _, m := range c.members() {
		errs = append(errs, m.conn.Close())
	}
	return errors.Join(errs...)
}

// data is a record's key in etcd.
func (c *client) data(key string) []byte { return []byte(c.prefix + key) }

// rangeEnd is the first key after all keys that begin with prefix (the etcd API's convention for a prefix).
func rangeEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}
