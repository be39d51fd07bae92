package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// String writes "low-high", or the address alone when the range has one.
func (r Range) String() string {
	if r.Low == r.High {
		return address.format(r.Low)
	}
	return address.format(r.Low) + "-" + address.format(r.High)
}

// Contains reports whether a is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.Low.BitLen() == a.BitLen() && r.Low.Compare(a) <= 0 && a.Compare(r.High) <= 0
}

// Overlaps reports whether the two ranges share an address.
func (r Range) Overlaps(o Range) bool {
	return r.Low.BitLen() == o.Low.BitLen() && r.Low.Compare(o.High) <= 0 && o.Low.Compare(r.High) <= 0
}

// Within is the part of the range that lies in another; ok is false when there is none.
func (r Range) Within(o Range) (part Range, ok bool) {
	if !r.Overlaps(o) {
		return Range{}, false
	}
	if r.Low.Less(o.Low) {
		r.Low = o.Low
	}
	if o.High.Less(r.High) {
		r.High = o.High
	}
	return r, true
}

// Size is the number of addresses in the range, limit when there are that many or more.
func (r Range) Size(limit int) int {
	if !r.Low.IsValid() || r.Low.BitLen() != r.High.BitLen() || r.High.Less(r.Low) {
		return 0
	}
	low, high := r.Low.As16(), r.High.As16()
	lowTail, borrow := bits.Sub64(binary.BigEndian.Uint64(high[8:]), binary.BigEndian.Uint64(low[8:]), 0)
	lowHead, _ := bits.Sub64(binary.BigEndian.Uint64(high[:8]), binary.BigEndian.Uint64(low[:8]), borrow)
	if lowHead > 0 || lowTail >= uint64(limit) {
		return limit
	}
	return min(limit, int(lowTail)+1)
}

// ParseRange reads "10.0.0.4-10.0.0.6" or a single address. Errors say what is wrong with the text.
func ParseRange(s string) (Range, error) {
	lowText, highText, two := strings.Cut(s, "-")
	low, err := parseAddress(strings.TrimSpace(lowText))
	if err != nil {
		return Range{}, rangeError(s, err)
	}
	if !two {
		return Range{low, low}, nil
	}
	high, err := parseAddress(strings.TrimSpace(highText))
	if err != nil {
		return Range{}, rangeError(s, err)
	}
	r := Range{low, high}
	return r, checkRange(r)
}

func rangeError(s string, err error) error {
	if strings.Contains(s, "/") {
		return fmt.Errorf("%s is a network; write a range such as 10.0.0.4-10.0.0.6", shown(s))
	}
	if strings.Contains(s, ",") {
		return fmt.Errorf("%s has a comma; write each range as an item of its own", shown(s))
	}
	return err
}

func checkRange(r Range) error {
	if err := checkAddress(r.Low); err != nil {
		return err
	}
	if err := checkAddress(r.High); err != nil {
		return err
	}
	if r.Low.Is4() != r.High.Is4() {
		return fmt.Errorf("%s and %s are of different families; a range has one family", r.Low, r.High)
	}
	if r.High.Less(r.Low) {
		return fmt.Errorf("%s ends before it begins; write %s-%s", r, r.High, r.Low)
	}
	return nil
}

// parseAddress reads one address without a zone.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		if _, err := netip.ParsePrefix(s); err == nil {
			return netip.Addr{}, fmt.Errorf("%s is a network; write an address without the mask", shown(s))
		}
		return netip.Addr{}, fmt.Errorf("%s is not an address%s; write one such as 10.0.0.7 or fd00::7", shown(s), addressReason(s))
	}
	return a, checkAddress(a)
}

// addressReason says the commonest slips.
func addressReason(s string) string {
	parts := strings.Split(s, ".")
	if strings.Contains(s, ":") || strings.Trim(s, "0123456789.") != "" {
		return ""
	}
	if len(parts) != 4 {
		return fmt.Sprintf(" (an IPv4 address has 4 numbers, this has %d)", len(parts))
	}
	for _, p := range parts {
		n, err := strconv.Atoi(p)
		switch {
		case err != nil:
			return ""
		case n > 255:
			return fmt.Sprintf(" (%s is more than 255)", p)
		case len(p) > 1 && p[0] == '0':
			return fmt.Sprintf(" (%s has a leading zero)", p)
		}
	}
	return ""
}

func checkAddress(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("is not an address; write one such as 10.0.0.7 or fd00::7")
	case a.Zone() != "":
		return fmt.Errorf("%s has a zone; write the address without %%%s", a, a.Zone())
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4 address in IPv6 form; write %s", a, a.Unmap())
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is no address of a single host on a network", a)
	}
	return nil
}

func parseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil {
			return netip.Prefix{}, fmt.Errorf("%s has no mask; write for example %s/%d", shown(s), a.WithZone(""), a.BitLen()*3/4)
		}
		return netip.Prefix{}, fmt.Errorf("%s is not a network; write one such as 10.0.0.0/24 or fd00::/64", shown(s))
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4 network in IPv6 form; write it as IPv4", shown(s))
	}
	return p, nil
}

func parseRoute(s string) (Route, error) {
	destination, gateway, ok := strings.Cut(s, "-")
	if !ok {
		return Route{}, fmt.Errorf("%s is not a route; write destination-gateway, such as 10.1.0.0/16-10.0.0.1", shown(s))
	}
	d, err := parseNetwork(strings.TrimSpace(destination))
	if err != nil {
		return Route{}, err
	}
	g, err := parseAddress(strings.TrimSpace(gateway))
	if err != nil {
		return Route{}, err
	}
	return Route{d, g}, nil
}

// ParseMember reads "3:ext-1": the interface ext-1 of the node with LNN 3.
func ParseMember(s string) (Member, error) {
	number, iface, ok := strings.Cut(s, ":")
	lnn, err := strconv.Atoi(number)
	if !ok || err != nil || iface == "" {
		return Member{}, fmt.Errorf("%s is not an interface of a node; write LNN:INTERFACE, such as 3:ext-1", shown(s))
	}
	return Member{lnn, iface}, nil
}

// expand lists the addresses of ranges, sorted, without duplicates, at most limit of them.
func expand(ranges []Range, limit int) []netip.Addr {
	var out []netip.Addr
	for _, r := range ranges {
		n := r.Size(limit + 1)
		for a := r.Low; n > 0 && len(out) <= 2*limit; n-- {
			out = append(out, a)
			a = a.Next()
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	out = slices.Compact(out)
	return out[:min(len(out), limit)]
}

// merged sorts ranges and joins those that touch or overlap.
func merged(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return a.Low.Compare(b.Low) })
	var out []Range
	for _, r := range sorted {
		if n := len(out); n > 0 && out[n-1].Low.BitLen() == r.Low.BitLen() {
			last := &out[n-1]
			next := last.High.Next()
			if !next.IsValid() || r.Low.Compare(next) <= 0 {
				if last.High.Less(r.High) {
					last.High = r.High
				}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// without takes the addresses of cut out of ranges; ok is false when some of them are not in there.
func without(ranges []Range, cut Range) (out []Range, ok bool) {
	covered := false
	for _, r := range merged(ranges) {
		if !r.Overlaps(cut) {
			out = append(out, r)
			continue
		}
		if r.Contains(cut.Low) && r.Contains(cut.High) {
			covered = true
		}
		if r.Low.Less(cut.Low) {
			out = append(out, Range{r.Low, cut.Low.Prev()})
		}
		if cut.High.Less(r.High) {
			out = append(out, Range{cut.High.Next(), r.High})
		}
	}
	return out, covered
}
