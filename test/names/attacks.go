package main

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
)

// attack is one way to attack. Those of datagrams have payloads, one after the other; of the others crowd says how connections behave.
type attack struct {
	name     string
	title    string
	sources  int // of the forged ones, from the first on
	payloads func(*rand.Rand) [][]byte
	crowd    func(*crowd)
	syn      bool
	rate     int // datagrams or segments a second; 0: as many as can be
}

// variety is how many payloads an attack has at most; they are sent again and again.
const variety = 4096

// attacks are all that are known, in their order.
var attacks = []attack{
	{name: "one", title: "UDP flood from one source", sources: 1, payloads: plainQueries},
	{name: "many", title: "UDP flood from 65,536 sources", sources: 1 << 16, payloads: plainQueries},
	{name: "names", title: "random names below and outside the zones, 65,536 sources", sources: 1 << 16, payloads: randomNames},
	{name: "malformed", title: "malformed packets, 65,536 sources", sources: 1 << 16, payloads: malformed},
	{name: "forged", title: "forged source: ANY, NS, SOA, TXT, long names, EDNS 4096", sources: 256, payloads: amplifying},
	{name: "slow", title: "1,024 connections that send an octet a second", crowd: (*crowd).slow},
	{name: "crowd", title: "1,100 connections that ask once and stay", crowd: (*crowd).stay},
	{name: "syn", title: "half-open connections, 65,536 sources", sources: 1 << 16, syn: true, rate: 10000},
}

// Types of questions.
const (
	typeA   = 1
	typeNS  = 2
	typeSOA = 6
	typeTXT = 16
	typeANY = 255
)

// wireName is a name as it stands in a message.
func wireName(name string) (out []byte) {
	for label := range strings.SplitSeq(name, ".") {
		out = append(append(out, byte(len(label))), label...)
	}
	return append(out, 0)
}

func plainQueries(*rand.Rand) (out [][]byte) {
	for i := range namesAsked {
		out = append(out, question(asked("w", i, false), typeA, 1232, nil))
	}
	return out
}

// randomLabel is one of letters.
func randomLabel(random *rand.Rand, length int) string {
	label := make([]byte, length)
	for i := range label {
		label[i] = byte('a' + random.IntN(26))
	}
	return string(label)
}

func randomNames(random *rand.Rand) (out [][]byte) {
	for i := range variety {
		under := asked("w", i%namesAsked, false)
		if i%2 == 1 {
			under = "example.org"
		}
		out = append(out, question(randomLabel(random, 12)+"."+under, typeA, 1232, nil))
	}
	return out
}

// amplifying asks for what may be large.
func amplifying(*rand.Rand) (out [][]byte) {
	long := strings.Repeat(strings.Repeat("x", 49)+".", 4) + asked("w", 0, false)
	for _, qtype := range []uint16{typeANY, typeNS, typeSOA, typeTXT} {
		out = append(out, question(asked("w", 0, false), qtype, 4096, nil), question(long, qtype, 4096, nil))
	}
	return out
}

// malformed damages queries: cut, with labels that are too long or reserved, with pointers that go in a circle, with counts that are not
// true, with options that are none, and noise.
func malformed(random *rand.Rand) (out [][]byte) {
	for i := range variety {
		m := question(asked("w", i%namesAsked, false), typeA, 1232, nil)
		switch i % 7 {
		case 0:
			m = m[:random.IntN(len(m))]
		case 1:
			m[12] = byte(64 + random.IntN(128)) // a label of 64 octets and more, or of a reserved kind
		case 2:
			m[12], m[13] = 0xc0, 12 // a pointer to itself
		case 3:
			binary.BigEndian.PutUint16(m[4+2*random.IntN(4):], uint16(random.IntN(1<<16)))
		case 4:
			noise := make([]byte, 4+random.IntN(60))
			for k := range noise {
				noise[k] = byte(random.Uint32())
			}
			m = question(asked("w", i%namesAsked, false), typeA, 4096, noise)
		case 5:
			m[11] = 2 // a second OPT record
			m = append(m, m[len(m)-11:]...)
		default:
			for k := range m {
				m[k] = byte(random.Uint32())
			}
		}
		out = append(out, m)
	}
	return out
}
