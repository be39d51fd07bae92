// Package gateway is the process `holdfast gateway`: it reads a configuration file and runs the SSH session gateway (package sshgate) by it, until it is
// told to stop. It decides nothing about sessions.
package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
)

// assemble makes the gateway that a configuration describes, and has what it counts in a registry, which may be nil. Without a ledger it is only
// good to be looked at.
func assemble(c config, ledger sshgate.Ledger, counted prometheus.Registerer, logger *slog.Logger) (*sshgate.Gate, error) {
	var faults []error
	var hostKeys []ssh.Signer
	for _, file := range c.HostKeys {
		key, err := readPrivate("host key", file)
		faults, hostKeys = append(faults, err), append(hostKeys, key)
	}
	var ca ssh.Signer
	var err error
	if c.UserCA != "" {
		ca, err = readPrivate("SSH user CA", c.UserCA)
		faults = append(faults, err)
	}
	keys, err := openBrokers(c.Brokers, logger)
	faults = append(faults, err)
	targets, err := sshgate.NewKnownHosts(c.KnownHosts...)
	faults = append(faults, err)
	recipients, err := recording.ParseRecipients(c.Recordings.Recipients)
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	store, err := recording.NewStore(recording.Options{
		Directory: c.Recordings.Directory, Recipients: recipients, MinFree: c.Recordings.MinFreeMiB << 20, SyncEvery: time.Duration(c.Recordings.SyncIntervalMS) * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if err := store.Room(); err != nil {
		logger.Error("no session can begin", "error", err)
	}
	return sshgate.New(sshgate.Options{
		Name: c.Name, HostKeys: hostKeys, Brokers: keys.known, UserCA: ca, Targets: targets, Recorder: store, Auditor: audit.New(c.Audit), Ledger: ledger, Metrics: counted, May: c.may, Barred: c.bar(),
		RecordInput: c.Recordings.Input.InputPolicy, Environment: c.Environment, Limits: c.limits, Logger: logger,
	})
}

// openLedger opens the list of used tokens, which lies with the recordings. Its name is made of the gateway's, which may have any characters.
func openLedger(c config, now time.Time) (*usedTokens, error) {
	if err := os.MkdirAll(c.Recordings.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of recordings: %w", err)
	}
	name := sha256.Sum256([]byte(c.Name))
	return openUsed(filepath.Join(c.Recordings.Directory, fmt.Sprintf("used-tokens-%x", name[:4])), now)
}

// run runs a gateway until the context ends.
func run(ctx context.Context, file, version string, logger *slog.Logger) error {
	c, err := readConfig(file)
	if err != nil {
		return err
	}
	ledger, err := openLedger(c, time.Now())
	if err != nil {
		return fmt.Errorf("starting the gateway %s: %w", c.Name, err)
	}
	defer ledger.Close()
	registry := prometheus.NewRegistry()
	gate, err := assemble(c, ledger, registry, logger)
	if err != nil {
		return fmt.Errorf("starting the gateway %s:\n%w", c.Name, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("starting the gateway %s: %w", c.Name, err)
	}
	unserve, err := serveMetrics(ctx, c.Metrics, registry, logger)
	if err != nil {
		return errors.Join(fmt.Errorf("starting the gateway %s: %w", c.Name, err), listener.Close())
	}
	defer unserve()
	leave, err := joinFleet(ctx, c, gate, place{file, version, listener.Addr()}, logger)
	if err != nil {
		return errors.Join(fmt.Errorf("starting the gateway %s: %w", c.Name, err), listener.Close())
	}
	defer leave() // when the sessions are over
	logger.Info("the gateway takes sessions", "name", c.Name, "address", listener.Addr())
	return gate.Serve(ctx, listener)
}
