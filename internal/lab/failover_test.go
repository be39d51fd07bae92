package lab

import (
	"strings"
	"testing"
)

func TestPercentiles(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, c := range map[string]struct {
		values []float64
		want   percentile
	}{
		"one":     {[]float64{7}, percentile{7, 7, 7}},
		"three":   {[]float64{30, 10, 20}, percentile{20, 30, 30}},
		"four":    {[]float64{40, 10, 30, 20}, percentile{20, 40, 40}},
		"hundred": {hundred, percentile{50, 99, 100}}, // the longest of a hundred is not the 99th of them
	} {
		if got := percentiles(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestFaultsAreChosenByName(t *testing.T) {
	if all, err := chosenFaults(nil); err != nil || len(all) != len(faults) {
		t.Errorf("without a choice: %d of %d faults, %v", len(all), len(faults), err)
	}
	two, err := chosenFaults([]string{"planned-move", "link-cut"})
	if err != nil || len(two) != 2 || two[0].name != "planned-move" || two[1].name != "link-cut" {
		t.Errorf("two: %v %v", two, err)
	}
	if _, err := chosenFaults([]string{"earthquake"}); err == nil || !strings.Contains(err.Error(), "switch-dead-300ms") {
		t.Errorf("an unknown one: %v", err)
	}
	command := Command()
	command.SetArgs([]string{"run", "failover", "--runs", "0"})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "1 to 1000") {
		t.Errorf("no runs: %v", err)
	}
}
