// Package sshgate is an SSH server that takes a session to a target and records it: an SSH proxy between a client and a target's sshd.
//
// A client comes with a session token as its user name. The gateway checks it by itself (package token), so that it needs no broker: neither
// to begin a session nor to go on with one. It logs in at the target with a certificate of minutes that it signs itself, or with
// the agent that the client forwards, and only after the target has proved that it is the one on record (known_hosts). Then it passes on
// channel by channel and request by request what the token allows, and refuses the rest with a reason that the user sees.
//
// What is shown in a shell is recorded before it is shown. A session that cannot be recorded or audited does not begin, and one whose
// recording fails, or becomes larger than it may, is ended.
//
// Every connection has goroutines of its own and shares nothing but the Gate, which is safe for concurrent use. Connections, those under way
// in particular, channels, times and waiting data are bounded (Limits); what is refused at a bound is counted. What is allowed is decided in
// policy.go and names.go, which are pure.
package sshgate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// Limits bound what a gateway takes on. Zero values become the defaults.
type Limits struct {
	Starting           int           // connections that are not yet admitted, in all; the next is closed at once. Default 64
	StartingDropFrom   int           // from so many on, some are closed at once, by chance; Starting or more for none. Default half of Starting
	StartingDropRate   int           // how many of a hundred these are at StartingDropFrom; all at Starting. Default 30
	StartingPerAddress int           // the same as Starting, from one address (of IPv6: one /64). Default 16
	Sessions           int           // admitted connections. Default 1000
	Channels           int           // channels of one connection at a time. Default 64
	Unread             int64         // bytes that the channels of one connection may hold which nobody has taken yet. Default 64 MiB
	Handshake          time.Duration // from connecting to being admitted. Default 20 s
	Dial               time.Duration // to reach the target and log in there. Default 10 s
	Idle               time.Duration // without any data in either direction. Default 1 h
	Total              time.Duration // of a session; the token may say less. Default 24 h
	KeepAlive          time.Duration // between questions whether the other side is there; three without answer end the session. Default 15 s
	Drain              time.Duration // for sessions to end by themselves when the gateway stops. Default 10 s
	Tokens             int           // used tokens that are remembered. Default 100 000
	Recorded           int64         // bytes that the recordings of one session may take, together; then it is ended. Default 512 MiB
}

func (l Limits) withDefaults() Limits {
	l.Starting = cmp.Or(l.Starting, 64) // of which the next is a half
	for _, n := range []struct {
		at      *int
		instead int
	}{{&l.StartingDropFrom, max(1, l.Starting/2)}, {&l.StartingDropRate, 30}, {&l.StartingPerAddress, 16}, {&l.Sessions, 1000}, {&l.Channels, 64}, {&l.Tokens, 100_000}} {
		if *n.at == 0 {
			*n.at = n.instead
		}
	}
	if l.Recorded == 0 {
		l.Recorded = 512 << 20
	}
	if l.Unread == 0 {
		l.Unread = 64 << 20
	}
	for _, d := range []struct {
		at      *time.Duration
		instead time.Duration
	}{{&l.Handshake, 20 * time.Second}, {&l.Dial, 10 * time.Second}, {&l.Idle, time.Hour}, {&l.Total, 24 * time.Hour}, {&l.KeepAlive, 15 * time.Second}, {&l.Drain, 10 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.instead
		}
	}
	return l
}

// Recorder begins recordings. *recording.Store is one.
type Recorder interface {
	Room() error
	Begin(recording.Header, *recording.Quota) (*recording.Writer, error)
}

// Auditor takes records. *audit.Log is one.
type Auditor interface{ Write(audit.Record) error }

// Ledger remembers used tokens beyond the life of the process.
type Ledger interface {
	// Used are those of earlier processes, and until when each counts.
	Used() map[token.ID]time.Time
	// Note is called before a token's session begins.
	Note(id token.ID, until time.Time) error
}

// HostKeys tells targets from impostors. *KnownHosts is one.
type HostKeys interface {
	// For returns what a target has to prove, or why nothing is known of it.
	For(address string) (ssh.HostKeyCallback, []string, error)
}

// Options are what a Gate is made of. All are needed but where a default is named.
type Options struct {
	Name        string                     // of this gateway, as tokens say it
	HostKeys    []ssh.Signer               // by which it proves itself to clients
	Brokers     func() []ed25519.PublicKey // whose tokens count; asked for each connection, so that it may change
	UserCA      ssh.Signer                 // signs certificates for targets; nil if only forwarded agents are used
	Targets     HostKeys
	Recorder    Recorder
	Auditor     Auditor
	Ledger      Ledger         // of used tokens; nil to forget them when the process ends
	Barred      string         // why no session begins at this gateway, whoever comes, as a sentence; empty if sessions begin
	May         token.Channels // what tokens may grant here at most; default everything
	RecordInput InputPolicy    // whether what is typed is recorded as well; default InputWithoutTerminal
	Environment []string       // variables that may be set on the target, with * at the end; default LANG, LC_*, TERM, COLORTERM
	RekeyBytes  uint64         // after how many bytes keys are exchanged anew with the client; default what suits the cipher
	Limits      Limits
	Logger      *slog.Logger
	Metrics     prometheus.Registerer
	Now         func() time.Time                                                     // default time.Now
	Chance      func(int) int                                                        // a number from 0 to below the given one, by chance; default math/rand/v2
	Dial        func(ctx context.Context, network, address string) (net.Conn, error) // default net.Dialer
}

// Gate is an SSH gateway.
type Gate struct {
	options Options
	config  ssh.ServerConfig
	counts  *counts
	now     func() time.Time

	lock        sync.Mutex
	spent       *token.Spent
	starting    map[netip.Addr]int
	startingAll int
	sessions    map[*connection]bool
	stopping    bool
	handlers    sync.WaitGroup
}

// New makes a gateway. Serve starts it.
func New(options Options) (*Gate, error) {
	options.Limits = options.Limits.withDefaults()
	if options.May == 0 {
		options.May = token.Everything
	}
	if options.Environment == nil {
		options.Environment = []string{"LANG", "LC_*", "TERM", "COLORTERM"}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Chance == nil {
		options.Chance = mathrand.IntN
	}
	if options.Dial == nil {
		options.Dial = (&net.Dialer{}).DialContext
	}
	if len(options.HostKeys) == 0 {
		return nil, errors.New("the SSH gateway has no host key by which to prove itself")
	}
	counts, err := newCounts(options.Metrics)
	if err != nil {
		return nil, err
	}
	g := &Gate{
		options: options, counts: counts, now: options.Now, spent: token.NewSpent(options.Limits.Tokens),
		starting: map[netip.Addr]int{}, sessions: map[*connection]bool{},
	}
	if options.Ledger != nil {
		for id, until := range options.Ledger.Used() {
			g.spent.Remember(id, until)
		}
	}
	g.config = ssh.ServerConfig{Config: algorithms(), ServerVersion: "SSH-2.0-Holdfast"}
	g.config.RekeyThreshold = options.RekeyBytes
	for _, key := range options.HostKeys {
		g.config.AddHostKey(key)
	}
	return g, nil
}

// algorithms are what the gateway agrees to, on both sides. The ciphers are AES-GCM alone: every client since OpenSSH 6.2 has it, and where
// more were offered, OpenSSH's client before version 10 would take one that costs several times as much for each byte.
func algorithms() ssh.Config {
	return ssh.Config{
		KeyExchanges: []string{ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519, "curve25519-sha256@libssh.org", ssh.KeyExchangeECDHP256},
		Ciphers:      []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM},
		MACs:         []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM},
	}
}

// Serve takes connections until the context ends or the listener fails, and returns when the sessions are over: they get Limits.Drain to end by
// themselves. Nothing else ends them: neither a broker that is gone nor a configuration that changes.
func (g *Gate) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var failure error
	for failure == nil {
		conn, err := listener.Accept()
		switch {
		case err == nil:
			g.take(conn)
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			failure = err
		default:
			// Out of file descriptors, mostly. Connections that end give some back.
			g.options.Logger.Warn("the SSH gateway cannot take a connection", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	g.drain()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listening for SSH: %w", failure)
}

// drain waits for the sessions, and ends those that do not end.
func (g *Gate) drain() {
	g.lock.Lock()
	g.stopping = true
	g.lock.Unlock()
	late := time.AfterFunc(g.options.Limits.Drain, func() {
		g.lock.Lock()
		defer g.lock.Unlock()
		for c := range g.sessions {
			go c.end("the gateway is stopping")
		}
	})
	defer late.Stop()
	g.handlers.Wait()
}

// Sessions is how many run, by protocol: "ssh", and "tcp" for tunnels.
func (g *Gate) Sessions() map[string]int {
	g.lock.Lock()
	defer g.lock.Unlock()
	running := map[string]int{"ssh": 0, "tcp": 0}
	for c := range g.sessions {
		if c.grant.May.Has(token.Tunnel) {
			running["tcp"]++
		} else {
			running["ssh"]++
		}
	}
	return running
}

// Accepts says why no session would begin now, whatever token came; nil if one would.
func (g *Gate) Accepts() error {
	if g.options.Barred != "" {
		return &barred{"role", g.options.Barred}
	}
	g.lock.Lock()
	stopping, sessions := g.stopping, len(g.sessions)
	g.lock.Unlock()
	switch {
	case stopping:
		return &barred{"stopping", "it is stopping"}
	case sessions >= g.options.Limits.Sessions:
		return &barred{"sessions", fmt.Sprintf("it has %d sessions, which is as many as it takes", sessions)}
	}
	return g.options.Recorder.Room()
}

// HostKeys are the public keys by which the gateway proves itself.
func (g *Gate) HostKeys() (keys []ssh.PublicKey) {
	for _, signer := range g.options.HostKeys {
		keys = append(keys, signer.PublicKey())
	}
	return keys
}

// place is where limits for one address are counted: an IPv6 client has a whole /64 to itself.
func place(address net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64)
		return prefix.Addr()
	}
	return ip
}

// earlyDrop is of how many in a hundred connections the next one is closed, with so many starting: from StartingDropRate at StartingDropFrom it
// rises to all of them at Starting, as OpenSSH's MaxStartups does (sshd_config(5)). Whoever takes the places by connections that come to nothing has to win
// each of them again and again against those of others, who connect anew.
func (l Limits) earlyDrop(starting int) int {
	switch {
	case starting >= l.Starting:
		return 100
	case starting < l.StartingDropFrom:
		return 0
	}
	return l.StartingDropRate + (100-l.StartingDropRate)*(starting-l.StartingDropFrom)/(l.Starting-l.StartingDropFrom)
}

// take begins to serve a connection, or closes it where a limit is reached.
func (g *Gate) take(conn net.Conn) {
	from := place(conn.RemoteAddr())
	g.lock.Lock()
	reason := ""
	switch {
	case g.startingAll >= g.options.Limits.Starting:
		reason = "starting"
	case g.starting[from] >= g.options.Limits.StartingPerAddress:
		reason = "starting_per_address"
	case g.options.Chance(100) < g.options.Limits.earlyDrop(g.startingAll):
		reason = "starting_early"
	default:
		g.startingAll++
		g.starting[from]++
		g.handlers.Add(1)
	}
	g.lock.Unlock()
	if reason != "" {
		g.counts.connectionsRefused.WithLabelValues(reason).Inc()
		_ = conn.Close()
		return
	}
	go func() {
		defer g.handlers.Done()
		g.handle(conn, func() {
			g.lock.Lock()
			defer g.lock.Unlock()
			g.startingAll--
			if g.starting[from]--; g.starting[from] == 0 {
				delete(g.starting, from)
			}
		})
	}()
}

// handle serves one connection to its end. Admitted is called once, when it is no longer starting.
func (g *Gate) handle(conn net.Conn, admitted func()) {
	defer conn.Close()
	settled := sync.OnceFunc(admitted)
	defer settled()
	_ = conn.SetDeadline(time.Now().Add(g.options.Limits.Handshake)) // what cannot be set fails with the first read
	a := &attempt{gate: g, client: conn.RemoteAddr()}
	config := g.config
	a.configure(&config)
	client, channels, requests, err := ssh.NewServerConn(promptly(conn), &config)
	if err != nil {
		a.abandon()
		if a.refused == "" {
			g.counts.connectionsRefused.WithLabelValues("handshake").Inc()
		}
		g.options.Logger.Debug("an SSH connection did not begin", "client", conn.RemoteAddr(), "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	settled()
	a.session.serve(client, channels, requests)
}

// newSession makes a session for a grant, as long as there may be one more.
func (g *Gate) newSession(grant token.Grant, client net.Addr) (*connection, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	now := g.now()
	c := newConnection(g, grant, recording.NewSessionID(now, random), now, client)
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.stopping {
		return nil, &barred{"stopping", "The gateway " + g.options.Name + " is stopping. Use another one, or try again in a minute."}
	}
	if len(g.sessions) >= g.options.Limits.Sessions {
		return nil, &barred{"sessions", fmt.Sprintf("The gateway %s has %d sessions, which is as many as it takes. Use another one, or try again later.", g.options.Name, len(g.sessions))}
	}
	if err := g.spent.Spend(grant, now); err != nil {
		return nil, err
	}
	g.sessions[c] = true
	g.counts.sessions.Set(float64(len(g.sessions)))
	return c, nil
}

func (g *Gate) forget(c *connection) {
	g.lock.Lock()
	defer g.lock.Unlock()
	delete(g.sessions, c)
	g.counts.sessions.Set(float64(len(g.sessions)))
}

// unmake takes back a session that did not begin, and the use of its token.
func (g *Gate) unmake(c *connection) {
	c.cancel()
	g.forget(c)
	g.lock.Lock()
	defer g.lock.Unlock()
	g.spent.Return(c.grant.ID)
}

// barred is why a good token does not begin a session.
type barred struct{ reason, text string }

func (b *barred) Error() string { return b.text }
