package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile is in an agent's directory. The agent that runs there holds a lock on it (flock(2)), which ends with its process, and has
// written into it where its socket is: one that is started with the directory and another socket would not find it otherwise.
const lockFile = "agent-socket"

// claimDirectory makes the directory this agent's, until its process ends.
func (a *Agent) claimDirectory() error {
	path := filepath.Join(a.options.Dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock of this agent's directory: %w", err)
	}
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		said, _ := os.ReadFile(path)
		_ = file.Close()
		return &directoryTaken{a.options.Dir, strings.TrimSpace(string(said))}
	case err != nil:
		_ = file.Close()
		a.log.Warn("this directory cannot be locked: nothing keeps another agent from using it", "file", path, "error", err)
		return nil
	}
	if err = file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(absolute(a.socketPath())+"\n"), 0)
	}
	if err != nil { // a full disk keeps no agent from starting
		a.log.Warn("it cannot be written where this agent's socket is: another agent that is started with this directory says less", "file", path, "error", err)
	}
	a.lock.Store(file)
	return nil
}

// directoryTaken says that another agent runs with a directory, and on which socket, as far as it has said so.
type directoryTaken struct{ dir, socket string }

func (e *directoryTaken) Error() string {
	if e.socket == "" {
		return "an agent runs with the directory " + e.dir + " already: stop it, or give this one a directory of its own with --dir"
	}
	return fmt.Sprintf("an agent runs with the directory %s already, on the socket %s: to replace it, say agent --replace --socket %s; "+
		"otherwise stop it, or give this one a directory of its own with --dir", e.dir, e.socket, e.socket)
}

// enterDirectory claims the directory, or leaves it to the agent that runs if this one is to replace just that one.
func (a *Agent) enterDirectory() error {
	err := a.claimDirectory()
	var taken *directoryTaken
	if a.options.Replace && errors.As(err, &taken) && taken.socket == absolute(a.socketPath()) {
		return nil
	}
	return err
}

func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		return whole
	}
	return path
}

// leaveDirectory gives the directory back.
func (a *Agent) leaveDirectory() {
	if lock := a.lock.Load(); lock != nil {
		_ = lock.Close()
	}
}
