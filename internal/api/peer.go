package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// Bounds of calls between nodes.
const (
	maxPeerConnections = 1024    // 256 nodes with a few connections each
	maxPeerMessage     = 1 << 20 // a sample that counts 4,096 addresses has about 150 kilobytes
	maxPeerStreams     = 64
	peerCallTimeout    = time.Minute // hooks; every caller names a shorter time
	peerBodyTimeout    = 10 * time.Second
)

// PeerOptions describe the server that other nodes call.
type PeerOptions struct {
	Listener   net.Listener // already open; Serve closes it
	TLS        *tls.Config  // must verify client certificates
	Peer       holdfastv1connect.PeerHandler
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not measured
}

type tlsKey struct{}

// PeerState returns the verified TLS state of the node that made a call; false for a call that came another way.
func PeerState(ctx context.Context) (tls.ConnectionState, bool) {
	state, ok := ctx.Value(tlsKey{}).(*tls.ConnectionState)
	if !ok || len(state.VerifiedChains) == 0 {
		return tls.ConnectionState{}, false
	}
	return *state, true
}

// NewPeerServer makes the server for other nodes. It refuses settings that would let strangers in.
func NewPeerServer(o PeerOptions) (*Server, error) {
	if o.TLS == nil || o.TLS.ClientAuth != tls.RequireAndVerifyClientCert {
		return nil, errors.New("the port for other nodes needs TLS that verifies client certificates: this is a fault of Holdfast")
	}
	m := newMeasures(o.Registerer, "peer")
	stopping, stop := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle(holdfastv1connect.NewPeerHandler(o.Peer,
		connect.WithReadMaxBytes(maxPeerMessage),
		connect.WithCompression("gzip", nil, nil), // small messages; and nothing that unpacks to more than was sent
		connect.WithInterceptors(watch{measures: m, callTimeout: peerCallTimeout, stopping: stopping.Done()}),
		m.recovered(o.Logger)))
	listener := newBoundedListener(o.Listener, maxPeerConnections, m.refused.WithLabelValues(reasonFull).Inc)
	handshakes := &sparseLog{logger: o.Logger, count: m.refused.WithLabelValues(reasonHandshake).Inc}
	server := &http.Server{
		Handler:           withTLSState(mux),
		TLSConfig:         hardened(o.TLS),
		Protocols:         onlyHTTP2(),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxPeerStreams},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       peerBodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(handshakes, "", 0),
	}
	return &Server{http: server, listener: listener, stop: stop, serve: func() error { return server.ServeTLS(listener, "", "") }}, nil
}

// hardened returns a copy of the settings that takes TLS 1.3 and HTTP/2 and nothing else.
func hardened(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = []string{"h2"}
	return config
}

func onlyHTTP2() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return protocols
}

func withTLSState(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tlsKey{}, r.TLS)))
	})
}

// sparseLog writes what the HTTP server complains of, which is failed handshakes nearly always, at most once a second: a
// stranger who knocks must not fill the log. All are counted.
type sparseLog struct {
	logger *slog.Logger
	count  func()

	mu   sync.Mutex
	last time.Time
	held int
}

var _ io.Writer = (*sparseLog)(nil)

func (l *sparseLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		l.count()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.last) >= time.Second {
		l.logger.Warn("a connection from another node failed", "detail", string(bytes.TrimSpace(line)), "not_shown", l.held)
		l.last, l.held = now, 0
	} else {
		l.held++
	}
	return len(line), nil
}

// PeerClient calls one other node.
type PeerClient struct {
	holdfastv1connect.PeerClient
	transport *http.Transport
}

// NewPeerClient returns a client for the node at address (host:port). Nothing is opened before the first call; each call
// is bounded by its context. A connection on which the other side has fallen silent is given up after two seconds, so that
// the next call opens a new one. dial may be nil.
func NewPeerClient(address string, config *tls.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*PeerClient, error) {
	if config == nil || (config.InsecureSkipVerify && config.VerifyConnection == nil) {
		return nil, fmt.Errorf("calling node %s needs TLS that verifies it: this is a fault of Holdfast", address)
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	transport := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     hardened(config),
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           onlyHTTP2(),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: time.Second, PingTimeout: time.Second, WriteByteTimeout: 2 * time.Second},
		IdleConnTimeout:     idleTimeout / 2,
	}
	return &PeerClient{
		PeerClient: holdfastv1connect.NewPeerClient(&http.Client{Transport: transport}, "https://"+address,
			connect.WithReadMaxBytes(maxPeerMessage), connect.WithAcceptCompression("gzip", nil, nil)),
		transport: transport,
	}, nil
}

// Close closes idle connections.
func (c *PeerClient) Close() { c.transport.CloseIdleConnections() }
