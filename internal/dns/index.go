package dns

import (
	"encoding/binary"
	"math/bits"
)

// nameIndex finds whole names without a walk along their labels. It is immutable.
type nameIndex struct {
	slots []indexed // a power of two, at most half of them used
}

type indexed struct {
	hash  uint64
	name  string
	entry *entry // nil: free
}

func newNameIndex(names map[string]*entry) nameIndex {
	x := nameIndex{slots: make([]indexed, 1<<bits.Len(uint(2*len(names))))}
	for name, e := range names {
		var lowered [loweredSize]byte
		hash := lowerName(&lowered, []byte(name))
		at := hash
		for x.slots[x.slot(at)].entry != nil {
			at++
		}
		x.slots[x.slot(at)] = indexed{hash, name, e}
	}
	return x
}

func (x *nameIndex) slot(at uint64) int { return int(at & uint64(len(x.slots)-1)) }

// find is the entry of a name in lower case; nil: there is none.
func (x *nameIndex) find(hash uint64, name []byte) *entry {
	if len(x.slots) == 0 {
		return nil
	}
	for at := hash; ; at++ {
		s := &x.slots[x.slot(at)]
		if s.entry == nil || s.hash == hash && s.name == string(name) {
			return s.entry
		}
	}
}

// loweredSize is that of the longest name in whole words.
const loweredSize = (maxWireName + 7) &^ 7

// lowerName writes a name of at most 255 octets to lowered in lower case, eight octets at a time, and returns its hash. Octets that say how
// long labels are lie below the letters. Names of the view alone are in the index, so that nobody gains from choosing those that collide.
func lowerName(lowered *[loweredSize]byte, name []byte) uint64 {
	const each, high = 0x0101010101010101, 0x8080808080808080
	hash := uint64(len(name))
	for off := 0; off < len(name); off += 8 {
		var word uint64
		if off+8 <= len(name) {
			word = binary.LittleEndian.Uint64(name[off:])
		} else {
			for i, c := range name[off:] {
				word |= uint64(c) << (8 * i)
			}
		}
		low := word &^ high // an octet with its top bit set is no letter
		upper := (low + (0x80-'A')*each) &^ (low + (0x80-'Z'-1)*each) &^ word & high
		word |= upper >> 2
		binary.LittleEndian.PutUint64(lowered[off:], word)
		hash = bits.RotateLeft64(hash^word, 29) * 0x9E3779B97F4A7C15
	}
	return hash ^ hash>>32
}
