package datagram

// windowSize is how far behind the newest datagram another may come and still be taken: more than a second at the shortest interval,
// with two networks of different speed and several messages in an interval.
const windowSize = 1024

// window remembers which datagrams of one session have been taken, by their numbers, which begin with 1: those of the last windowSize
// exactly, and all before them as if they had been (RFC 4303 section 3.4.3). The zero window has seen none.
type window struct {
	newest uint64
	seen   [windowSize / 64]uint64 // a ring of bits, number n at n modulo windowSize
}

// take reports whether a number is new, and remembers it.
func (w *window) take(number uint64) bool {
	switch {
	case number == 0 || number+windowSize <= w.newest:
		return false
	case number > w.newest:
		for n := w.newest + 1; n < number && n <= w.newest+windowSize; n++ {
			w.seen[n/64%uint64(len(w.seen))] &^= 1 << (n % 64)
		}
		w.newest = number
	case w.seen[number/64%uint64(len(w.seen))]&(1<<(number%64)) != 0:
		return false
	}
	w.seen[number/64%uint64(len(w.seen))] |= 1 << (number % 64)
	return true
}
