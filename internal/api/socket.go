package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketMode lets the owner and one group connect; connecting needs the right to write (unix(7)).
const socketMode = 0o660

// maxSocketPath is what fits into sun_path with its closing zero (unix(7)).
const maxSocketPath = 107

// listenSocket opens the Unix socket at path for its owner and group (-1: the process's own).
//
// A socket that a dead agent left is removed, but only after nobody answered on it, and under a lock that all starting
// agents take: of two that start at once one gets the socket and the other is told.
func listenSocket(path string, group int64) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s has %d bytes and the kernel takes %d: choose a shorter one with --socket",
			path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the local socket: %w", err)
	}
	unlock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("opening the local socket %s: %w", path, err)
	}
	// Between bind and here the mode follows the umask. Nobody gains by it: every caller's credentials are checked.
	if group >= 0 {
		err = os.Chown(path, -1, int(group))
	}
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("giving the local socket %s its mode and group: %w", path, err)
	}
	return listener, nil
}

// lockSocket takes the lock beside the socket for the short time of opening it.
func lockSocket(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the local socket: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another agent is opening %s at this moment: only one can run for a socket", path)
	}
	return func() { file.Close() }, nil
}

// removeStale removes a socket on which nobody listens. Anything else at that path stays, and is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking at %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it, or choose another path with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("an agent already listens on %s: stop it first, or choose another path with --socket", path)
	}
	// Refused is the kernel's word that no process has it open for listening. A full queue or a missing right is not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether an agent listens on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing the socket that a dead agent left: %w", err)
	}
	return nil
}
