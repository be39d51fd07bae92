package load

import (
	"os"
	"strings"
	"testing"
)

// stat is a shortened /proc/stat.
const stat = "cpu  100 20 30 1000 50 4 6 10 70 5\ncpu0 100 20 30 1000 50 4 6 10 70 5\nintr 1 2 3\nctxt 99\n"

func TestParseProcessor(t *testing.T) {
	got, err := parseProcessor([]byte(stat))
	// busy: user, nice, system, irq, softirq, steal; the guest times 70 and 5 are contained in user and nice.
	if want := (processorTimes{busy: 170, idle: 1050}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestParseProcessorSaysNo(t *testing.T) {
	for name, tc := range map[string]struct{ in, message string }{
		"empty":            {"", "no line"},
		"only one of many": {"cpu0 1 2 3 4 5 6 7 8\n", "no line"},
		"an old kernel":    {"cpu 1 2 3 4\n", "4 columns"},
		"not a number":     {"cpu 1 2 3 x 5 6 7 8\n", "column 4"},
		"negative":         {"cpu 1 2 3 -4 5 6 7 8\n", "column 4"},
		"too much":         {"cpu 18446744073709551615 1 0 0 0 0 0 0\n", "adds up"},
	} {
		if _, err := parseProcessor([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.message) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.message)
		}
	}
}

func TestBusyShare(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after processorTimes
		share         float64
		known         bool
	}{
		{"no tick passed", processorTimes{1, 1}, processorTimes{1, 1}, 0, false},
		{"idle", processorTimes{1, 1}, processorTimes{1, 101}, 0, true},
		{"busy", processorTimes{1, 1}, processorTimes{101, 1}, 1, true},
		{"a quarter", processorTimes{0, 0}, processorTimes{25, 75}, 0.25, true},
		{"iowait ran backwards", processorTimes{0, 100}, processorTimes{10, 99}, 1, true},
	} {
		if share, known := busyShare(tc.before, tc.after); share != tc.share || known != tc.known {
			t.Errorf("%s: %v, %v; want %v, %v", tc.name, share, known, tc.share, tc.known)
		}
	}
}

func TestKernelProcStat(t *testing.T) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Skipf("no /proc/stat here: %v", err)
	}
	times, err := parseProcessor(data)
	if err != nil || times.busy == 0 || times.idle == 0 {
		t.Errorf("%+v, %v", times, err)
	}
}

func FuzzParseProcessor(f *testing.F) {
	f.Add([]byte(stat))
	f.Add([]byte("cpu 1 2 3 4 5 6 7\n"))
	f.Add([]byte("cpu 18446744073709551615 1 2 3 4 5 6 7 8"))
	f.Add([]byte("\n\ncpu\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		times, err := parseProcessor(data)
		if err != nil && times != (processorTimes{}) {
			t.Errorf("both times %+v and error %v", times, err)
		}
		for _, before := range []processorTimes{{}, {busy: 1 << 40, idle: 1 << 40}, times} {
			if share, _ := busyShare(before, times); !(share >= 0 && share <= 1) {
				t.Errorf("share %v from %+v to %+v", share, before, times)
			}
		}
	})
}
