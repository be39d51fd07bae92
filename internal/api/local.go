package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// DefaultSocket is where an agent listens unless it is told otherwise.
const DefaultSocket = "/run/holdfast/holdfast.sock"

// Bounds of the local server.
const (
	maxLocalConnections = 256
	maxLocalMessage     = 16 << 20         // a configuration of 256 nodes and 4,096 addresses has some hundred kilobytes
	localCallTimeout    = 15 * time.Minute // a change may be told to wait for nodes, a drain for connections
	headerTimeout       = 10 * time.Second
	idleTimeout         = 2 * time.Minute
	stopGrace           = 3 * time.Second
)

// LocalOptions describe the server on a node's Unix socket.
type LocalOptions struct {
	Path       string                          // empty: DefaultSocket
	Group      string                          // name or number of the group that may connect besides root and the own user; empty: none
	Node       holdfastv1connect.NodeHandler   // answers the calls
	Broker     holdfastv1connect.BrokerHandler // answers those about sessions; nil: nobody does
	Pages      map[string]http.Handler         // further paths on the socket, such as "/metrics"
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not measured
	Inherited  net.Listener          // the socket, as a process before this one opened it; nil: it is opened
}

// Server is a server that has its address and can serve.
type Server struct {
	http     *http.Server
	serve    func() error
	listener net.Listener
	stop     func()
}

// ListenLocal opens the socket. From then on callers queue; Serve answers them.
func ListenLocal(o LocalOptions) (*Server, error) {
	if o.Path == "" {
		o.Path = DefaultSocket
	}
	group, err := lookUpGroup(o.Group)
	if err != nil {
		return nil, err
	}
	socket := o.Inherited
	if socket == nil {
		if socket, err = listenSocket(o.Path, group); err != nil {
			return nil, err
		}
	}
	return newLocalServer(o, socket, admission{uid: ownUID(), group: group}), nil
}

func newLocalServer(o LocalOptions, socket net.Listener, admit admission) *Server {
	m := newMeasures(o.Registerer, "local")
	stopping, stop := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	options := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(maxLocalMessage),
		connect.WithCompressMinBytes(maxLocalMessage), // what stays on the machine costs more to pack than to copy
		connect.WithInterceptors(watch{measures: m, callTimeout: localCallTimeout, stopping: stopping.Done()}),
		m.recovered(o.Logger))
	mux.Handle(holdfastv1connect.NewNodeHandler(o.Node, options))
	if o.Broker != nil {
		mux.Handle(holdfastv1connect.NewBrokerHandler(o.Broker, options))
	}
	for path, page := range o.Pages {
		mux.Handle(path, page)
	}
	listener := newBoundedListener(socket, maxLocalConnections, m.refused.WithLabelValues(reasonFull).Inc)
	server := &http.Server{
		Handler:           admitted(admit, mux, m, o.Logger),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return withCredentials(ctx, conn, o.Logger)
		},
	}
	return &Server{http: server, listener: listener, stop: stop, serve: func() error { return server.Serve(listener) }}
}

// withCredentials puts who connected into the context of the connection's requests. Without them nobody is let in.
func withCredentials(ctx context.Context, conn net.Conn, logger *slog.Logger) context.Context {
	bounded, ok := conn.(*boundedConn)
	if !ok {
		return ctx
	}
	unixConn, ok := bounded.Conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	credentials, err := credentialsOf(unixConn)
	if err != nil {
		logger.Warn("cannot tell who called on the local socket", "error", err)
		return ctx
	}
	return context.WithValue(ctx, credentialsKey{}, credentials)
}

// admitted lets permitted callers through to next.
func admitted(admit admission, next http.Handler, m *measures, logger *slog.Logger) http.Handler {
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, known := Caller(r.Context())
		if known && admit.permits(caller) {
			next.ServeHTTP(w, r)
			return
		}
		m.refused.WithLabelValues(reasonForbidden).Inc()
		logger.Warn("refused a caller on the local socket", "uid", caller.UID, "gid", caller.GID, "pid", caller.PID, "path", r.URL.Path)
		refusal := Forbidden("user %d may not talk to this agent: run the command as root or as the agent's user, or let the agent admit a group", caller.UID)
		if writer.IsSupported(r) {
			if err := writer.Write(w, r, refusal); err != nil {
				logger.Debug("telling a caller that it is refused", "error", err)
			}
			return
		}
		http.Error(w, Text(refusal), http.StatusForbidden)
	})
}

// Address is where the server listens.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// Serve answers until ctx is done; then streams end at once and other calls get three seconds to finish. It returns nil
// after a stop that was asked for.
func (s *Server) Serve(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.serve() }()
	select {
	case err := <-ended:
		s.stop()
		return fmt.Errorf("serving on %s: %w", s.listener.Addr(), err)
	case <-ctx.Done():
	}
	s.stop()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if s.http.Shutdown(grace) != nil {
		s.http.Close()
	}
	if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// Close stops at once.
func (s *Server) Close() error {
	s.stop()
	return errors.Join(s.http.Close(), ignoreClosed(s.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
