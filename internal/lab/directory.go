package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Directory is where a lab keeps its files. While the lab lives, its host holds a lock in it; the kernel drops the
// lock when the host dies, so that a lock that can be taken proves that nothing runs.
type Directory string

// The files of a lab's directory. Everything in labFiles is the lab's own and is removed with it.
const (
	planFile    = "lab.json"
	lockFile    = "lab.lock"
	socketFile  = "control.sock"
	logFile     = "host.log"
	nodesDir    = "nodes"
	binDir      = "bin"
	identityDir = "ca"
)

var labFiles = []string{nodesDir, binDir, identityDir, socketFile, logFile, planFile, lockFile}

// baseDirectory is where labs live that were not told otherwise, and where all labs of this user are registered:
// holdfast-lab under $XDG_RUNTIME_DIR, or /tmp/holdfast-lab-UID.
func baseDirectory() string {
	if runtime := os.Getenv("XDG_RUNTIME_DIR"); runtime != "" {
		if info, err := os.Stat(runtime); err == nil && info.IsDir() {
			return filepath.Join(runtime, "holdfast-lab")
		}
	}
	return filepath.Join(os.TempDir(), "holdfast-lab-"+strconv.Itoa(os.Getuid()))
}

// DefaultDirectory is the directory of the lab that has no --dir.
func DefaultDirectory() Directory { return Directory(filepath.Join(baseDirectory(), "default")) }

func (d Directory) path(name ...string) string {
	return filepath.Join(append([]string{string(d)}, name...)...)
}

// node is the directory of one member: its agent's --dir for a node, and its logs.
func (d Directory) node(member string) string { return d.path(nodesDir, member) }

// identity is the directory of a node's certificates.
func (d Directory) identity(node string) string { return filepath.Join(d.node(node), "identity") }

// prepare makes the directory, claims it with the lock, clears what a dead lab left in it and registers it. The lab
// lives as long as the file that it returns is open anywhere.
func (d Directory) prepare() (*os.File, error) {
	if err := safeBase(baseDirectory()); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, fmt.Errorf("making the lab's directory: %w", err)
	}
	lock, err := os.OpenFile(d.path(lockFile), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claiming the lab's directory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("a lab already runs in %s: take it down with `holdfast lab down --dir %s`, or give another --dir", d, d)
	}
	for _, name := range labFiles {
		if name == lockFile {
			continue
		}
		if err := os.RemoveAll(d.path(name)); err != nil {
			lock.Close()
			return nil, fmt.Errorf("clearing what a dead lab left: %w", err)
		}
	}
	if err := d.register(); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// safeBase makes the base directory and refuses one that somebody else could write to: it may lie in /tmp.
func safeBase(base string) error {
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("making the directory of labs: %w", err)
	}
	info, err := os.Lstat(base)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s must be a directory of yours that nobody else can write to: remove it, or set XDG_RUNTIME_DIR", base)
	}
	return nil
}

// The registry is one symbolic link for each lab, so that gc finds labs with a --dir of their own.
func (d Directory) register() error {
	registry := filepath.Join(baseDirectory(), "registry")
	if err := os.MkdirAll(registry, 0o700); err != nil {
		return fmt.Errorf("registering the lab: %w", err)
	}
	entry := d.registryEntry()
	if err := os.Remove(entry); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("registering the lab: %w", err)
	}
	return os.Symlink(string(d), entry)
}

func (d Directory) registryEntry() string {
	sum := sha256.Sum256([]byte(d))
	return filepath.Join(baseDirectory(), "registry", hex.EncodeToString(sum[:8]))
}

// alive reports whether a host holds the lock.
func (d Directory) alive() bool {
	lock, err := os.Open(d.path(lockFile))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// waitDead waits until no host holds the lock.
func (d Directory) waitDead(limit time.Duration) error {
	for deadline := time.Now().Add(limit); d.alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the lab in %s still runs after %v", d, limit)
		}
	}
	return nil
}

// remove deletes the files of a dead lab, and the directory if nothing else is in it. With keep only the lock and
// the registration go, so that logs can be read.
func (d Directory) remove(keep bool) error {
	var faults []error
	for _, name := range labFiles {
		if !keep || name == lockFile {
			faults = append(faults, os.RemoveAll(d.path(name)))
		}
	}
	if err := os.Remove(d.registryEntry()); !errors.Is(err, os.ErrNotExist) {
		faults = append(faults, err)
	}
	for _, directory := range []string{string(d), filepath.Join(baseDirectory(), "registry"), baseDirectory()} {
		_ = os.Remove(directory) // stays when it is not empty, which is the point
	}
	return errors.Join(faults...)
}

// collectGarbage removes the files of every registered lab that is dead, and names their directories.
func collectGarbage() ([]string, error) {
	registry := filepath.Join(baseDirectory(), "registry")
	entries, err := os.ReadDir(registry)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the registry of labs: %w", err)
	}
	var removed []string
	var faults []error
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(registry, entry.Name()))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if dir := Directory(target); !dir.alive() {
			removed = append(removed, target)
			faults = append(faults, dir.remove(false))
		}
	}
	return removed, errors.Join(faults...)
}

// savePlan writes the plan for the host to read.
func (d Directory) savePlan(plan *Plan) error {
	data, err := json.MarshalIndent(plan, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the lab's plan: %w", err)
	}
	return os.WriteFile(d.path(planFile), data, 0o600)
}

// loadPlan reads what savePlan wrote.
func (d Directory) loadPlan() (*Plan, error) {
	data, err := os.ReadFile(d.path(planFile))
	if err != nil {
		return nil, fmt.Errorf("reading the lab's plan: %w", err)
	}
	plan := new(Plan)
	if err := json.Unmarshal(data, plan); err != nil {
		return nil, fmt.Errorf("reading the lab's plan: %w", err)
	}
	return plan, nil
}
