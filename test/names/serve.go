package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/dns"
)

// namesAsked is how many names there are of each length, in example.test: w00 to w99.
const namesAsked = 100

// asked is the name with a number, of the same length as all others or of one of seven.
func asked(prefix string, i int, lengths bool) string {
	if lengths {
		return fmt.Sprintf("%s%02d%s.example.test", prefix, i, "xxxxxxx"[:i%7+1])
	}
	return fmt.Sprintf("%s%02d.example.test", prefix, i)
}

// serveCommand is Holdfast's DNS server as an agent runs it, with a view that does not change and without the rest of an agent. Rate
// limiting is on, but as all the load comes from one client, the limit is out of its reach unless another one is asked for.
func serveCommand(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	address := flags.String("address", "127.0.0.1", "service address")
	port := flags.Uint("port", 5300, "port")
	nodes := flags.Int("nodes", 7, "nodes of the pool")
	sockets := flags.Int("sockets", 0, "UDP sockets")
	limit := flags.Int("limit", 1e9, "responses a second to a client prefix; 0: as by default")
	counters := flags.String("counters", "", "address at which to tell the counters")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	at, err := netip.ParseAddr(*address)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	server := dns.NewServer(dns.Options{Port: uint16(*port), Sockets: *sockets, RateLimit: dns.RateLimit{PerSecond: *limit},
		OnAnswered: func(dns.Told) {}, Registerer: registry})
	defer server.Close()
	if *counters != "" {
		if err := tellCounters(*counters, registry); err != nil {
			return err
		}
	}
	server.SetView(poolView(at, *nodes))
	if err := server.Serve(context.Background(), []netip.Addr{at}); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	<-ended
	return nil
}

// poolView has one pool of so many nodes behind all the names that are asked for: the policy picks for each answer. The pools behind r00 to
// r99 have weights of 10, 20 and 30.
func poolView(service netip.Addr, nodes int) *dns.View {
	v := &dns.View{
		Ready: true, ServerTTL: 900 * time.Second, NegativeTTL: 5 * time.Second, Serial: 7,
		Services: []dns.Service{{Name: "ssip.example.test", Addresses: []netip.Addr{service}, All: []netip.Addr{service}}},
	}
	for _, prefix := range []string{"w", "r"} {
		pool := dns.Pool{ID: cluster.PoolID{Groupnet: "groupnet0", Subnet: "subnet0", Pool: prefix}, Policy: cluster.RoundRobin}
		for lnn := 1; lnn <= nodes; lnn++ {
			n := dns.Node{LNN: lnn, Name: fmt.Sprint("node", lnn), Weight: 1, Eligible: true}
			if prefix == "r" {
				n.Weight = 10 * (1 + lnn%3)
			}
			for i := range 3 {
				n.Addresses = append(n.Addresses, netip.AddrFrom4([4]byte{10, 10, byte(lnn), byte(1 + i)}))
			}
			pool.Nodes = append(pool.Nodes, n)
		}
		z := dns.Zone{Name: asked(prefix, 0, false), Service: "ssip.example.test", Pools: []dns.Pool{pool}}
		for i := range namesAsked {
			if i > 0 {
				z.Aliases = append(z.Aliases, asked(prefix, i, false))
			}
			z.Aliases = append(z.Aliases, asked(prefix, i, true))
		}
		v.Zones = append(v.Zones, z)
	}
	return v
}
