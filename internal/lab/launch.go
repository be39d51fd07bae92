package lab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// launchOptions say how a lab is started.
type launchOptions struct {
	userNS  bool     // use a user namespace though we are root
	leash   bool     // end the lab when this process ends
	noGuard bool     // run no guards
	agent   []string // what runs as the agent; empty: the holdfast agent
}

// launch starts the host of a lab for plan and returns when all members run. Whether the cluster serves is another
// question: see WaitServing.
func launch(dir Directory, plan *Plan, options launchOptions) error {
	if err := checkTools(plan); err != nil {
		return err
	}
	lock, err := dir.prepare()
	if err != nil {
		return err
	}
	defer lock.Close()
	err = dir.furnish(plan)
	if err == nil {
		err = startHost(dir, lock, options)
	}
	if err != nil {
		lock.Close()
		_ = dir.waitDead(stopPatience)
		return errors.Join(err, dir.remove(false))
	}
	return nil
}

// checkTools names every program that is missing, with its Debian package.
func checkTools(plan *Plan) error {
	var faults []error
	for program, packageName := range map[string]string{"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"} {
		if _, err := findProgram(program); err != nil {
			faults = append(faults, fmt.Errorf("the lab needs the program %s: install the Debian package %s", program, packageName))
		}
	}
	return errors.Join(append(faults, checkResolver(plan.Resolver.Kind))...)
}

// furnish writes the plan, the link to the running binary, and what each node needs.
func (d Directory) furnish(plan *Plan) error {
	if err := d.savePlan(plan); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path(binDir), 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the running binary: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return fmt.Errorf("finding the running binary (it must not be deleted while it runs): %w", err)
	}
	if err := os.Symlink(self, d.path(binDir, "holdfast")); err != nil {
		return err
	}
	for _, member := range plan.Members {
		if err := os.MkdirAll(d.node(member.Name), 0o700); err != nil {
			return err
		}
	}
	return d.identify(plan)
}

// binaryDirectory is where the binary really lies.
func binaryDirectory(dir Directory) []string {
	target, err := os.Readlink(dir.path(binDir, "holdfast"))
	if err != nil {
		return nil
	}
	return []string{filepath.Dir(target)}
}

// startHost starts the host in namespaces of its own and waits until it is ready.
func startHost(dir Directory, lock *os.File, options launchOptions) error {
	log, err := os.OpenFile(dir.path(logFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	userNS := options.userNS || os.Getuid() != 0
	argv := []string{"lab", "host", "--dir", string(dir), "--user-namespace=" + strconv.FormatBool(userNS), "--leashed=" + strconv.FormatBool(options.leash), "--no-guard=" + strconv.FormatBool(options.noGuard)}
	for _, word := range options.agent {
		argv = append(argv, "--agent-command", word)
	}
	command := exec.Command("/proc/self/exe", argv...)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	command.ExtraFiles = []*os.File{say, lock}
	if options.leash {
		leash, hold, err := os.Pipe()
		if err != nil {
			return err
		}
		defer leash.Close()
		leashes = append(leashes, hold)
		command.ExtraFiles = append(command.ExtraFiles, leash)
	}
	command.SysProcAttr = hostAttributes(userNS)
	err = command.Start()
	say.Close()
	if err != nil {
		return explainStart(err, userNS)
	}
	line, _ := bufio.NewReader(ready).ReadString('\n') // nothing to read says that the host is dead
	if line = strings.TrimSpace(line); line != "ready" {
		_ = command.Process.Kill()
		_ = command.Wait()
		said, _ := os.ReadFile(dir.path(logFile))
		return fmt.Errorf("starting the lab: %s", firstOf(line, strings.TrimSpace(string(said)), "the host died without a word"))
	}
	go func() { _ = command.Wait() }() // a lab that outlives this process has another parent by then
	return nil
}

// leashes keeps the leashes of this process's labs open until it ends.
var leashes []*os.File

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// hostAttributes are the host's namespaces. Root's user namespace, when it is asked for one, maps all ordinary uids;
// another user's maps only root to that user, which is all that the kernel lets anybody do alone.
func hostAttributes(userNS bool) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	if !userNS {
		return attributes
	}
	attributes.Cloneflags |= unix.CLONE_NEWUSER
	size := 1
	if os.Getuid() == 0 {
		size = 65536
		attributes.GidMappingsEnableSetgroups = true
	}
	attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: size}}
	attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: size}}
	return attributes
}

// explainStart says what to do when the kernel refuses the namespaces.
func explainStart(err error, userNS bool) error {
	if !userNS || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("starting the lab host: %w", err)
	}
	name := strconv.Itoa(os.Getuid())
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	return fmt.Errorf("the kernel does not let %s make user namespaces (%w): run the lab as root, or allow it with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, `sysctl kernel.unprivileged_userns_clone=1` or `sysctl user.max_user_namespaces=15000`, whichever this machine has", name, err)
}
