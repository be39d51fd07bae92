package agent

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"
)

// notifySystemd tells systemd that the agent is ready and, where a watchdog is asked for, that the loop still comes round
// (sd_notify(3)). Without systemd it does nothing.
func (a *Agent) notifySystemd(ctx context.Context) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	ready := false
	interval := time.Second
	if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		interval = time.Duration(usec) * time.Microsecond / 3
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if v := a.view.Load(); v != nil && !ready && a.loop.serving(v) == "" {
			ready = a.say(socket, "READY=1\nSTATUS=serving")
		}
		if beat := a.beat.Load(); beat > 0 && a.now().UnixNano()-beat < int64(2*lookAgain) {
			a.say(socket, "WATCHDOG=1")
		}
		select {
		case <-ctx.Done():
			if !a.wasReplaced.Load() {
				a.say(socket, "STOPPING=1")
			}
			return
		case <-ticker.C:
		}
	}
}

func (a *Agent) say(socket, message string) bool {
	conn, err := net.Dial("unixgram", socket)
	if err != nil {
		a.log.Warn("telling systemd", "error", err)
		return false
	}
	defer conn.Close()
	_, err = conn.Write([]byte(message))
	return err == nil
}
