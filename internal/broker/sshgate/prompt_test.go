package sshgate

import (
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrompt: a connection on which questions and answers alternate makes Linux put off what it acknowledges; in its beginning a prompt one does not, and
// later it is like any other.
func TestPrompt(t *testing.T) {
	for name, c := range map[string]struct {
		wrap   func(net.Conn) net.Conn
		rounds int
		want   int
	}{
		"as it is":      {func(conn net.Conn) net.Conn { return conn }, 10, 0},
		"prompt":        {promptly, 10, 1},
		"prompt, later": {promptly, 2 * promptReads, 0},
	} {
		client, server := tcpPair(t)
		wrapped := c.wrap(server)
		one := make([]byte, 1)
		for range c.rounds {
			for _, step := range []func() error{
				func() error { _, err := client.Write(one); return err }, func() error { _, err := io.ReadFull(wrapped, one); return err },
				func() error { _, err := wrapped.Write(one); return err }, func() error { _, err := io.ReadFull(client, one); return err },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := client.Write(one); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(wrapped, one); err != nil {
			t.Fatal(err)
		}
		if got := quick(t, server); got != c.want {
			t.Errorf("%s: the kernel says %d, want %d", name, got, c.want)
		}
	}
	pipe, _ := net.Pipe()
	if promptly(pipe) != pipe {
		t.Error("what is no TCP is changed")
	}
}

func tcpPair(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// quick is whether the kernel acknowledges at once what comes.
func quick(t *testing.T, conn syscall.Conn) (value int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		value, failed = unix.GetsockoptInt(int(descriptor), unix.IPPROTO_TCP, unix.TCP_QUICKACK)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}
