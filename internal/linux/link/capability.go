package link

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckCapabilities says which of the capabilities that Holdfast needs the process lacks, and how to grant them; nil
// when it lacks none.
func CheckCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	return missingCapabilities(data[0].Effective)
}

// missingCapabilities judges the first word of the effective set (capabilities(7)).
func missingCapabilities(effective uint32) error {
	var lacking, names []string
	for _, c := range []struct {
		bit       uint
		name, why string
	}{
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "to add and remove addresses, rules and routes"},
		{unix.CAP_NET_RAW, "CAP_NET_RAW", "to announce addresses by ARP and neighbour discovery"},
	} {
		if effective&(1<<c.bit) == 0 {
			lacking = append(lacking, c.name+" "+c.why)
			names = append(names, c.name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("this process lacks %s; grant it with AmbientCapabilities=%s in the systemd unit, or with "+
		"`setcap %s+ep` on the binary", strings.Join(lacking, ", and "), strings.Join(names, " "),
		strings.ToLower(strings.Join(names, ",")))
}
