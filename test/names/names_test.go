package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/dns"
)

// measured is a report with two servers that were measured and one that was not.
func measured() report {
	r := report{Machine: "some processor", Kernel: "Linux 6.0", LoadBefore: "0.1 0.2 0.3", LoadAfter: "1 1 1", Rounds: 2, Seconds: 1}
	for _, s := range []struct {
		name string
		fast float64
	}{{limitName, 500000}, {"holdfast", 900000}, {rivalName, 450000}} {
		one := serverReport{Name: s.name, Version: "1|2", ResidentBytes: 3e6}
		for round := range 2 {
			slow := 1 - 0.1*float64(round)
			for _, how := range []string{alike, unlike} {
				for workers := 1; workers <= 2; workers++ {
					one.Runs = append(one.Runs, run{How: how, Workers: workers, heard: heard{PerSecond: s.fast * slow, Answers: 1}, NanosecondsEach: 2000})
				}
			}
			one.Runs = append(one.Runs, run{How: paced, Workers: 1, heard: heard{PerSecond: 10000, P50: 20, P99: 40}, NanosecondsEach: 9000})
		}
		r.Servers = append(r.Servers, one)
	}
	r.Servers = append(r.Servers, serverReport{Name: "coredns", Missing: "coredns is not installed", Failures: []string{"alike on 1: 0 answers"}})
	return r
}

// TestPage: medians and ratios, and what is missing.
func TestPage(t *testing.T) {
	got := page(measured())
	for _, want := range []string{"| holdfast | 855k/s | 2.00 | 1.80 | 2.00 µs | 855k/s | 2.00 |", "| gdnsd | 428k/s | 1.00 | 0.90 |", "| on two processors |",
		"| holdfast | 20 µs | 40 µs | 9.0 µs | 3 MB | 1/2 |", "Not measured: coredns, because coredns is not installed.", "A run of coredns failed"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := page(report{}); !strings.Contains(got, "All servers are up") {
		t.Errorf("without servers: %s", got)
	}
}

// TestPlot: it is XML, with a row for each server and way, and does without any.
func TestPlot(t *testing.T) {
	for _, r := range []report{measured(), {}} {
		decoder, circles := xml.NewDecoder(strings.NewReader(plot(r))), 0
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if begin, ok := token.(xml.StartElement); ok && begin.Name.Local == "circle" {
				circles++
			}
		}
		if want := len(r.Servers) / 4 * 18; circles != want {
			t.Errorf("%d circles, want %d", circles, want)
		}
	}
}

// TestGenerator: each way of asking gets answers from the server, of which none is empty, and a server that does not answer is said.
func TestGenerator(t *testing.T) {
	const port = 5377
	at := netip.MustParseAddrPort("127.0.0.1:5377")
	s := dns.NewServer(dns.Options{Port: port, Sockets: 1, RateLimit: dns.RateLimit{Off: true}})
	defer s.Close()
	s.SetView(poolView(at.Addr(), 7))
	if err := s.Serve(context.Background(), []netip.Addr{at.Addr()}); err != nil {
		t.Skipf("the port is taken: %v", err)
	}
	for _, segmented := range []bool{true, false} {
		h, err := askFast(at, queriesFor("r", segmented), segmented, 50*time.Millisecond)
		if err != nil || h.Answers == 0 || h.Empty != 0 {
			t.Errorf("segmented %v: %+v, %v", segmented, h, err)
		}
	}
	if h, err := askPaced(at, queriesFor("w", true)[0], 50*time.Millisecond); err != nil || h.P50 <= 0 || h.P99 < h.P50 {
		t.Errorf("paced: %+v, %v", h, err)
	}
	if _, err := askPaced(netip.MustParseAddrPort("127.0.0.1:5378"), queriesFor("w", true)[0], 10*time.Millisecond); err == nil {
		t.Error("nobody answers, and nobody says so")
	}
}

// TestServersHaveTheirFiles: each server's files come about, where its program is here, and a missing program is named.
func TestServersHaveTheirFiles(t *testing.T) {
	ports := []int{}
	for _, s := range allServers {
		if s.of != "" {
			if !slices.ContainsFunc(allServers, func(other server) bool { return other.name == s.of && other.port == s.port }) {
				t.Errorf("%s is of %q", s.name, s.of)
			}
			continue
		}
		if slices.Contains(ports, s.port) {
			t.Errorf("%s has the port of another", s.name)
		}
		ports = append(ports, s.port)
		dir := filepath.Join(t.TempDir(), "server")
		argv, err := s.argv(dir, 2)
		if err != nil && !strings.Contains(err.Error(), "not installed") {
			t.Errorf("%s: %v", s.name, err)
		}
		if err == nil && len(argv) < 2 {
			t.Errorf("%s: %q", s.name, argv)
		}
		_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && !strings.HasSuffix(path, "responder") {
				if text, _ := os.ReadFile(path); strings.Contains(string(text), "DIR") {
					t.Errorf("%s: %s has a place that is not filled", s.name, path)
				}
			}
			return nil
		})
	}
}
