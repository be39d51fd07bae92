package agent

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The messages go to a real socket, as systemd's does: READY only once the node serves, WATCHDOG only while the loop comes round.
func TestSystemdIsToldWhenTheNodeServesAndWhileTheLoopRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "30000")
	a := &Agent{now: time.Now}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.notifySystemd(ctx) }()
	a.beat.Store(time.Now().UnixNano())
	if got := receive(t, socket); got != "WATCHDOG=1" {
		t.Errorf("first came %q; a node without a view is not ready", got)
	}
	a.beat.Store(time.Now().Add(-time.Hour).UnixNano()) // the loop hangs
	cancel()
	<-done
	var last string
	for last != "STOPPING=1" {
		last = receive(t, socket)
		if strings.HasPrefix(last, "READY") {
			t.Errorf("it said %q", last)
		}
	}
}

func receive(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 256)
	n, err := socket.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}
