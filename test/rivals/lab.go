package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// lab is a running lab, driven by the commands that people have.
type lab struct {
	holdfast  string // the binary
	directory string
	watchdog  *exec.Cmd         // takes the lab down when this process ends
	leash     io.Closer         // what the watchdog waits for
	members   map[string]string // names by MAC address
}

// labPatience is how long one lab command may take.
const labPatience = 2 * time.Minute

// up starts a lab with the given lab file.
func (l *lab) up(ctx context.Context, file string, more ...string) error {
	path := l.directory + ".yaml"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	if err := l.guard(); err != nil {
		return err
	}
	if err := l.do(ctx, "up", append([]string{"-f", path}, more...)...); err != nil {
		return err
	}
	plan, err := os.ReadFile(filepath.Join(l.directory, "lab.json"))
	if err != nil {
		return err
	}
	l.members, err = membersByMAC(plan)
	return err
}

// guard starts a process that takes the lab down, and removes its files, when this one closes its end of a pipe, or dies.
func (l *lab) guard() error {
	l.watchdog = exec.Command("sh", "-c", `cat >/dev/null; "$0" lab down --dir "$1/lab" 2>/dev/null; rm -rf "$1"`, l.holdfast, filepath.Dir(l.directory))
	l.watchdog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C is not for it
	var err error
	if l.leash, err = l.watchdog.StdinPipe(); err != nil {
		return err
	}
	return l.watchdog.Start()
}

// down ends the lab and everything in it.
func (l *lab) down(ctx context.Context) error {
	err := l.do(context.WithoutCancel(ctx), "down")
	_ = l.leash.Close()
	return errors.Join(err, l.watchdog.Wait())
}

// do runs a lab command, such as cut node4.
func (l *lab) do(ctx context.Context, op string, arguments ...string) error {
	_, err := run(ctx, "holdfast lab "+op, l.holdfast, append([]string{"lab", op, "--dir", l.directory}, arguments...)...)
	return err
}

// in runs a program in a member and returns what it printed.
func (l *lab) in(ctx context.Context, member string, argv ...string) (string, error) {
	return run(ctx, filepath.Base(argv[0])+" in "+member, l.holdfast, append([]string{"lab", "exec", "--dir", l.directory, member, "--"}, argv...)...)
}

// run runs a program to its end. Its error says what was run, and has the last line that it complained with.
func run(ctx context.Context, what, program string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, labPatience)
	defer cancel()
	var complaints bytes.Buffer
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stderr = &complaints
	command.WaitDelay = time.Second
	out, err := command.Output()
	if err != nil {
		said := strings.TrimSpace(complaints.String())
		return string(out), fmt.Errorf("%s: %w: %s", what, err, said[strings.LastIndexByte(said, '\n')+1:])
	}
	return string(out), nil
}

// membersByMAC reads the MAC address of every member's first interface from the plan that a lab keeps in its directory.
func membersByMAC(plan []byte) (map[string]string, error) {
	var p struct {
		Members []struct {
			Name       string
			Interfaces []struct{ MAC string }
		}
	}
	if err := json.Unmarshal(plan, &p); err != nil {
		return nil, fmt.Errorf("reading the lab's plan: %w", err)
	}
	members := make(map[string]string)
	for _, member := range p.Members {
		for _, iface := range member.Interfaces {
			members[iface.MAC] = member.Name
		}
	}
	return members, nil
}

// owners says to which member the client's packets go, for each address: its neighbour table has the MAC address.
func (l *lab) owners(ctx context.Context) (map[string]string, error) {
	table, err := l.in(ctx, client, "cat", "/proc/net/arp")
	if err != nil {
		return nil, err
	}
	owners := make(map[string]string)
	for address, mac := range neighbours(table) {
		owners[address] = l.members[mac]
	}
	return owners, nil
}

// neighbours reads /proc/net/arp (proc(5)): address, hardware type, flags, MAC address, mask, device. An entry without the flag
// 0x2 is not complete.
func neighbours(table string) map[string]string {
	macs := make(map[string]string)
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) == 6 && f[2] != "0x0" && strings.Contains(f[3], ":") {
			macs[f[0]] = f[3]
		}
	}
	return macs
}
