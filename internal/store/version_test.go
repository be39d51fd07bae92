package store

import "testing"

func TestVersionsThatEndLeasesBeforeTheirTime(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.23": true, "3.4.30": true, "3.4.31": false, "3.4.37": false, "3.3.27": true,
		"3.5.0": true, "3.5.12": true, "3.5.13": false, "3.5.21+git": false,
		"3.6.0": false, "3.6.0-rc.3": false, "3.7.3": false, "4.0.0": false, "": false, "unknown": false,
	} {
		if got := endsLeasesEarly(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
