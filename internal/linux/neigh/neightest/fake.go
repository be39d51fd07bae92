// Package neightest has an announcer for tests that works on a link in memory and rejects what the real one rejects,
// and the contract that both pass.
package neightest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/linux/neigh"
)

// Sent is one announcement of one address.
type Sent struct {
	At        time.Time
	Interface string
	Address   netip.Addr
	MAC       net.HardwareAddr
}

// Fake is an announcer whose Ethernet interfaces are all on one link. It is safe for concurrent use.
type Fake struct {
	mu         sync.Mutex
	interfaces map[string]net.HardwareAddr // nil: not Ethernet
	strangers  map[netip.Addr]net.HardwareAddr
	sent       []Sent
	watchers   map[int]watcher
	nextID     int
	fail       error
	probed     []netip.Addr
}

type watcher struct {
	iface  string
	claims chan neigh.Claim
}

// watchBuffer is how many claims wait for a watcher; what has no room is lost, as in a socket.
const watchBuffer = 256

func (w watcher) tell(address netip.Addr, mac net.HardwareAddr) {
	select {
	case w.claims <- neigh.Claim{Address: address, MAC: bytes.Clone(mac), Interface: w.iface}:
	default:
	}
}

// New returns an announcer without interfaces.
func New() *Fake {
	return &Fake{
		interfaces: map[string]net.HardwareAddr{}, strangers: map[netip.Addr]net.HardwareAddr{},
		watchers: map[int]watcher{},
	}
}

// SetInterface adds an interface or changes its MAC. A nil MAC makes it one that is not Ethernet.
func (f *Fake) SetInterface(name string, mac net.HardwareAddr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interfaces[name] = mac
}

// RemoveInterface takes an interface away.
func (f *Fake) RemoveInterface(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.interfaces, name)
}

// Hold lets a stranger on the link answer for an address.
func (f *Fake) Hold(address netip.Addr, mac net.HardwareAddr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.strangers[address] = mac
}

// Release ends what Hold began.
func (f *Fake) Release(address netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.strangers, address)
}

// Fail makes Announce fail with err; nil ends that.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Sent returns what was announced since the last call.
func (f *Fake) Sent() []Sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// Probed returns what was probed since the last call.
func (f *Fake) Probed() []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	probed := f.probed
	f.probed = nil
	return probed
}

// Claim lets a stranger claim an address; every watched interface hears it.
func (f *Fake) Claim(address netip.Addr, mac net.HardwareAddr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.others("") {
		w.tell(address, mac)
	}
}

// Watched lists the watched interfaces, sorted.
func (f *Fake) Watched() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, w := range f.watchers {
		names = append(names, w.iface)
	}
	slices.Sort(names)
	return names
}

// others are the watchers on other interfaces.
func (f *Fake) others(iface string) []watcher {
	var list []watcher
	for _, w := range f.watchers {
		if w.iface != iface {
			list = append(list, w)
		}
	}
	return list
}

func (f *Fake) check(iface string, addresses []netip.Addr) (net.HardwareAddr, error) {
	for _, a := range addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			return nil, fmt.Errorf("%v %w", a, neigh.ErrNotUnicast)
		}
	}
	mac, present := f.interfaces[iface]
	switch {
	case !present:
		return nil, neigh.ErrNoInterface
	case mac == nil:
		return nil, fmt.Errorf("%s %w", iface, neigh.ErrNotEthernet)
	}
	return mac, nil
}

// Announce is neigh.Announcer.Announce.
func (f *Fake) Announce(iface string, addresses []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	mac, err := f.check(iface, addresses)
	if err == nil {
		err = f.fail
	}
	if err != nil {
		return fmt.Errorf("announcing on %s: %w", iface, err)
	}
	for _, a := range addresses {
		f.sent = append(f.sent, Sent{time.Now(), iface, a, bytes.Clone(mac)})
	}
	for _, w := range f.others(iface) {
		for _, a := range addresses {
			w.tell(a, mac)
		}
	}
	return nil
}

// Probe is neigh.Announcer.Probe.
func (f *Fake) Probe(ctx context.Context, iface string, addresses []netip.Addr, wait time.Duration) ([]neigh.Claim, error) {
	f.mu.Lock()
	_, err := f.check(iface, addresses)
	f.probed = append(f.probed, addresses...)
	f.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("probing on %s: %w", iface, err)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var answers []neigh.Claim
	for _, a := range addresses {
		if mac, held := f.strangers[a]; held {
			answers = append(answers, neigh.Claim{Address: a, MAC: bytes.Clone(mac), Interface: iface})
		}
	}
	return answers, nil
}

// Watch is neigh.Announcer.Watch.
func (f *Fake) Watch(ctx context.Context, iface string, heard func(neigh.Claim)) error {
	f.mu.Lock()
	if _, err := f.check(iface, nil); err != nil {
		f.mu.Unlock()
		return fmt.Errorf("watching %s: %w", iface, err)
	}
	id := f.nextID
	f.nextID++
	claims := make(chan neigh.Claim, watchBuffer)
	f.watchers[id] = watcher{iface, claims}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, id)
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-claims:
			heard(c)
		}
	}
}
