package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of a scrape, and of how many go on at a time.
const (
	scrapeTimeout = 10 * time.Second
	scrapeHeader  = 16 << 10 // bytes
	scrapesAtOnce = 4
)

// checkMetrics says why nothing could listen where the configuration has it. Without it nothing does.
func checkMetrics(address string) error {
	if address == "" {
		return nil
	}
	if host, port, err := net.SplitHostPort(address); err != nil || port == "" || host != "" && !isAddress(host) {
		return fmt.Errorf("metrics is %.80q: write where Prometheus asks, as 127.0.0.1:9465", address)
	}
	return nil
}

// serveMetrics answers Prometheus at an address until what it returns is called. Without an address it does nothing.
func serveMetrics(ctx context.Context, address string, registry *prometheus.Registry, logger *slog.Logger) (end func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for Prometheus: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout}))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: scrapeTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: scrapeHeader,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("Prometheus is not answered any more; sessions go on", "error", err)
		}
	}()
	logger.Info("Prometheus is answered", "address", listener.Addr())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}
