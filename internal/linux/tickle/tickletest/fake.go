// Package tickletest has a sender of tickles for tests that refuses what the kernel refuses, and the contract that both pass.
package tickletest

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/linux/tickle"
)

// Sent is one tickle.
type Sent struct {
	At         time.Time
	Connection tickle.Connection
}

// Fake is a host that sends tickles. It has the addresses that it was given. It is safe for concurrent use.
type Fake struct {
	mu   sync.Mutex
	here map[netip.Addr]bool
	sent []Sent
	fail error
}

// New returns a host that has the addresses.
func New(addresses ...netip.Addr) *Fake {
	f := &Fake{here: map[netip.Addr]bool{}}
	for _, a := range addresses {
		f.here[a] = true
	}
	return f
}

// SetHere says whether the host has an address.
func (f *Fake) SetHere(a netip.Addr, here bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.here[a] = here
}

// Fail makes every tickle fail with err; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Sent returns what was sent since the last call.
func (f *Fake) Sent() []Sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// Send is tickle.Sender.Send.
func (f *Fake) Send(connections []tickle.Connection) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(connections))
	for i, c := range connections {
		switch {
		case !fit(c.Local, c.Remote):
			errs[i] = fmt.Errorf("%v to %v: %w", c.Local, c.Remote, tickle.ErrUnfit)
		case !f.here[c.Local.Addr()]:
			errs[i] = fmt.Errorf("%v to %v: %w", c.Local, c.Remote, tickle.ErrNotHere)
		case f.fail != nil:
			errs[i] = f.fail
		default:
			f.sent = append(f.sent, Sent{time.Now(), c})
		}
	}
	return errs
}

func fit(local, remote netip.AddrPort) bool {
	for _, end := range []netip.AddrPort{local, remote} {
		a := end.Addr()
		if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" || end.Port() == 0 {
			return false
		}
	}
	return local.Addr().Is4() == remote.Addr().Is4() && local.Addr() != remote.Addr()
}
