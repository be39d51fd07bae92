package sshgate

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// promptReads is for how many reads a connection acknowledges at once: more than a handshake and the opening of the first channel have.
const promptReads = 64

// prompt is a TCP connection that acknowledges at once what it reads, in its beginning. OpenSSH sends some of its first packets one after the other without
// waiting for an answer and without TCP_NODELAY, so that its kernel holds the second back until the first is acknowledged, which Linux does
// 40 ms later where nothing is to be sent (RFC 1122, section 4.2.3.2). Twice or thrice in a handshake, on both sides of the gateway, that is most of what it costs.
type prompt struct {
	net.Conn
	raw  syscall.RawConn
	left int // of the one goroutine that reads
}

// promptly makes a connection prompt, if it is TCP.
func promptly(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	p := &prompt{Conn: conn, raw: raw, left: promptReads}
	p.acknowledge()
	return p
}

func (p *prompt) Read(into []byte) (int, error) {
	n, err := p.Conn.Read(into)
	if p.left > 0 {
		p.left--
		p.acknowledge()
	}
	return n, err
}

// acknowledge asks for it. The kernel forgets it soon, and a refusal costs nothing but time.
func (p *prompt) acknowledge() {
	_ = p.raw.Control(func(descriptor uintptr) {
		_ = unix.SetsockoptInt(int(descriptor), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	})
}
