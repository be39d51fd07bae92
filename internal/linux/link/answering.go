package link

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// How long a batch of IPv6 addresses that were added may take until the host answers on them, and how often that is looked at. It
// takes a fraction of a millisecond for each; on an interface that is down it never comes, and is not waited for beyond this.
const (
	answeringLimit = 20 * time.Millisecond
	answeringLook  = 200 * time.Microsecond
)

// awaitAnswering waits until the host answers on the IPv6 addresses that were just added. The kernel acknowledges such an address
// first, and puts its local route in from a work queue (addrconf_dad_work in net/ipv6/addrconf.c); until then it drops what comes in
// for it. Whoever announced it in between would draw the first packets of clients into that, which then wait a second to try again.
func (k *Kernel) awaitAnswering(operations []Operation, failures []error) {
	deadline := time.Now().Add(k.answering)
	for i, o := range operations {
		a, isAddress := o.Object.(Address)
		if !isAddress || o.Verb != Add || failures[i] != nil || !a.Prefix.Addr().Is6() {
			continue
		}
		for !k.answersOn(a.Prefix.Addr()) && time.Now().Before(deadline) {
			time.Sleep(answeringLook)
		}
	}
}

// answersOn reports whether packets to an address are for this host.
func (k *Kernel) answersOn(address netip.Addr) bool {
	routes, err := k.handle.RouteGet(address.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}
