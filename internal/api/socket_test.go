package api

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func runAs(t *testing.T, program, socket string, cred *syscall.Credential) string {
	t.Helper()
	command := exec.Command(program, "-test.run=^TestOtherUserIsRefusedByTheKernelsWord$", "-test.count=1")
	command.Env = append(os.Environ(), "HOLDFAST_TEST_CALL="+socket)
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("calling as %d:%d: %v\n%s", cred.Uid, cred.Gid, err, out)
	}
	return string(out)
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	listener, err := listenSocket(path, -1)
	if err != nil {
		t.Fatalf("a dead agent's socket is in the way: %v", err)
	}
	listener.Close()
}

func TestLiveSocketIsLeftAlone(t *testing.T) {
	path := socketPath(t)
	live, err := listenSocket(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if _, err := listenSocket(path, -1); err == nil || !strings.Contains(err.Error(), "already listens") {
		t.Fatalf("a second agent on one socket: %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first agent lost its socket: %v", err)
	}
	conn.Close()
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(path, -1); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Fatalf("a file at the socket's path: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Fatal("the file was changed")
	}
}

func TestTwoStartingAtOnce(t *testing.T) {
	path := socketPath(t)
	unlock, err := lockSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenSocket(path, -1); err == nil || !strings.Contains(err.Error(), "at this moment") {
		t.Errorf("while another opens the socket: %v", err)
	}
	unlock()
	listener, err := listenSocket(path, -1)
	if err != nil {
		t.Fatalf("after the other is done: %v", err)
	}
	listener.Close()
}

func TestLongPathIsExplained(t *testing.T) {
	_, err := listenSocket(filepath.Join("/tmp", strings.Repeat("x", 120)), -1)
	if err == nil || !strings.Contains(err.Error(), "choose a shorter one") {
		t.Errorf("a long path: %v", err)
	}
}

func TestGroupLookUp(t *testing.T) {
	if n, err := lookUpGroup(""); n != -1 || err != nil {
		t.Errorf("no group = %d, %v", n, err)
	}
	if n, err := lookUpGroup("1234"); n != 1234 || err != nil {
		t.Errorf("a number = %d, %v", n, err)
	}
	if _, err := lookUpGroup("no-such-group-here"); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("an unknown group: %v", err)
	}
}

// TestConnectionsAreBounded fills the listener's slots: one more is closed and counted, and a slot that is given back can
// be used again.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := listenSocket(socketPath(t), -1)
	if err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{}, 8)
	listener := newBoundedListener(inner, 1, func() { full <- struct{}{} })
	defer listener.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	dial()
	first := <-accepted
	refused := dial()
	<-full
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a connection beyond the bound was kept")
	}
	first.Close()
	first.Close() // twice gives back one slot
	dial()
	second := <-accepted
	defer second.Close()
	dial()
	<-full
}

// TestBusySocketIsLeftAlone: an agent too busy to accept is an agent. Its queue is full, which is not "refused".
func TestBusySocketIsLeftAlone(t *testing.T) {
	path := socketPath(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for { // fill the queue
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	if _, err := listenSocket(path, -1); err == nil || !strings.Contains(err.Error(), "cannot tell") {
		t.Errorf("a busy agent's socket: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the busy agent's socket is gone: %v", err)
	}
}
