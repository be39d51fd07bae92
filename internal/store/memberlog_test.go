package store

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestEtcdSpeaksThroughSlog(t *testing.T) {
	var out bytes.Buffer
	l := newLogging(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})), nil)
	log := l.zap().With(zap.String("member", "node1"))
	log.Debug("insides")
	log.Info("chatter")
	log.Warn("slow", zap.Duration("took", time.Second))
	log.Warn("slow", zap.Duration("took", 2*time.Second)) // the same again at once
	log.Error("lost peer", zap.Error(errors.New("refused")))
	l.quiet()
	log.Error("closing noise")
	want := "level=INFO msg=\"etcd: slow\" member=node1 took=1s\n" + "level=WARN msg=\"etcd: lost peer\" member=node1 error=refused\n"
	if got := out.String(); got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
}

func TestSameMessageComesBackAfterAWhile(t *testing.T) {
	l := newLogging(slog.New(slog.DiscardHandler), nil)
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		message string
		after   time.Duration
		passes  bool
	}{{"a", 0, true}, {"a", 9 * time.Second, false}, {"b", 9 * time.Second, true}, {"a", 10 * time.Second, true}} {
		if got := l.passes(c.message, now.Add(c.after)); got != c.passes {
			t.Errorf("%q after %v: %v", c.message, c.after, got)
		}
	}
	for i := range 10 * maxMessages {
		l.passes(strings.Repeat("x", i), now)
	}
	if len(l.last) > maxMessages {
		t.Errorf("%d messages are remembered", len(l.last))
	}
}

// Where etcd would end the process, the member learns why, and only the goroutine that gave up ends.
func TestFatalEndsOnlyItsGoroutine(t *testing.T) {
	for _, level := range []zapcore.Level{zap.FatalLevel, zap.PanicLevel} {
		heard := make(chan error, 1)
		l := newLogging(slog.New(slog.DiscardHandler), func(err error) { heard <- err })
		cause := errors.New("no space left on device")
		ended := make(chan bool, 1)
		go func() {
			wentOn := false
			defer func() { ended <- wentOn }()
			l.zap().Log(level, "failed to save", zap.Error(cause))
			wentOn = true
		}()
		if <-ended {
			t.Errorf("%v: the goroutine went on with a broken state", level)
		}
		if err := <-heard; !errors.Is(err, cause) || !strings.Contains(err.Error(), "failed to save") {
			t.Errorf("%v: heard %v", level, err)
		}
	}
}
