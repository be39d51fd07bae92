package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/holdfast/holdfast/internal/problem"
)

// Defaults of an embedded member.
const (
	// Heartbeat and election: with 300 ms the shortest lease is 1 s (etcd grants whole seconds, at least 1.5 elections), a lost
	// leader is replaced within about half a second, and a member may be held up by its disk for 300 ms before anybody
	// notices. etcd wants five heartbeats in that time; each costs an idle member processor time, so there are no more.
	defaultHeartbeat = 60 * time.Millisecond
	defaultElection  = 300 * time.Millisecond

	// The configuration and one record for each pool and service address: some megabytes. A quota keeps a fault from filling
	// the disk of a node that serves clients.
	defaultQuotaBytes = 512 << 20

	// History is for watches that resume. At 10 changes a second this is a quarter of an hour.
	keptRevisions = "10000"

	closeTimeout       = 10 * time.Second
	failedCloseTimeout = 2 * time.Second
)

// walSegmentBytes is what etcd sets aside for each file of its log, twice at start. Its default of 64 MB is meant for
// machines that do nothing else.
const walSegmentBytes = 16 << 20

func init() { wal.SegmentSizeBytes = walSegmentBytes }

// Files are the certificate files that etcd reads by itself.
type Files struct {
	AuthorityCert, NodeCert, NodeKey string
	// ServerName is the DNS name that every node's certificate carries. Members and clients without it are refused, so that
	// of all that the authority signs only nodes come near the store.
	ServerName string
}

// MemberOptions describe one embedded member.
type MemberOptions struct {
	Name  string            // this member's; a key of Peers
	Dir   string            // data directory, made with mode 0700 when absent; the data of an earlier run is taken up
	Peers map[string]string // all members: name -> "host:port" for traffic between members. 1, 3 or 5 are sensible
	// Cluster is the cluster's name; members of different clusters refuse each other.
	Cluster string
	// Joining: the member was added to a store that runs (AddLearner), and this is its first start. Without it, and without
	// data, the member founds a store together with all of Peers.
	Joining bool
	// Alone: the member takes up its data as the only member, and forgets the others. A majority of them must be lost for good: one
	// that comes back with its data is told that it was removed by whoever it asks, and two of them could go on without this one.
	Alone bool

	ListenPeer   []string // "address:port"; default: this member's entry of Peers
	ListenClient []string // "address:port", at least one
	Files        Files

	Logger *slog.Logger   // default: discard
	Board  *problem.Board // default: none

	QuotaBytes int64         // of the database; default 512 MiB; beyond it writes are refused with ErrFull
	Heartbeat  time.Duration // between the members; default 60 ms
	Election   time.Duration // default 300 ms; at least 5 heartbeats; more than 666 ms makes the shortest lease 2 s
}

// Member is an embedded etcd member. It runs until Close, or until it cannot go on, mostly for want of disk space: then
// Stopped is closed and the process lives on.
type Member struct {
	options  MemberOptions
	log      *slog.Logger
	logging  *logging
	lock     *os.File
	etcd     *embed.Etcd
	started  atomic.Bool
	stopped  chan struct{}
	stopOnce sync.Once
	closing  sync.Once
	closed   error // what closing came to

	mu  sync.Mutex
	err error
}

// StartMember starts a member. It returns when the member listens, which does not need the other members; Wait waits until
// it takes part in a majority.
func StartMember(options MemberOptions) (*Member, error) {
	m := &Member{options: options, log: options.Logger, stopped: make(chan struct{})}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.options.Board == nil {
		m.options.Board = new(problem.Board)
	}
	config, err := m.config()
	if err != nil {
		return nil, fmt.Errorf("store member %q: %w", options.Name, err)
	}
	if err := m.lockDir(); err != nil {
		return nil, fmt.Errorf("store member %q: %w", options.Name, err)
	}
	if err := m.start(config); err != nil {
		stuck := errors.Is(err, ErrStuck)
		if !m.started.Load() && !stuck {
			err = errors.Join(err, m.lock.Close())
		}
		if err = explainStart(err, options); errors.Is(err, ErrFull) {
			m.options.Board.Set(full, options.Name, err.Error(), time.Now())
		}
		if stuck && !errors.Is(err, ErrStuck) {
			err = fmt.Errorf("%w; %w", err, ErrStuck)
		}
		return nil, fmt.Errorf("starting store member %q: %w", options.Name, err)
	}
	m.options.Board.Clear(memberStopped, options.Name)
	m.options.Board.Clear(full, options.Name)
	go m.attend()
	return m, nil
}

// start runs etcd's start in a goroutine of its own: where etcd would end the process, only that goroutine ends.
func (m *Member) start(config *embed.Config) error {
	result := make(chan error, 1)
	go func() {
		err := fmt.Errorf("etcd gave up: %w", ErrStuck) // unless it returns
		defer func() { result <- err }()
		m.etcd, err = embed.StartEtcd(config)
	}()
	err := <-result
	m.started.Store(err == nil)
	if fatal := m.Err(); fatal != nil {
		if err == nil {
			err = m.shutDown()
		}
		return errors.Join(fatal, err)
	}
	return err
}

func (m *Member) config() (*embed.Config, error) {
	o := m.options
	peer, known := o.Peers[o.Name]
	switch {
	case !known:
		return nil, fmt.Errorf("it is not among the members %v", slices.Sorted(maps.Keys(o.Peers)))
	case o.Dir == "" || o.Cluster == "" || len(o.ListenClient) == 0:
		return nil, errors.New("data directory, cluster name and client listen address are needed")
	case o.Files.AuthorityCert == "" || o.Files.NodeCert == "" || o.Files.NodeKey == "" || o.Files.ServerName == "":
		return nil, errors.New("certificate files are needed: the store never speaks in the clear")
	}
	c := embed.NewConfig()
	c.Name, c.Dir = o.Name, o.Dir
	c.InitialClusterToken = o.Cluster
	c.StrictReconfigCheck = true
	c.EnableGRPCGateway = false
	c.TlsMinVersion = "TLS1.3"
	c.TickMs = uint(cmp.Or(o.Heartbeat, defaultHeartbeat).Milliseconds())
	c.ElectionMs = uint(cmp.Or(o.Election, defaultElection).Milliseconds())
	c.QuotaBackendBytes = cmp.Or(o.QuotaBytes, int64(defaultQuotaBytes))
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, keptRevisions
	c.GRPCKeepAliveInterval, c.GRPCKeepAliveTimeout = 10*time.Second, 5*time.Second

	var members []string
	for _, name := range slices.Sorted(maps.Keys(o.Peers)) {
		u, err := memberURL(o.Peers[name])
		if err != nil {
			return nil, fmt.Errorf("peer %q: %w", name, err)
		}
		members = append(members, name+"="+u.String())
	}
	c.InitialCluster = strings.Join(members, ",")
	c.ForceNewCluster = o.Alone
	if o.Joining {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	listenPeer := o.ListenPeer
	if len(listenPeer) == 0 {
		listenPeer = []string{peer}
	}
	var err error
	if c.AdvertisePeerUrls, err = memberURLs([]string{peer}); err != nil {
		return nil, err
	}
	if c.ListenPeerUrls, err = memberURLs(listenPeer); err != nil {
		return nil, err
	}
	if c.ListenClientUrls, err = memberURLs(o.ListenClient); err != nil {
		return nil, err
	}
	c.AdvertiseClientUrls = c.ListenClientUrls
	m.useTLS(c)
	m.logging = newLogging(m.log, m.fail)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(m.logging.zap())
	return c, nil
}

// useTLS makes both ports require certificates of nodes. The name in the certificate decides, not the address that the
// connection comes from: a node's own packets may leave from any of its addresses, moving ones included.
func (m *Member) useTLS(c *embed.Config) {
	files := m.options.Files
	info := transport.TLSInfo{
		CertFile: files.NodeCert, KeyFile: files.NodeKey, TrustedCAFile: files.AuthorityCert,
		ClientCertAuth: true, SkipClientSANVerify: true,
		ServerName: files.ServerName, AllowedHostnames: []string{files.ServerName},
	}
	c.PeerTLSInfo, c.ClientTLSInfo = info, info
}

// attend waits for the end that nobody asked for.
func (m *Member) attend() {
	select {
	case <-m.stopped:
	case err := <-m.etcd.Err():
		m.fail(fmt.Errorf("a listener ended: %w", err))
	case <-m.etcd.Server.StopNotify():
		err := errors.New("etcd stopped by itself")
		if m.etcd.Server.IsIDRemoved(m.ID()) {
			err = ErrRemoved
		}
		m.fail(err)
	}
}

// fail notes why the member cannot go on, and ends what is left of it. It may be called from inside etcd, which then may hold any
// of its locks: it must not ask etcd anything.
func (m *Member) fail(err error) {
	m.mu.Lock()
	first := m.err == nil
	if first {
		m.err = explainFailure(err, m.options)
	}
	m.mu.Unlock()
	select {
	case <-m.stopped: // Close is at work: what etcd says then is of no account
		return
	default:
	}
	if !first || !m.started.Load() {
		return // StartMember reports what happens while it runs
	}
	m.report(m.err)
	m.stopOnce.Do(func() { close(m.stopped) })
	go func() { _ = m.shutDown() }() // Close waits for it and gives its error
}

// report says why the member is not there. That it was removed is what somebody wanted.
func (m *Member) report(err error) {
	if errors.Is(err, ErrRemoved) {
		m.log.Info("the store member on this node was removed", "member", m.options.Name)
		return
	}
	m.log.Error("the store member on this node has stopped", "member", m.options.Name, "err", err)
	m.options.Board.Set(memberStopped, m.options.Name, err.Error(), time.Now())
	if errors.Is(err, ErrFull) {
		m.options.Board.Set(full, m.options.Name, err.Error(), time.Now())
	}
}

// Ready is closed once the member has taken part in a majority.
func (m *Member) Ready() <-chan struct{} { return m.etcd.Server.ReadyNotify() }

// Wait waits until the member is ready.
func (m *Member) Wait(ctx context.Context) error {
	select {
	case <-m.Ready():
		return nil
	case <-m.stopped:
		return fmt.Errorf("store member %q: %w", m.options.Name, m.end())
	case <-ctx.Done():
		return fmt.Errorf("store member %q waits for a majority of %v: %w (%w)", m.options.Name,
			slices.Sorted(maps.Keys(m.options.Peers)), ErrUnavailable, ctx.Err())
	}
}

// Stopped is closed when the member has ended, asked or not.
func (m *Member) Stopped() <-chan struct{} { return m.stopped }

// Err returns why the member ended without being asked; nil otherwise.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// end is why the member is not there any more.
func (m *Member) end() error {
	if err := m.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// Close stops the member: a leader hands over first. It takes at most 10 s. A member that does not end by then keeps its
// data directory locked until the process ends, and Close says so; that is the rule after a failed write to its database,
// because etcd knows no way back from there.
func (m *Member) Close() error {
	m.logging.quiet()
	m.stopOnce.Do(func() { close(m.stopped) })
	err := m.shutDown()
	m.options.Board.Clear(memberStopped, m.options.Name) // whoever closes it knows
	return err
}

// shutDown ends what runs and frees the data directory, once for all who ask.
func (m *Member) shutDown() error {
	m.closing.Do(func() { m.closed = m.shutDownOnce() })
	return m.closed
}

func (m *Member) shutDownOnce() error {
	m.logging.quiet()
	failed := m.Err() != nil
	ready := false
	select {
	case <-m.Ready():
		ready = true
	default:
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if failed || !ready {
			// A failed member must not lead for another moment; and etcd's Close waits for the first majority unless the
			// server has stopped before. (HardStop does not return where the failed part holds a lock.)
			m.etcd.Server.HardStop()
		}
		m.etcd.Close()
	}()
	timeout := closeTimeout
	if failed {
		timeout = failedCloseTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
		return m.lock.Close()
	case <-timer.C:
		return fmt.Errorf("store member %q did not end within %v: restart the agent before the member can start again",
			m.options.Name, timeout)
	}
}

// lockDir makes sure that no other process uses the data: etcd itself would wait for it without end.
func (m *Member) lockDir() error {
	if err := os.MkdirAll(m.options.Dir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	path := filepath.Join(m.options.Dir, "holdfast.lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock of the data directory: %w", explainFailure(err, m.options))
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another agent uses the data directory %s: stop it, or give this node its own directory",
			m.options.Dir), lock.Close())
	}
	m.lock = lock
	return nil
}

// explainStart turns etcd's words into what an operator can act on.
func explainStart(err error, o MemberOptions) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "has already been bootstrapped"):
		return fmt.Errorf("its data directory %s is empty, but the other members have known it before: restore the directory "+
			"from a backup, or have the member removed and added anew; an empty member must not vote again (%w)", o.Dir, err)
	case strings.Contains(text, "address already in use"):
		return fmt.Errorf("%w: another program listens there, or another agent runs on this node", err)
	case strings.Contains(text, "cannot assign requested address"):
		return fmt.Errorf("%w: the address is not on this node now", err)
	}
	return explainFailure(err, o)
}

func explainFailure(err error, o MemberOptions) error {
	if errors.Is(err, ErrFull) || errors.Is(err, ErrRemoved) {
		return err
	}
	if strings.Contains(err.Error(), "failed to find local ID in cluster members") { // what a removed member may stumble over
		return fmt.Errorf("%w (%w)", ErrRemoved, err)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), "no space left on device") ||
		strings.Contains(err.Error(), "disk quota exceeded") {
		return fmt.Errorf("no space under %s (%w): %w", o.Dir, err, ErrFull)
	}
	return err
}

func memberURLs(addresses []string) ([]url.URL, error) {
	var urls []url.URL
	for _, address := range addresses {
		u, err := memberURL(address)
		if err != nil {
			return nil, err
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

// memberURL wants an address, not a name: etcd would resolve it once at start and stay with the answer.
func memberURL(address string) (*url.URL, error) {
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: give address:port, with brackets around an IPv6 address", address)
	}
	return &url.URL{Scheme: "https", Host: address}, nil
}
