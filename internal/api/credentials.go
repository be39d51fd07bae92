package api

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Credentials are who is at the other end of the Unix socket, as the kernel vouches for it (unix(7), SO_PEERCRED): the
// process that called connect, at that moment.
type Credentials struct {
	PID      int
	UID, GID uint32
	Groups   []uint32 // supplementary groups; at most maxGroups
}

// maxGroups bounds the supplementary groups that are read of a caller. Who is in more is judged by user and primary group
// alone.
const maxGroups = 1024

type credentialsKey struct{}

// Caller returns who made a call on the local socket; false for a call that came another way.
func Caller(ctx context.Context) (Credentials, bool) {
	c, ok := ctx.Value(credentialsKey{}).(Credentials)
	return c, ok
}

// admission is who may use the socket: root, the user that the agent runs as, and one group where configured.
type admission struct {
	uid   uint32
	group int64 // -1: none
}

func (a admission) permits(c Credentials) bool {
	if c.UID == 0 || c.UID == a.uid {
		return true
	}
	return a.group >= 0 && (int64(c.GID) == a.group || slices.Contains(c.Groups, uint32(a.group)))
}

// lookUpGroup takes the name or the number of a group; empty is none (-1).
func lookUpGroup(group string) (int64, error) {
	if group == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(group, 10, 32); err == nil {
		return int64(n), nil
	}
	found, err := user.LookupGroup(group)
	if err != nil {
		return -1, fmt.Errorf("group %q of the local socket does not exist on this machine: create it, or leave it out", group)
	}
	n, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return -1, fmt.Errorf("group %q of the local socket has no number: %w", group, err)
	}
	return int64(n), nil
}

// credentialsOf asks the kernel who connected.
func credentialsOf(conn *net.UnixConn) (Credentials, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Credentials{}, fmt.Errorf("reading the caller of the local socket: %w", err)
	}
	var c Credentials
	var failure error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failure != nil {
			return
		}
		c = Credentials{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, Groups: peerGroups(fd)}
	})
	if err == nil && failure != nil {
		err = os.NewSyscallError("getsockopt SO_PEERCRED", failure)
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("reading the caller of the local socket: %w", err)
	}
	return c, nil
}

// peerGroups reads SO_PEERGROUPS (Linux 4.13), for which x/sys has no function. Failure means no groups: it can only
// refuse somebody.
func peerGroups(fd uintptr) []uint32 {
	var groups [maxGroups]uint32
	size := uint32(unsafe.Sizeof(groups))
	_, _, errno := syscall.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	return slices.Clone(groups[:size/4])
}
