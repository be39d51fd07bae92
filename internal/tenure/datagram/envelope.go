package datagram

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	layoutVersion = 1
	headerSize    = 44
	helloSize     = 25

	messageDatagram = headerSize + MessageSize + chacha20poly1305.Overhead
	helloDatagram   = headerSize + helloSize + chacha20poly1305.Overhead
	// maxDatagram has room for one byte more than the longest, so that what is too long is seen to be.
	maxDatagram = messageDatagram + 1

	nonceAt, nonceEnd = 4, 28
	numberBits        = 48
	maxNumber         = 1<<numberBits - 1
)

// What a datagram is.
const (
	aMessage = 1
	aHello   = 2
)

// token is a session or a pass: random bytes that nobody can guess. The zero token is none.
type token [16]byte

// header is what a datagram says in clear, authenticated by the seal. The layout is in the package's description.
type header struct {
	what     byte
	sender   int
	session  token
	receiver int
	number   uint64
	pass     token
}

func (h *header) write(b []byte) {
	b[0], b[1] = layoutVersion, h.what
	binary.BigEndian.PutUint16(b[2:], uint16(h.sender))
	copy(b[4:], h.session[:])
	binary.BigEndian.PutUint64(b[20:], uint64(h.receiver)<<numberBits|h.number)
	copy(b[28:], h.pass[:])
}

// read reads the header of a datagram, and reports whether its length, version and kind are ours. Nothing of it can be believed yet.
func (h *header) read(b []byte) bool {
	if len(b) < headerSize || b[0] != layoutVersion {
		return false
	}
	h.what = b[1]
	h.sender = int(binary.BigEndian.Uint16(b[2:]))
	h.session = token(b[4:])
	counter := binary.BigEndian.Uint64(b[20:])
	h.receiver, h.number = int(counter>>numberBits), counter&maxNumber
	h.pass = token(b[28:])
	return h.what == aMessage && len(b) == messageDatagram || h.what == aHello && len(b) == helloDatagram
}

// hello is what a hello says: the pass that it gives to the session to which it is said, and the number of the datagram that it
// answers.
type hello struct {
	pass     token
	answered uint64
}

func (h *hello) write(b []byte) {
	b[0] = layoutVersion
	copy(b[1:], h.pass[:])
	binary.BigEndian.PutUint64(b[17:], h.answered)
}

func (h *hello) read(b []byte) bool {
	h.pass, h.answered = token(b[1:]), binary.BigEndian.Uint64(b[17:])
	return b[0] == layoutVersion
}

// seal turns a datagram whose header and content are written into what goes out; its last bytes are for the authentication. The nonce is in
// the header: no two datagrams under one key have the same, for a session is random and counts its own.
func seal(key cipher.AEAD, b []byte) {
	key.Seal(b[:headerSize], b[nonceAt:nonceEnd], b[headerSize:len(b)-chacha20poly1305.Overhead], b[:headerSize])
}

// open returns the content of a datagram, in the datagram's own memory, or false if not everything in it is as it was sealed.
func open(key cipher.AEAD, b []byte) ([]byte, bool) {
	content, err := key.Open(b[headerSize:headerSize], b[nonceAt:nonceEnd], b[headerSize:], b[:headerSize])
	return content, err == nil
}

func newKey(key [32]byte) (cipher.AEAD, error) {
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return nil, fmt.Errorf("preparing to seal datagrams: %w", err)
	}
	return aead, nil
}
