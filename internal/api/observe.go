package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
)

// measures are the counters of one server.
type measures struct {
	calls   *prometheus.CounterVec // by procedure and code
	panics  prometheus.Counter
	refused *prometheus.CounterVec // connections, by reason
}

// Reasons for which a connection is refused.
const (
	reasonFull      = "full"      // as many connections as the server takes
	reasonForbidden = "forbidden" // the local caller's user and groups
	reasonHandshake = "handshake" // no TLS 1.3, or no certificate of this cluster
)

// newMeasures registers the counters under the server's name ("local" or "peer"). A second server of that name in one
// registry shares them.
func newMeasures(registerer prometheus.Registerer, server string) *measures {
	labels := prometheus.Labels{"server": server}
	m := &measures{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_api_calls_total", Help: "Calls that ended, by procedure and code.", ConstLabels: labels,
		}, []string{"procedure", "code"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_api_panics_total", Help: "Calls whose handler failed by a fault of the program.", ConstLabels: labels,
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_api_connections_refused_total", Help: "Connections and requests that were not let in.", ConstLabels: labels,
		}, []string{"reason"}),
	}
	if registerer != nil {
		m.calls = registered(registerer, m.calls)
		m.panics = registered(registerer, m.panics)
		m.refused = registered(registerer, m.refused)
	}
	return m
}

func registered[C prometheus.Collector](registerer prometheus.Registerer, collector C) C {
	err := registerer.Register(collector)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	return collector
}

// watch wraps every call of a server: it bounds unary calls in time, ends streams when the server stops, and counts.
type watch struct {
	*measures
	callTimeout time.Duration
	stopping    <-chan struct{}
}

var _ connect.Interceptor = watch{}

func (w watch) count(procedure string, err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	w.calls.WithLabelValues(procedure, code).Inc()
}

// WrapUnary bounds and counts a unary call.
func (w watch) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, w.callTimeout)
		defer cancel()
		response, err := next(ctx, request)
		w.count(request.Spec().Procedure, err)
		return response, err
	}
}

// WrapStreamingClient leaves clients alone.
func (w watch) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler ends a stream when the server stops, and counts it.
func (w watch) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-w.stopping:
				cancel()
			case <-ctx.Done():
			}
		}()
		err := next(ctx, conn)
		select {
		case <-w.stopping:
			if err != nil {
				err = Unavailable("the agent is stopping")
			}
		default:
		}
		w.count(conn.Spec().Procedure, err)
		return err
	}
}

// recovered turns a panic of a handler into an error for its caller, and logs where it happened. The agent lives on: one
// call that fails must not end what the node holds.
func (m *measures) recovered(logger *slog.Logger) connect.HandlerOption {
	return connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, value any) error {
		m.panics.Inc()
		logger.Error("a call failed by a fault of the program", "procedure", spec.Procedure,
			"panic", fmt.Sprint(value), "stack", string(debug.Stack()))
		return connect.NewError(connect.CodeInternal, fmt.Errorf(
			"the agent failed while answering %s; this is a fault of Holdfast: the agent's log has the details to report", spec.Procedure))
	})
}
