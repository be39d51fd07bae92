// Package linktest has a kernel for tests that keeps interfaces, addresses, rules and routes in memory and rejects
// wrong commands, and the contract that it and the real kernel both pass.
package linktest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/linux/link"
)

// Fake is a kernel in memory. It is safe for concurrent use. Addresses expire by time.Now, so that in a synctest
// bubble they expire in its time; expiry is noticed at the next call, without a Change.
type Fake struct {
	mu          sync.Mutex
	interfaces  []link.Interface
	addresses   []held
	rules       []link.Rule
	routes      []link.Route
	foreign     []link.Route // made by somebody else: not listed, and in the way of the same
	fail        func(link.Operation) error
	applied     []link.Operation
	findings    []link.Finding
	subscribers map[int]chan link.Change
	nextID      int
}

type held struct {
	address          link.Address
	valid, preferred time.Time // zero: forever
}

// New returns a kernel with the interfaces given.
func New(interfaces ...link.Interface) *Fake {
	f := &Fake{subscribers: map[int]chan link.Change{}}
	for _, i := range interfaces {
		f.SetInterface(i)
	}
	return f
}

// Ethernet is an interface that works.
func Ethernet(index int, name string) link.Interface {
	return link.Interface{
		Name: name, Index: index, MAC: []byte{2, 0, 0, 0, 0, byte(index)},
		Up: true, Carrier: true, MTU: 1500, Ethernet: true,
	}
}

// SetInterface adds an interface, or changes the one of that name, and tells subscribers.
func (f *Fake) SetInterface(i link.Interface) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.indexOf(i.Name); at >= 0 {
		f.interfaces[at] = i
	} else {
		f.interfaces = append(f.interfaces, i)
	}
	f.tell(link.Change{Kind: link.LinkChanged, Interface: i.Index, Carrier: i.Carrier})
}

// RemoveInterface takes an interface away, with its addresses and routes, as the kernel does.
func (f *Fake) RemoveInterface(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.indexOf(name)
	if at < 0 {
		panic("linktest: removing the interface " + name + ", which is not there")
	}
	index := f.interfaces[at].Index
	f.interfaces = slices.Delete(f.interfaces, at, at+1)
	f.addresses = slices.DeleteFunc(f.addresses, func(h held) bool { return h.address.Interface == name })
	f.routes = slices.DeleteFunc(f.routes, func(r link.Route) bool { return r.Interface == name })
	f.tell(link.Change{Kind: link.LinkChanged, Interface: index})
}

// SetCarrier changes the carrier of an interface and tells subscribers.
func (f *Fake) SetCarrier(name string, carrier bool) {
	f.mu.Lock()
	at := f.indexOf(name)
	if at < 0 {
		panic("linktest: no interface " + name)
	}
	i := f.interfaces[at]
	f.mu.Unlock()
	i.Carrier = carrier
	f.SetInterface(i)
}

// Take removes an address as if someone else had, and tells subscribers.
func (f *Fake) Take(iface string, addr netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.find(iface, link.Host(addr))
	if at < 0 {
		panic(fmt.Sprintf("linktest: %v is not on %s", addr, iface))
	}
	f.addresses = slices.Delete(f.addresses, at, at+1)
	f.tell(link.Change{Kind: link.AddressRemoved, Address: link.Host(addr)})
}

// Put adds an address as if someone else had.
func (f *Fake) Put(a link.Address) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.addAddress(a); err != nil {
		panic(fmt.Sprintf("linktest: %v: %v", a, err))
	}
}

// PutRoute adds a route as if someone else had made it: Routes does not list it, and Apply does not touch it.
func (f *Fake) PutRoute(r link.Route) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = append(f.foreign, r)
}

// Fail makes every operation for which reason gives an error fail with it. Nil ends that.
func (f *Fake) Fail(reason func(link.Operation) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = reason
}

// SetFindings sets what Findings returns.
func (f *Fake) SetFindings(findings ...link.Finding) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.findings = findings
}

// Applied returns the operations that were asked for since the last call, failed ones too.
func (f *Fake) Applied() []link.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	applied := f.applied
	f.applied = nil
	return applied
}

// Text is the whole state, a line for each address, rule and route, sorted, those of others marked as foreign; lifetimes are what is left of them.
func (f *Fake) Text() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	var lines []string
	for _, a := range f.current() {
		lines = append(lines, a.String())
	}
	for _, r := range f.rules {
		lines = append(lines, r.String())
	}
	for _, r := range f.routes {
		lines = append(lines, r.String())
	}
	for _, r := range f.foreign {
		lines = append(lines, "foreign "+r.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Interfaces is link.Kernel.Interfaces.
func (f *Fake) Interfaces() ([]link.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.interfaces), nil
}

// Addresses is link.Kernel.Addresses.
func (f *Fake) Addresses() ([]link.Address, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	return f.current(), nil
}

// Rules is link.Kernel.Rules.
func (f *Fake) Rules() ([]link.Rule, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.rules), nil
}

// Routes is link.Kernel.Routes.
func (f *Fake) Routes() ([]link.Route, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.routes), nil
}

// Findings is link.Kernel.Findings.
func (f *Fake) Findings([]link.Uses) ([]link.Finding, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.findings), nil
}

// Apply is link.Kernel.Apply.
func (f *Fake) Apply(operations []link.Operation) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire()
	failures := make([]error, len(operations))
	for i, o := range operations {
		f.applied = append(f.applied, o)
		err := f.apply(o)
		if err != nil {
			failures[i] = fmt.Errorf("%v: %w", o, err)
		}
	}
	return failures
}

func (f *Fake) apply(o link.Operation) error {
	if f.fail != nil {
		if err := f.fail(o); err != nil {
			return err
		}
	}
	switch object := o.Object.(type) {
	case link.Address:
		return f.applyAddress(o.Verb, object)
	case link.Rule:
		return applyTo(&f.rules, o.Verb, object, func(r link.Rule) bool { return r == object })
	case link.Route:
		at := f.indexOf(object.Interface)
		switch {
		case at < 0:
			return link.ErrNoInterface
		case o.Verb == link.Add && !f.interfaces[at].Up:
			return errors.New("network is down")
		}
		same := func(r link.Route) bool {
			return r.Table == object.Table && r.Destination == object.Destination && r.Metric == object.Metric
		}
		if o.Verb == link.Add && slices.ContainsFunc(f.foreign, same) {
			return link.ErrExists
		}
		return applyTo(&f.routes, o.Verb, object, same)
	}
	return errors.New("not an address, a rule or a route")
}

// applyTo adds or removes one element; same says whether an element is in the way, or meant.
func applyTo[T any](list *[]T, verb link.Verb, element T, same func(T) bool) error {
	at := slices.IndexFunc(*list, same)
	switch {
	case verb == link.Add && at >= 0:
		return link.ErrExists
	case verb == link.Add:
		*list = append(*list, element)
	case verb == link.Remove && at < 0:
		return link.ErrMissing
	case verb == link.Remove:
		*list = slices.Delete(*list, at, at+1)
	default:
		return errors.New("only addresses can be renewed")
	}
	return nil
}

func (f *Fake) applyAddress(verb link.Verb, a link.Address) error {
	if f.indexOf(a.Interface) < 0 {
		return link.ErrNoInterface
	}
	at := f.find(a.Interface, a.Prefix)
	switch {
	case verb == link.Add:
		return f.addAddress(a)
	case verb == link.Renew && at < 0:
		return f.addAddress(a)
	case verb == link.Renew:
		f.addresses[at] = newHeld(a)
		return nil
	case at < 0:
		return link.ErrMissing
	}
	f.addresses = slices.Delete(f.addresses, at, at+1)
	f.tell(link.Change{Kind: link.AddressRemoved, Address: a.Prefix})
	return nil
}

func (f *Fake) addAddress(a link.Address) error {
	switch {
	case f.indexOf(a.Interface) < 0:
		return link.ErrNoInterface
	case f.find(a.Interface, a.Prefix) >= 0:
		return link.ErrExists
	case a.Valid <= 0 || a.Preferred > a.Valid:
		return errors.New("invalid lifetimes")
	}
	f.addresses = append(f.addresses, newHeld(a))
	return nil
}

func newHeld(a link.Address) held {
	h := held{address: a}
	if a.Valid != link.Forever {
		h.valid = time.Now().Add(a.Valid)
	}
	if a.Preferred != link.Forever {
		h.preferred = time.Now().Add(a.Preferred)
	}
	return h
}

// current gives the addresses with what is left of their lifetimes.
func (f *Fake) current() []link.Address {
	var list []link.Address
	for _, h := range f.addresses {
		a := h.address
		if !h.valid.IsZero() {
			a.Valid = time.Until(h.valid)
		}
		if !h.preferred.IsZero() {
			a.Preferred = max(0, time.Until(h.preferred))
		}
		list = append(list, a)
	}
	return list
}

func (f *Fake) expire() {
	f.addresses = slices.DeleteFunc(f.addresses, func(h held) bool {
		return !h.valid.IsZero() && !time.Now().Before(h.valid)
	})
}

func (f *Fake) find(iface string, prefix netip.Prefix) int {
	return slices.IndexFunc(f.addresses, func(h held) bool {
		return h.address.Interface == iface && h.address.Prefix == prefix
	})
}

func (f *Fake) indexOf(name string) int {
	return slices.IndexFunc(f.interfaces, func(i link.Interface) bool { return i.Name == name })
}

// Changes is link.Kernel.Changes.
func (f *Fake) Changes(ctx context.Context, notify func(link.Change)) error {
	f.mu.Lock()
	id, changes := f.nextID, make(chan link.Change, 64)
	f.nextID++
	f.subscribers[id] = changes
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subscribers, id)
	}()
	notify(link.Change{Kind: link.Overrun})
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-changes:
			notify(change)
		}
	}
}

// tell sends a change to all subscribers. What a slow one has no room for is lost to it, and the last that it reads is
// an overrun, as with the kernel.
func (f *Fake) tell(change link.Change) {
	for _, changes := range f.subscribers {
		select {
		case changes <- change:
		default:
			<-changes
			changes <- link.Change{Kind: link.Overrun}
		}
	}
}
