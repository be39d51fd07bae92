package sshgate

import (
	"bytes"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
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
		value, failed = syscall.GetsockoptInt(int(descriptor), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}

// TestPromptPutsPacketsTogether: however packets are cut, all of each arrives in its order and is counted as written; during the handshake nothing is held.
func TestPromptPutsPacketsTogether(t *testing.T) {
	client, server := tcpPair(t)
	wrapped := promptly(server).(*prompt)
	heard := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(client)
		heard <- all
	}()
	var want []byte
	write := func(size int) {
		t.Helper()
		part := bytes.Repeat([]byte{byte(len(want))}, size)
		want = append(want, part...)
		if n, err := wrapped.Write(part); n != size || err != nil {
			t.Errorf("%d of %d bytes: %v", n, size, err)
		}
	}
	write(piece)
	if wrapped.has {
		t.Error("the handshake is held")
	}
	wrapped.left.Store(0)
	for _, sizes := range [][]int{{piece, 28 << 10}, {100}, {piece, 4}, {piece, piece}, {piece, 1 << 20}, {36}} {
		for i, size := range sizes {
			write(size)
			if held := i == 0 && size == piece; wrapped.has != held {
				t.Errorf("of %v, part %d: held is %v", sizes, i, wrapped.has)
			}
		}
	}
	server.Close()
	if got := <-heard; !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, want %d", len(got), len(want))
	}
	if n, err := wrapped.Write(make([]byte, piece)); n != piece || err != nil {
		t.Errorf("held: %d, %v", n, err)
	}
	if n, err := wrapped.Write(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("to a closed connection: %d, %v", n, err)
	}
}

// TestPacketsAreNeverAPiece: what prompt holds back is safe with these ciphers alone, whose packets have a length (4), a multiple of 16, and a tag (16).
func TestPacketsAreNeverAPiece(t *testing.T) {
	for _, cipher := range algorithms().Ciphers {
		if cipher != ssh.CipherAES128GCM && cipher != ssh.CipherAES256GCM {
			t.Errorf("of %s it is not known whether a packet may have %d bytes", cipher, piece)
		}
	}
}
