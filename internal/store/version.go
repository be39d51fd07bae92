package store

import "fmt"

// endsLeasesEarly reports whether a version of etcd is one of those whose former leader may end leases before their time, for
// which it was mended in 3.4.31, 3.5.13 and 3.6.0 (etcd-io/etcd pull requests 17465, 17425 and 16822). What is no version is not.
func endsLeasesEarly(version string) bool {
	var major, minor, patch int
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil || major != 3 {
		return false
	}
	return minor < 4 || minor == 4 && patch < 31 || minor == 5 && patch < 13
}
