package sshgate

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the metrics of a gateway.
type counts struct {
	connectionsRefused *prometheus.CounterVec
	requestsRefused    *prometheus.CounterVec
	sessions           prometheus.Gauge
	started            prometheus.Counter
	targetsFailed      *prometheus.CounterVec
	bytes              *prometheus.CounterVec
	recordingsFailed   prometheus.Counter
	recordingsFull     prometheus.Counter
	auditFailed        prometheus.Counter
}

func newCounts(into prometheus.Registerer) (*counts, error) {
	c := &counts{
		connectionsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_sshgate_connections_refused_total", Help: "SSH connections that did not become sessions, by reason: a limit (starting, starting_early, starting_per_address, sessions), a token_ word, disk_full, ledger, audit, recorder, policy, role, no_token, stopping, handshake.",
		}, []string{"reason"}),
		requestsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_sshgate_requests_refused_total", Help: "Channels and requests of sessions that were refused, by what was asked for.",
		}, []string{"request"}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "holdfast_sshgate_sessions", Help: "SSH sessions under way."}),
		started:  prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_sshgate_sessions_started_total", Help: "SSH sessions that were admitted."}),
		targetsFailed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_sshgate_targets_failed_total", Help: "Targets that could not be logged in to, by reason: reach, host_key, login.",
		}, []string{"reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_sshgate_carried_bytes_total", Help: "Bytes carried in sessions that have ended, by direction: in is from clients to targets.",
		}, []string{"direction"}),
		recordingsFailed: prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_sshgate_recordings_failed_total", Help: "Recordings that could not be begun or continued; their sessions were ended."}),
		recordingsFull: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_sshgate_recordings_full_total", Help: "Recordings that were ended, or not begun, since those of their session were as large as they may be.",
		}),
		auditFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_sshgate_audit_failed_total", Help: "Records that the audit log did not take. A session whose beginning it does not take does not begin.",
		}),
	}
	if into == nil {
		return c, nil
	}
	var failed error
	for _, metric := range []prometheus.Collector{c.connectionsRefused, c.requestsRefused, c.sessions, c.started, c.targetsFailed, c.bytes, c.recordingsFailed, c.recordingsFull, c.auditFailed} {
		failed = errors.Join(failed, into.Register(metric))
	}
	if failed != nil {
		return nil, fmt.Errorf("registering the metrics of the SSH gateway: %w", failed)
	}
	return c, nil
}
