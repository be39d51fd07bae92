package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	repeatInterval = 10 * time.Second // the same message of etcd appears at most once in it
	maxMessages    = 256              // different messages that are remembered for that
)

// logging brings what etcd logs into slog, one step milder than etcd means it: etcd is one part of a node, not the node.
// Where etcd would end the process (Fatal, Panic) it calls ended and ends only the goroutine that logs.
type logging struct {
	log    *slog.Logger
	ended  func(error)
	silent atomic.Bool

	mu   sync.Mutex
	last map[string]time.Time // when each message was last let through
}

func newLogging(log *slog.Logger, ended func(error)) *logging {
	return &logging{log: log, ended: ended, last: map[string]time.Time{}}
}

// quiet hides everything from now on: a member that is stopped in order complains of lost connections.
func (l *logging) quiet() { l.silent.Store(true) }

func (l *logging) zap() *zap.Logger {
	return zap.New(&core{logging: l}, zap.WithFatalHook(l), zap.WithPanicHook(l))
}

// OnWrite is called after a Fatal or Panic message was written, in place of ending the process.
func (l *logging) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	attributes := zapcore.NewMapObjectEncoder()
	err := errors.New(entry.Message)
	for _, field := range fields {
		field.AddTo(attributes)
		if cause, isError := field.Interface.(error); isError && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	l.ended(err)
	runtime.Goexit()
}

// passes says whether a message may be logged now: the same one only now and then.
func (l *logging) passes(message string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.last[message]) < repeatInterval {
		return false
	}
	if len(l.last) >= maxMessages {
		clear(l.last)
	}
	l.last[message] = now
	return true
}

// core is the zapcore.Core with the fields given so far.
type core struct {
	logging *logging
	fields  []zapcore.Field
}

var _ zapcore.Core = (*core)(nil)

// milder is etcd's level in slog.
func milder(level zapcore.Level) slog.Level {
	switch {
	case level >= zapcore.DPanicLevel:
		return slog.LevelError
	case level == zapcore.ErrorLevel:
		return slog.LevelWarn
	case level == zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// Enabled is false for etcd's debug level: it is costly to make and about etcd's insides only.
func (c *core) Enabled(level zapcore.Level) bool {
	return level > zapcore.DebugLevel && (level >= zapcore.DPanicLevel || c.logging.log.Enabled(context.Background(), milder(level)))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{logging: c.logging, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if c.logging.silent.Load() || !c.logging.passes(entry.Message, entry.Time) {
		return nil
	}
	encoder := zapcore.NewMapObjectEncoder()
	var attributes []slog.Attr
	for _, field := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		field.AddTo(encoder)
		attributes = append(attributes, slog.Any(field.Key, encoder.Fields[field.Key]))
	}
	c.logging.log.LogAttrs(context.Background(), milder(entry.Level), "etcd: "+entry.Message, attributes...)
	return nil
}

func (c *core) Sync() error { return nil }
