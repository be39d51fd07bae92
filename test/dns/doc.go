// Package dns tests the product's DNS answers with peers that nobody here wrote: the library miekg/dns as client and as
// a second opinion on every octet, dig, and the resolvers BIND, unbound, dnsmasq and Knot Resolver in front, configured
// with what the product prints for them. Peers that are not installed make their tests skip, with the reason.
package dns
