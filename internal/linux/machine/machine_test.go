package machine

import (
	"math"
	"os"
	"testing"
)

func TestMemory(t *testing.T) {
	memory, swap, err := parseMemory("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 90 kB\n")
	if err != nil || memory != 75 || swap != 10 {
		t.Errorf("%g, %g, %v", memory, swap, err)
	}
	if _, swap, err := parseMemory("MemTotal: 10 kB\nMemAvailable: 5 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"); err != nil || swap != 0 {
		t.Errorf("without swap: %g, %v", swap, err)
	}
	for _, text := range []string{"", "MemTotal: x kB", "MemTotal: 5 kB\nMemAvailable: 6 kB", "MemTotal 5"} {
		if _, _, err := parseMemory(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestLoad(t *testing.T) {
	if one, five, fifteen, err := parseLoad("0.50 1.25 2.00 1/234 5678\n"); err != nil || one != 0.5 || five != 1.25 || fifteen != 2 {
		t.Errorf("%g %g %g %v", one, five, fifteen, err)
	}
	for _, text := range []string{"", "1 2", "1 -2 3", "NaN 1 1", "1 1e300 1"} {
		if _, _, _, err := parseLoad(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// FuzzParse: no text of the kernel's makes figures that cannot be.
func FuzzParse(f *testing.F) {
	f.Add("MemTotal: 1000 kB\nMemAvailable: 250 kB\nSwapTotal: 1 kB\nSwapFree: 1 kB\n")
	f.Add("0.5 1 2 1/2 3")
	f.Fuzz(func(t *testing.T, text string) {
		if memory, swap, err := parseMemory(text); err == nil && !(memory >= 0 && memory <= 100 && swap >= 0 && swap <= 100) {
			t.Errorf("memory %g, swap %g", memory, swap)
		}
		if one, five, fifteen, err := parseLoad(text); err == nil && math.IsNaN(one+five+fifteen) {
			t.Error("a load that is none")
		}
	})
}

// TestRead: of this machine.
func TestRead(t *testing.T) {
	if _, err := os.Stat("/proc/loadavg"); err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	f, err := Read(t.TempDir())
	if err != nil || f.Memory <= 0 || f.Disk < 0 || f.Disk > 100 || f.Cores < 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Read("/nowhere/at/all"); err == nil {
		t.Error("a directory that is not there has a disk")
	}
}
