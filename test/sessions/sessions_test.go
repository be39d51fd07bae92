package main

import (
	"strings"
	"testing"
)

// TestPage: the figures of a round are compared with each other, and nothing is made of what was not measured.
func TestPage(t *testing.T) {
	got := page(report{MiB: 8, Version: "OpenSSH_9.2p1", Transfers: map[string]map[string][]float64{
		"down": {"direct": {100, 400, 200}, "gateway": {50, 400, 150}},
	}, Connects: map[string][]float64{"direct": {0.05, 0.06}, "gateway": {0.06, 0.09}}})
	for _, want := range []string{
		"| down | direct | 3 | 200 | 100 | 400 | 100% |\n", "| down | gateway | 3 | 150 | 50 | 400 | 75% |\n",
		"| gateway | 2 | 60.0 ms | 90.0 ms | 10.0 ms | 30.0 ms |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "| up |") || strings.Contains(got, "| jump host |") {
		t.Errorf("it has what was not measured:\n%s", got)
	}
}

func TestPercentiles(t *testing.T) {
	figures := make([]float64, 100)
	for i := range figures {
		figures[i] = float64(100 - i)
	}
	for percent, want := range map[int]float64{50: 50, 99: 99, 100: 100, 1: 1} {
		if got := at(figures, percent); got != want {
			t.Errorf("%d: %v, want %v", percent, got, want)
		}
	}
	if at(nil, 50) != 0 {
		t.Error("of nothing there is something")
	}
}
