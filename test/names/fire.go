package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fireReport is what the attacks did.
type fireReport struct {
	Began      time.Time    `json:"began"`
	Machine    string       `json:"machine"`
	Kernel     string       `json:"kernel"`
	LoadBefore string       `json:"load_before"`
	LoadAfter  string       `json:"load_after"`
	Seconds    float64      `json:"seconds"` // of each attack
	Family     int          `json:"family"`  // of IP
	Attacks    []fireResult `json:"attacks"`
}

// fireResult is what one attack did.
type fireResult struct {
	Name     string             `json:"name"`
	Title    string             `json:"title"`
	Seconds  float64            `json:"seconds"` // that the attacker took
	Fired    fired              `json:"fired"`
	Answers  int                `json:"answers"` // packets that went to forged sources
	Octets   int                `json:"octets"`  // of their payload; of segments with the headers
	Before   map[string]honest  `json:"before"`
	During   map[string]honest  `json:"during"`
	After    map[string]honest  `json:"after"`
	Memory   int                `json:"memory"` // of the server at its peak, in bytes
	Used     time.Duration      `json:"used"`   // processor time of the server
	Counters map[string]float64 `json:"counters"`
}

// amplification is how many octets leave for each that the attackers sent; NaN: nothing was forged.
func (r *fireResult) amplification() float64 {
	if r.Fired.Octets == 0 {
		return math.NaN()
	}
	return float64(r.Octets) / float64(r.Fired.Octets)
}

// Where the server tells its counters, and the interface by which packets for forged sources leave.
const (
	countersAddress = "127.0.0.1:9153"
	forgedLink      = "fire0"
)

// calm is how long honest clients are watched before and after an attack.
const calm = 1500 * time.Millisecond

// fireCommand attacks the server in each way, or in those that are named.
func fireCommand(arguments []string) error {
	flags := flag.NewFlagSet("fire", flag.ExitOnError)
	seconds := flags.Float64("seconds", 3, "length of each attack")
	rate := flags.Int("rate", 0, "packets a second of an attack at most; 0: as many as can be")
	family := flags.Int("family", 4, "of IP, 4 or 6")
	named := flags.String("attacks", "", "which attacks, with commas between; all if empty")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if os.Getenv(inNamespace) == "" {
		return inside("fire", arguments)
	}
	g, err := groundOf(*family)
	if err != nil {
		return err
	}
	if err := g.prepare(); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := start(ctx, []string{self, "serve", "-address", g.service.Addr().String(), "-port", "53", "-limit", "0", "-counters", countersAddress}, everyProcessor())
	if err != nil {
		return err
	}
	defer server.stop()
	clients, err := honestClients(g)
	if err != nil {
		return err
	}
	base := newReport(0, *seconds)
	r := fireReport{Began: base.Began, Machine: base.Machine, Kernel: base.Kernel, LoadBefore: base.LoadBefore, Seconds: *seconds, Family: *family}
	for i := range attacks {
		if *named != "" && !slices.Contains(strings.Split(*named, ","), attacks[i].name) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(os.Stderr, attacks[i].title)
		result, err := fireOnce(ctx, &attacks[i], g, server, clients, *seconds, *rate)
		if err != nil {
			return fmt.Errorf("%s: %w", attacks[i].name, err)
		}
		r.Attacks = append(r.Attacks, result)
	}
	r.LoadAfter = loadNow()
	return json.NewEncoder(os.Stdout).Encode(r)
}

func everyProcessor() (all []int) {
	for i := range runtime.NumCPU() {
		all = append(all, i)
	}
	return all
}

// fireOnce attacks once, between two times of calm.
func fireOnce(ctx context.Context, a *attack, g *ground, server *process, clients []*client, seconds float64, rate int) (r fireResult, err error) {
	r.Name, r.Title = a.name, a.title
	if r.Before, err = ask(clients, calm); err != nil {
		return r, err
	}
	if err := server.forgetPeak(); err != nil {
		return r, err
	}
	counters, err := countersNow(countersAddress)
	if err != nil {
		return r, err
	}
	packets, octets := leftBy(forgedLink)
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	used, began := server.used(), time.Now()
	attacker, err := start(ctx, []string{self, "attack", "-name", a.name, "-seconds", fmt.Sprint(seconds), "-rate", fmt.Sprint(rate), "-family", fmt.Sprint(g.family())}, everyProcessor())
	if err != nil {
		return r, err
	}
	defer attacker.stop()
	if r.During, err = ask(clients, time.Duration(seconds*float64(time.Second))); err != nil {
		return r, err
	}
	if err := attacker.command.Wait(); err != nil {
		return r, fmt.Errorf("the attacker: %w: %s", err, attacker.output.String())
	}
	r.Seconds = min(time.Since(began).Seconds(), seconds)
	if err := json.Unmarshal([]byte(attacker.output.String()), &r.Fired); err != nil {
		return r, fmt.Errorf("reading what the attacker says: %w", err)
	}
	r.Memory, r.Used = server.peak(), server.used()-used
	if r.After, err = ask(clients, calm); err != nil {
		return r, err
	}
	// Only now, when all that waited has been answered.
	packetsAfter, octetsAfter := leftBy(forgedLink)
	r.Answers = packetsAfter - packets
	r.Octets = octetsAfter - octets - r.Answers*headersOf(a, g)
	after, err := countersNow(countersAddress)
	if err != nil {
		return r, err
	}
	r.Counters = risen(counters, after)
	return r, nil
}

// headersOf is how many octets of a packet that leaves do not count, the Ethernet header being one.
func headersOf(a *attack, g *ground) int {
	if a.syn {
		return ethernetHeader
	}
	return ethernetHeader + g.ipHeader + udpHeader
}

const ethernetHeader = 14

// leftBy is what has left by an interface so far. Answers to one source that leave as segments of one are one packet with one header.
func leftBy(link string) (packets, octets int) {
	text, _ := os.ReadFile("/proc/net/dev")
	return parseLeft(string(text), link)
}

// parseLeft reads /proc/net/dev: eight numbers of what came, then octets and packets that left.
func parseLeft(text, link string) (packets, octets int) {
	for line := range strings.Lines(text) {
		name, numbers, _ := strings.Cut(line, ":")
		if fields := strings.Fields(numbers); strings.TrimSpace(name) == link && len(fields) > 9 {
			octets, _ = strconv.Atoi(fields[8])
			packets, _ = strconv.Atoi(fields[9])
		}
	}
	return packets, octets
}

// forgetPeak has the kernel forget how much memory the program had at its peak (proc(5), clear_refs).
func (p *process) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.command.Process.Pid), []byte("5"), 0)
}

// peak is how much memory the program had at the most since then, in bytes.
func (p *process) peak() int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			return kilobytes << 10
		}
	}
	return 0
}
