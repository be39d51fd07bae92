package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// bridgeName is the switch, a bridge in the host's own network namespace.
const bridgeName = "switch"

// Direction is one of a member's frames.
type Direction string

// The directions, as the member sees them.
const (
	DirectionOut Direction = "out" // what it sends
	DirectionIn  Direction = "in"  // what is sent to it
)

// filter says which frames the switch drops. It is a value; rules gives the nftables text for it.
type filter struct {
	Cut       []string   // ports from and to which nothing passes
	Mute      []string   // ports from which nothing passes
	Deaf      []string   // ports to which nothing passes
	Partition [][]string // groups of ports; nothing passes from one group to another; ports in no group pass to all
}

// rules writes the complete ruleset that puts f into effect in one transaction. Nothing to drop is no ruleset at all,
// so that an undisturbed switch costs nothing.
func (f filter) rules() string {
	const table = "table bridge lab"
	out := table + "\ndelete " + table + "\n" // the first makes the second possible
	var lines []string
	if len(f.Cut) > 0 {
		lines = append(lines, "iifname "+portSet(f.Cut)+" drop", "oifname "+portSet(f.Cut)+" drop")
	}
	if len(f.Mute) > 0 {
		lines = append(lines, "iifname "+portSet(f.Mute)+" drop")
	}
	if len(f.Deaf) > 0 {
		lines = append(lines, "oifname "+portSet(f.Deaf)+" drop")
	}
	for i, group := range f.Partition {
		for j, other := range f.Partition {
			if i != j && len(group) > 0 && len(other) > 0 {
				lines = append(lines, "iifname "+portSet(group)+" oifname "+portSet(other)+" drop")
			}
		}
	}
	if len(lines) == 0 {
		return out
	}
	return out + table + " {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\t\t" +
		strings.Join(lines, "\n\t\t") + "\n\t}\n}\n"
}

func portSet(ports []string) string {
	quoted := make([]string, len(ports))
	for i, port := range slices.Sorted(slices.Values(ports)) {
		quoted[i] = `"` + port + `"`
	}
	return "{ " + strings.Join(quoted, ", ") + " }"
}

// apply puts f into effect.
func (f filter) apply() error {
	return runTool(f.rules(), "nft", "-f", "-")
}

// makeSwitch makes the bridge. Its ports forward at once (no spanning tree), and it floods multicast. A switch has no
// IPv6 addresses of its own to announce.
func makeSwitch() error {
	for _, which := range []string{"all", "default"} {
		err := os.WriteFile("/proc/sys/net/ipv6/conf/"+which+"/disable_ipv6", []byte("1\n"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("turning IPv6 off at the switch: %w", err)
		}
	}
	return ipBatch(
		"link set lo up",
		"link add name "+bridgeName+" type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		"link set "+bridgeName+" up",
	)
}

// plug joins an interface of the member whose first process is pid to the switch. The port is left down.
func plug(iface Interface, pid int) error {
	outer := iface.Port
	if iface.Link != nil {
		outer = innerPort(iface.Port)
	}
	lines := []string{
		fmt.Sprintf("link add name %s type veth peer name %s address %s netns %d", outer, iface.Name, iface.MAC, pid),
	}
	if iface.Link != nil {
		far := farPort(iface.Port)
		lines = append(lines,
			fmt.Sprintf("link add name %s type veth peer name %s", iface.Port, far),
			"link set "+outer+" up", "link set "+far+" up")
	}
	lines = append(lines, "link set "+iface.Port+" master "+bridgeName)
	if err := ipBatch(lines...); err != nil {
		return fmt.Errorf("plugging %s into the switch: %w", iface.Port, err)
	}
	return nil
}

// unplug removes the port and with it the member's end.
func unplug(iface Interface) {
	for _, name := range []string{iface.Port, innerPort(iface.Port)} {
		if linkExists(name) {
			_ = ipBatch("link del " + name) // it may have gone with its peer meanwhile
		}
	}
}

// innerPort is the port that faces the member on a link with faults, farPort the end that faces the switch's port.
func innerPort(port string) string { return port + "<" }
func farPort(port string) string   { return port + ">" }

// carrierPort is the port whose state the member sees as its carrier.
func carrierPort(iface Interface) string {
	if iface.Link != nil {
		return innerPort(iface.Port)
	}
	return iface.Port
}

func linkExists(name string) bool {
	_, err := linkFlags(name)
	return err == nil
}

// setLink sets a link of the switch up or down by one system call, so that several go at once.
func setLink(name string, up bool) error {
	flags, err := linkFlags(name)
	if err != nil {
		return err
	}
	if up {
		flags |= unix.IFF_UP
	} else {
		flags &^= unix.IFF_UP
	}
	return linkIoctl(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(flags) }, nil)
}

func linkFlags(name string) (flags uint16, err error) {
	err = linkIoctl(name, unix.SIOCGIFFLAGS, nil, func(r *unix.Ifreq) { flags = r.Uint16() })
	return flags, err
}

func linkIoctl(name string, request uint, set, get func(*unix.Ifreq)) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if set != nil {
		set(ifreq)
	}
	if err := unix.IoctlIfreq(socket, request, ifreq); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if get != nil {
		get(ifreq)
	}
	return nil
}

// ipBatch runs ip(8) commands, stopping at the first that fails.
func ipBatch(lines ...string) error {
	return runTool(strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

// runTool runs a program of the machine with the given input. Its error carries what the program said.
func runTool(input string, argv ...string) error {
	command := exec.Command(argv[0], argv[1:]...)
	command.Stdin = strings.NewReader(input)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}
