package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// Bounds of a server for requesters, who are not trusted with more.
const (
	maxRequesterConnections = 256
	maxRequesterOfOneUser   = 32
	maxRequesterMessage     = 64 << 10
	requesterCallTimeout    = 30 * time.Second
	requesterSocketMode     = 0o666 // everybody may ask; grants say what comes of it
)

// Identity is who a requester proved to be.
type Identity struct {
	Name      string
	Certified bool   // by a certificate, not by a key that is known itself
	Says      string // what was proved, for the audit
}

type identityKey struct{}

// Proved returns who made a call from elsewhere, by what he proved; false for a caller of this machine.
func Proved(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}

// Identified is a connection whose other side has proved who it is.
type Identified interface{ Identity() Identity }

// ListenRequesters opens a Unix socket where every user of the machine may ask for sessions, and for nothing else.
func ListenRequesters(path string, broker holdfastv1connect.BrokerHandler, logger *slog.Logger) (*Server, error) {
	socket, err := listenSocket(path, -1)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, requesterSocketMode); err != nil {
		socket.Close()
		return nil, err
	}
	return NewRequesterServer(&userListener{Listener: socket, open: map[uint32]int{}}, broker, logger), nil
}

// NewRequesterServer answers launches and outcomes on connections, and nothing else. Each is one from a Unix socket, or Identified.
func NewRequesterServer(listener net.Listener, broker holdfastv1connect.BrokerHandler, logger *slog.Logger) *Server {
	m := newMeasures(nil, "requesters")
	stopping, stop := context.WithCancel(context.Background())
	_, handler := holdfastv1connect.NewBrokerHandler(broker, connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxRequesterMessage),
		connect.WithInterceptors(watch{measures: m, callTimeout: requesterCallTimeout, stopping: stopping.Done()}),
		m.recovered(logger)))
	mux := http.NewServeMux()
	mux.Handle(holdfastv1connect.BrokerLaunchProcedure, handler)
	mux.Handle(holdfastv1connect.BrokerOutcomeProcedure, handler)
	bounded := newBoundedListener(listener, maxRequesterConnections, func() {})
	server := &http.Server{
		Handler:           identified(mux),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requesterCallTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			inner := conn.(*boundedConn).Conn
			if who, ok := inner.(Identified); ok {
				return WithProved(ctx, who.Identity())
			}
			if user, ok := inner.(*userConn); ok {
				return context.WithValue(ctx, credentialsKey{}, user.credentials)
			}
			return ctx
		},
	}
	return &Server{http: server, listener: bounded, stop: stop, serve: func() error { return server.Serve(bounded) }}
}

// identified lets nobody through of whom nothing is known.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, local := Caller(r.Context())
		if _, remote := Proved(r.Context()); !local && !remote {
			http.Error(w, "it is not known who asks", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// userListener accepts connections of users whom the kernel vouches for, so many of each.
type userListener struct {
	net.Listener
	mu   sync.Mutex
	open map[uint32]int
}

type userConn struct {
	net.Conn
	credentials Credentials
	release     func()
}

func (l *userListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		unixConn, ok := conn.(*net.UnixConn)
		if !ok {
			conn.Close()
			continue
		}
		credentials, err := credentialsOf(unixConn)
		if err != nil || !l.take(credentials.UID) {
			conn.Close()
			continue
		}
		return &userConn{Conn: conn, credentials: credentials, release: sync.OnceFunc(func() { l.give(credentials.UID) })}, nil
	}
}

func (l *userListener) take(uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid] >= maxRequesterOfOneUser {
		return false
	}
	l.open[uid]++
	return true
}

func (l *userListener) give(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid]--; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

func (c *userConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// WithProved is a context of a call by somebody who has proved who he is.
func WithProved(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, who)
}
