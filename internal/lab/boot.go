package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// boot makes the world of a member: host name, private mounts, network. It runs once, in the member's namespaces.
func boot(b bootOrder) error {
	if err := unix.Sethostname([]byte(b.Member.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := privateMounts(); err != nil {
		return err
	}
	files := b.Dir.node(b.Member.Name)
	if err := privateRun(append(b.Keep, string(b.Dir))); err != nil {
		return err
	}
	shown := []string{"resolv.conf", "hosts"}
	if b.Member.Kind == KindMachine {
		shown = append(shown, machineFiles...)
	}
	for _, name := range shown {
		if err := replaceFile(filepath.Join(files, name), "/etc/"+name); err != nil {
			return err
		}
	}
	// What follows makes the member more lifelike; without it most programs still run.
	if info, err := os.Stat("/var/lib/nfs"); err == nil && info.IsDir() {
		_ = unix.Mount("nfs", "/var/lib/nfs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
	}
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	return bootNetwork(b.Member)
}

// privateRun gives the member a /run of its own, in which the directories of keep are still to be seen.
func privateRun(keep []string) error {
	kept := make(map[string]*os.File)
	for _, directory := range keep {
		real, err := filepath.EvalSymlinks(directory)
		if err != nil {
			return fmt.Errorf("looking at %s: %w", directory, err)
		}
		if !strings.HasPrefix(real, "/run/") {
			continue
		}
		file, err := os.Open(real)
		if err != nil {
			return fmt.Errorf("opening %s: %w", real, err)
		}
		defer file.Close()
		kept[real] = file
	}
	if err := unix.Mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("giving the member a /run of its own: %w", err)
	}
	for directory, file := range kept {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), directory, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("keeping %s in the member's /run: %w", directory, err)
		}
	}
	for _, directory := range []string{"holdfast", "lock", "rpcbind", "sshd"} {
		if err := os.MkdirAll("/run/"+directory, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile shows the file from under the name to. A link into /run, as systemd-resolved makes it, leads nowhere in
// the member's new /run: its target is made there.
func replaceFile(from, to string) error {
	if target, err := os.Readlink(to); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(to), target)
		}
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) && strings.HasPrefix(target, "/run/") {
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			return os.Symlink(from, target)
		}
	}
	err := unix.Mount(from, to, "", unix.MS_BIND, "")
	if errors.Is(err, unix.ENOENT) {
		return nil // a machine without the file has programs that do without
	}
	if err != nil {
		return fmt.Errorf("showing %s as %s: %w", from, to, err)
	}
	return nil
}

// linkPatience bounds how long a link that was plugged in may take to carry frames.
const linkPatience = 5 * time.Second

// settle waits until every interface carries frames: the kernel activates a link some time after both ends are up.
func settle(b bootOrder) error {
	for _, iface := range b.Member.Interfaces {
		if err := waitRunning(iface.Name); err != nil {
			return err
		}
	}
	return nil
}

func waitRunning(name string) error {
	for deadline := time.Now().Add(linkPatience); ; time.Sleep(time.Millisecond) {
		flags, err := linkFlags(name)
		if err != nil {
			return err
		}
		if flags&unix.IFF_RUNNING != 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("link %s has no carrier %v after it was plugged in", name, linkPatience)
		}
	}
}

// bootNetwork brings up the member's interfaces and gives them their addresses.
func bootNetwork(member Member) error {
	lines := []string{"link set lo up"}
	for _, iface := range member.Interfaces {
		if iface.Link != nil {
			if err := noOffload(iface.Name); err != nil {
				return err
			}
		}
		for _, address := range iface.Addresses {
			family := "-4"
			if address.Addr().Is6() {
				family = "-6"
			}
			line := fmt.Sprintf("addr add %s dev %s", address, iface.Name)
			if family == "-6" {
				line += " nodad"
			}
			lines = append(lines, line)
		}
		lines = append(lines, "link set "+iface.Name+" up")
	}
	for _, gateway := range member.Gateways {
		lines = append(lines, "route add default via "+gateway.String())
	}
	if err := ipBatch(lines...); err != nil {
		return err
	}
	return switchOn(settingsOf(member)...)
}

// settingsOf are the kernel settings under /proc/sys/net that are on in a member: what an operator sets on a machine of that
// kind. The agent assumes none of them and says which are off.
func settingsOf(member Member) []string {
	switch member.Kind {
	case KindRouter:
		return []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"}
	case KindMachine:
		return []string{"ipv4/ip_unprivileged_port_start"} // its servers are not root, and listen on any port
	case KindNode:
		settings := []string{"ipv4/ip_nonlocal_bind", "ipv6/ip_nonlocal_bind"}
		for _, iface := range member.Interfaces {
			settings = append(settings, "ipv4/conf/"+iface.Name+"/arp_notify", "ipv4/conf/"+iface.Name+"/promote_secondaries")
		}
		return settings
	}
	return nil
}

// switchOn sets kernel settings to 1; one that this kernel does not have is left.
func switchOn(settings ...string) error {
	for _, setting := range settings {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1\n"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting %s: %w", setting, err)
		}
	}
	return nil
}
