package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// report is what was measured: by kind of transfer, or connecting, and way, each round's figure in its place.
type report struct {
	MiB       int                             `json:"mib"`
	Transfers map[string]map[string][]float64 `json:"transfers"` // MiB a second
	Connects  map[string][]float64            `json:"connects"`  // seconds
	Version   string                          `json:"version"`   // of OpenSSH
}

// A transfer is a command on the target, and what the client is given to send. %d is the number of bytes.
type transfer struct {
	name, send, command string
	terminal            bool
	part                int // of the size: terminals are slow
}

var transfers = []transfer{
	{name: "down", command: "head -c %d /dev/zero", part: 1},
	{name: "up", send: "head -c %d /dev/zero | ", command: "cat > /dev/null", part: 1},
	{name: "down, in a terminal", command: "base64 /dev/zero | head -c %d", terminal: true, part: 4},
}

func measure(ctx context.Context, holdfast string, rounds, mebibytes, connects int) (report, error) {
	r := report{MiB: mebibytes, Transfers: map[string]map[string][]float64{}, Connects: map[string][]float64{}}
	if err := apart(); err != nil {
		return r, err
	}
	version, err := exec.Command("ssh", "-V").CombinedOutput()
	if err != nil {
		return r, err
	}
	r.Version, _, _ = strings.Cut(strings.TrimSpace(string(version)), ",")
	p, err := prepare(ctx, holdfast)
	if err != nil {
		return r, err
	}
	defer p.clear()
	for round := range connects {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			took, err := p.session(ctx, w, "", "true", false)
			if err != nil {
				return r, err
			}
			r.Connects[w.name] = append(r.Connects[w.name], took.Seconds())
		}
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, t := range transfers {
			if r.Transfers[t.name] == nil {
				r.Transfers[t.name] = map[string][]float64{}
			}
			for i := range ways {
				w := ways[(i+round)%len(ways)]
				size := mebibytes << 20 / t.part
				took, err := p.session(ctx, w, sized(t.send, size), sized(t.command, size), t.terminal)
				if err != nil {
					return r, err
				}
				r.Transfers[t.name][w.name] = append(r.Transfers[t.name][w.name], float64(size>>20)/took.Seconds())
			}
		}
	}
	return r, nil
}

func sized(text string, size int) string { return strings.ReplaceAll(text, "%d", fmt.Sprint(size)) }

// session runs a command on the target by a way, and tells how long it took from the start of the client to its end.
func (p *place) session(ctx context.Context, w way, send, command string, terminal bool) (time.Duration, error) {
	arguments, err := w.arguments(p)
	if err != nil {
		return 0, err
	}
	options := []string{"-F", p.path("client")}
	if terminal {
		options = append(options, "-tt")
	}
	arguments = append(append(options, arguments...), command)
	var said strings.Builder
	c := exec.CommandContext(ctx, "ssh", arguments...)
	if send != "" {
		c = exec.CommandContext(ctx, "sh", append([]string{"-c", send + `exec ssh "$@"`, "sh"}, arguments...)...)
	}
	c.Stderr = &said
	began := time.Now()
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("%s: %s: %w: %s", w.name, command, err, said.String())
	}
	return time.Since(began), nil
}
