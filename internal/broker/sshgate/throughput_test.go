package sshgate

import (
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/token"
)

// BenchmarkThroughput carries 64 MiB in one direction and compares: OpenSSH's client to the target's sshd directly, with its own choice of a cipher and
// with the gateway's, and through the gateway. Beside the time by the clock, which depends on who else uses the machine, it reports what the
// processors did for each MiB in OpenSSH's client (client-µs/MiB) and in this process, which is the gateway and holds the client's pipe (here-µs/MiB).
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
	g := start(b, startTarget(b), nil)
	newKey(b, filepath.Join(g.folder, "mine"))
	write(b, filepath.Join(g.target.folder, "authorized"), g.run("", "cat", filepath.Join(g.folder, "mine.pub")).out)
	direct := func(more ...string) []string {
		options := append(g.options("-p"), more...)
		options = append(options, "-i", filepath.Join(g.folder, "mine"), g.account+"@127.0.0.1")
		for i, o := range options {
			if o == strconv.Itoa(g.port) {
				options[i] = strconv.Itoa(int(g.target.port))
			}
		}
		return options
	}
	for _, c := range []struct {
		name string
		args func() []string
	}{
		{"direct", func() []string { return direct() }},
		{"direct/aes128-gcm", func() []string { return direct("-c", "aes128-gcm@openssh.com") }},
		{"gateway", func() []string { return append(g.options("-p"), g.token(token.Exec)+"@127.0.0.1") }},
	} {
		for _, way := range []string{"down", "up"} {
			b.Run(c.name+"/"+way, func(b *testing.B) {
				b.SetBytes(size)
				var client time.Duration
				before := processorTime(b)
				for b.Loop() {
					b.StopTimer()
					args := c.args()
					b.StartTimer()
					var command *exec.Cmd
					if way == "down" {
						command = exec.Command(program(b, "ssh"), append(args, "head -c "+strconv.Itoa(size)+" /dev/zero")...)
						command.Stdout = sink{}
					} else {
						command = exec.Command(program(b, "ssh"), append(args, "cat > /dev/null")...)
						command.Stdin = io.LimitReader(zeros{}, size)
					}
					var errs strings.Builder
					command.Stderr = &errs
					if err := command.Run(); err != nil {
						b.Fatalf("%v: %s", err, errs.String())
					}
					client += command.ProcessState.UserTime() + command.ProcessState.SystemTime()
				}
				mebibytes := float64(b.N) * size / (1 << 20)
				b.ReportMetric(float64((processorTime(b)-before).Microseconds())/mebibytes, "here-µs/MiB")
				b.ReportMetric(float64(client.Microseconds())/mebibytes, "client-µs/MiB")
			})
		}
	}
}

// BenchmarkConnect measures how long it takes until a command that does nothing is done.
func BenchmarkConnect(b *testing.B) {
	g := start(b, startTarget(b), nil)
	newKey(b, filepath.Join(g.folder, "mine"))
	write(b, filepath.Join(g.target.folder, "authorized"), g.run("", "cat", filepath.Join(g.folder, "mine.pub")).out)
	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			args := append(g.options("-o"), "-i", filepath.Join(g.folder, "mine"), g.account+"@127.0.0.1", "true")
			for i, o := range args {
				if o == strconv.Itoa(g.port) {
					args[i] = "Port=" + strconv.Itoa(int(g.target.port))
				}
			}
			if got := g.run("", "ssh", args...); got.code != 0 {
				b.Fatal(got.errs)
			}
		}
	})
	b.Run("gateway", func(b *testing.B) {
		for b.Loop() {
			if got := g.ssh("", g.token(token.Exec), "true"); got.code != 0 {
				b.Fatal(got.errs)
			}
		}
	})
}

// processorTime is what the processors have done for this process.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

type sink struct{}

func (sink) Write(p []byte) (int, error) { return len(p), nil }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
