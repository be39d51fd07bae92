package dns

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 with 64 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), the
// hash that RFC 9018 prescribes so that servers of different makers share cookies.
func sipHash(key *[16]byte, data []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(data)) << 56
	for ; len(data) >= 8; data = data[8:] {
		s.absorb(binary.LittleEndian.Uint64(data))
	}
	for i, c := range data {
		last |= uint64(c) << (8 * i)
	}
	s.absorb(last)
	s.c ^= 0xff
	for range 4 {
		s.round()
	}
	return s.a ^ s.b ^ s.c ^ s.d
}

type sipState struct{ a, b, c, d uint64 }

func (s *sipState) absorb(word uint64) {
	s.d ^= word
	s.round()
	s.round()
	s.a ^= word
}

func (s *sipState) round() {
	s.a += s.b
	s.b = bits.RotateLeft64(s.b, 13) ^ s.a
	s.a = bits.RotateLeft64(s.a, 32)
	s.c += s.d
	s.d = bits.RotateLeft64(s.d, 16) ^ s.c
	s.a += s.d
	s.d = bits.RotateLeft64(s.d, 21) ^ s.a
	s.c += s.b
	s.b = bits.RotateLeft64(s.b, 17) ^ s.c
	s.c = bits.RotateLeft64(s.c, 32)
}
