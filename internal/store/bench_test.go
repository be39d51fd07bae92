package store_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/store"
)

// quantiles reports the median and the 99th percentile in milliseconds.
func quantiles(b *testing.B, name string, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), name+"-p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), name+"-p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), name+"-max-ms")
}

// residentMB reads how much memory a process of the test's own uses.
func residentMB(b *testing.B, pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	var kilobytes float64
	for line := range strings.Lines(string(data)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kilobytes); err == nil {
			return kilobytes / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// BenchmarkWrite commits 100 bytes under a condition, one after the other, on three members. RSS is a member's process.
func BenchmarkWrite(b *testing.B) {
	c := startCluster(b, 3)
	s := c.open()
	value := strings.Repeat("x", 100)
	idle := residentMB(b, c.running[0].command.Process.Pid)
	var took []time.Duration
	revision := int64(0)
	for b.Loop() {
		start := time.Now()
		var err error
		revision, err = s.Commit(context.Background(), store.Txn{If: []store.Condition{{Key: "a", Revision: revision}},
			Then: []store.Op{store.Put{Key: "a", Value: []byte(value)}}})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	quantiles(b, "write", took)
	b.ReportMetric(idle, "idle-rss-MB")
	b.ReportMetric(residentMB(b, c.running[0].command.Process.Pid), "rss-MB")
}

// BenchmarkWatchLatency is the time from the call of Commit at one member to the event from another.
func BenchmarkWatchLatency(b *testing.B) {
	c := startCluster(b, 3)
	leader := c.leader(c.open())
	writer := openClient(b, c.id, c.options[leader].ListenClient)
	reader := openClient(b, c.id, c.options[(leader+1)%3].ListenClient)
	watch := reader.Watch(context.Background(), "", 0)
	<-watch
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := writer.Commit(context.Background(), put("a", "1")); err != nil {
			b.Fatal(err)
		}
		<-watch
		took = append(took, time.Since(start))
	}
	quantiles(b, "watch", took)
}

// BenchmarkLeaderLoss kills the leader of three and measures until the first commit is acknowledged after that, and how
// long the watch of another client is behind. A plain etcd client needs 5 to 7 s.
func BenchmarkLeaderLoss(b *testing.B) {
	const soundly = 4 * time.Second // beyond this the short tries do not work
	c := startCluster(b, 3)
	s, watcher := c.open(), c.open()
	watch := watcher.Watch(context.Background(), "", 0)
	<-watch
	var write, event []time.Duration
	for b.Loop() {
		leader := c.leader(s)
		if _, err := s.Commit(context.Background(), put("a", "before")); err != nil {
			b.Fatal(err)
		}
		<-watch
		start := time.Now()
		c.kill(leader)
		if _, err := s.Commit(context.Background(), put("a", "after")); err != nil {
			b.Fatal(err)
		}
		write = append(write, time.Since(start))
		<-watch
		event = append(event, time.Since(start))
		if write[len(write)-1] > soundly {
			b.Errorf("the first commit took %v", write[len(write)-1])
		}
		b.StopTimer()
		c.start(leader)
		for ready := 0; ready < 3; {
			ready = 0
			for _, member := range s.Health(context.Background()).Members {
				if member.Reachable {
					ready++
				}
			}
		}
		b.StartTimer()
	}
	quantiles(b, "write-gap", write)
	quantiles(b, "watch-gap", event)
}
