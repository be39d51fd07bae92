package dns

import (
	"net/netip"
	"slices"

	"github.com/holdfast/holdfast/internal/cluster"
)

// reverseNames are the names below the top of a reverse zone. A pool may have thousands of addresses and each has up to 32 labels, so they
// stand in no table: the address is read from the labels, and what has it is searched. It is immutable.
type reverseNames struct {
	zone    cluster.ReverseZone
	parts   int          // labels of the zone
	names   []namedRange // by address; they do not overlap
	between *entry       // of a name that only leads to others (RFC 8020)
}

type namedRange struct {
	cluster.Range
	entry *entry
}

// addReverse enters the reverse zones.
func (b *builder) addReverse() {
	for i := range b.view.Reverse {
		r := &b.view.Reverse[i]
		wire, err := encodeName(r.Zone.Name)
		if err != nil {
			b.fault("reverse zone %q is left out: %w", r.Zone.Name, err)
			continue
		}
		if b.out.names[string(wire)] != nil {
			b.fault("reverse zone %v is left out, because an earlier zone has the name", wire)
			continue
		}
		z := b.newZone(wire, r.Service)
		if len(z.server) > 0 { // the mailbox is one of people, not of addresses
			z.soa = packSOA(z.server.parent(), z.server, b.view.Serial, ttlSeconds(b.view.NegativeTTL))
		}
		z.reverse = b.reverseNames(z, r)
		e := &entry{zone: z, apex: true}
		if r.Zone.Free == 0 && len(z.reverse.names) > 0 {
			e.ptr = z.reverse.names[0].entry.ptr // the zone is the name of an address
		}
		b.out.enter(wire, e)
		b.out.apexes = append(b.out.apexes, wire.String())
	}
}

// reverseNames prepares the names of a zone.
func (b *builder) reverseNames(z *zone, r *Reverse) *reverseNames {
	out := &reverseNames{zone: r.Zone, between: &entry{zone: z}}
	for n := z.name; len(n) > 1; n = n.parent() {
		out.parts++
	}
	entries := map[string]*entry{}
	for _, n := range r.Names {
		e := entries[n.Name]
		if e == nil {
			target, err := encodeName(n.Name)
			if err != nil {
				b.fault("the name %q of %v is left out: %w", n.Name, n.Range, err)
				continue
			}
			e = &entry{zone: z, ptr: target}
			entries[n.Name] = e
		}
		if covered, ok := n.Range.Within(r.Zone.Covers); ok {
			out.names = append(out.names, namedRange{covered, e})
		}
	}
	slices.SortFunc(out.names, func(x, y namedRange) int { return x.Low.Compare(y.Low) })
	return out
}

// orReverse is e, unless the name that was asked is one of a reverse zone that stands in no table.
func (e *entry) orReverse(q *query, missing bool) (found *entry, stillMissing bool) {
	if e == nil || e.zone.reverse == nil || e.exists() && !missing {
		return e, missing
	}
	if found := e.zone.reverse.find(q); found != nil {
		return found, false
	}
	return e, missing
}

// find is the entry of the name that was asked; nil: it does not exist.
func (r *reverseNames) find(q *query) *entry {
	below := q.parts - r.parts
	if below < 1 || below > r.zone.Free {
		return nil
	}
	low, high := r.zone.Covers.Low.As16(), r.zone.Covers.High.As16()
	six := r.zone.Covers.Low.Is6()
	digits := 4
	if six {
		digits = 32
	}
	for i := range r.zone.Free {
		at, first, last := digits-r.zone.Free+i, byte(0), byte(255)
		if i < below {
			off := int(q.labels[below-1-i])
			digit, ok := readDigit(q.lowered[off+1:off+1+int(q.lowered[off])], six)
			if !ok {
				return nil
			}
			first, last = digit, digit
		}
		setDigit(&low, at, first, six)
		setDigit(&high, at, last, six)
	}
	return r.within(netip.AddrFrom16(low).Unmap(), netip.AddrFrom16(high).Unmap(), below == r.zone.Free)
}

// within is the entry of an address, or of a name that leads to the addresses from one to another.
func (r *reverseNames) within(low, high netip.Addr, whole bool) *entry {
	i, _ := slices.BinarySearchFunc(r.names, low, func(n namedRange, a netip.Addr) int { return n.High.Compare(a) })
	switch {
	case i == len(r.names) || high.Less(r.names[i].Low):
		return nil
	case whole:
		return r.names[i].entry
	}
	return r.between
}

// readDigit reads one label of a name of an address: an octet in decimal, or four bits in hexadecimal. There is one way to write each.
func readDigit(label []byte, six bool) (digit byte, ok bool) {
	if six {
		switch c := label[0]; {
		case len(label) != 1:
			return 0, false
		case '0' <= c && c <= '9':
			return c - '0', true
		default:
			return c - 'a' + 10, 'a' <= c && c <= 'f'
		}
	}
	n := 0
	for _, c := range label {
		if c < '0' || c > '9' || n > 25 {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return byte(n), n <= 255 && (len(label) == 1 || label[0] != '0')
}

// setDigit sets one octet of an IPv4 address, or four bits of an IPv6 one.
func setDigit(address *[16]byte, at int, digit byte, six bool) {
	switch {
	case !six:
		address[12+at] = digit
	case at%2 == 0:
		address[at/2] = address[at/2]&0x0f | digit<<4
	default:
		address[at/2] = address[at/2]&0xf0 | digit&0x0f
	}
}
