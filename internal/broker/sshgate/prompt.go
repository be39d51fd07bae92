package sshgate

import (
	"net"
	"sync/atomic"
	"syscall"
)

// promptReads is for how many reads a connection acknowledges at once: more than a handshake and the opening of the first channel have.
const promptReads = 64

// prompt is a TCP connection with what the SSH library leaves to be wished: it writes a packet at once, and it acknowledges at once what it reads, in its beginning. OpenSSH sends some of its first packets one after the other without
// waiting for an answer and without TCP_NODELAY, so that its kernel holds the second back until the first is acknowledged, which Linux does
// 40 ms later where nothing is to be sent (RFC 1122, section 4.2.3.2). Twice or thrice in a handshake, on both sides of the gateway, that is most of what it costs.
type prompt struct {
	net.Conn
	raw  syscall.RawConn
	left atomic.Int32
	held [piece]byte // the beginning of a packet, of which the rest is to come; of the one goroutine that writes
	has  bool
}

// piece is the buffer through which the library writes packets: what is longer comes as a write of so many bytes, and then the rest.
const piece = 4 << 10

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
	p := &prompt{Conn: conn, raw: raw}
	p.left.Store(promptReads)
	p.acknowledge()
	return p
}

func (p *prompt) Read(into []byte) (int, error) {
	n, err := p.Conn.Read(into)
	if p.left.Load() > 0 {
		p.left.Add(-1)
		p.acknowledge()
	}
	return n, err
}

// Write puts together again what the library cut: two system calls, and two segments that each wake the other side up, become one. A packet is never a
// piece as it is, since the ciphers of the gateway (algorithms) make its length 4 more than a multiple of 16, so that what is held is always followed by more.
// During the handshake, in which packets are not yet encrypted, nothing is held.
func (p *prompt) Write(data []byte) (int, error) {
	switch {
	case p.has:
		p.has = false
		both := net.Buffers{p.held[:], data}
		n, err := both.WriteTo(p.Conn)
		return max(0, int(n)-piece), err
	case len(data) == piece && p.left.Load() == 0:
		p.has = true
		copy(p.held[:], data)
		return piece, nil
	}
	return p.Conn.Write(data)
}

// acknowledge asks for it. The kernel forgets it soon, and a refusal costs nothing but time.
func (p *prompt) acknowledge() {
	_ = p.raw.Control(func(descriptor uintptr) {
		_ = syscall.SetsockoptInt(int(descriptor), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
	})
}
