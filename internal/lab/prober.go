package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// prober sends and counts. Safe for concurrent use once started.
type prober struct {
	interval  time.Duration // between two rounds
	every     uint32        // rounds, for an address that is not watched
	addresses []netip.Addr
	echo      *ipv4.PacketConn // ICMP
	datagrams *ipv4.PacketConn // UDP

	mu       sync.Mutex
	round    uint32
	sent     int
	received int
	last     time.Time     // when the last round was sent
	pause    time.Duration // longest between two of them
	silences map[netip.Addr]*silence
	watched  map[netip.Addr]*watched
	unwatch  context.CancelFunc // ends the idle clients
	services map[netip.Addr]*service
	query    []byte // what service addresses are asked, but for its number
}

// service is a service address.
type service struct {
	silence silence // of its answers to queries
	watched bool
}

// watched is an address that is looked at more closely.
type watched struct {
	silence silence // of its datagrams' echoes
	tally   tally
	began   time.Time // when the longest silence began
	client  idleClient
}

func (p *prober) start(ctx context.Context) error {
	echo, err := net.ListenIP("ip4:icmp", nil)
	if err != nil {
		return fmt.Errorf("probing needs raw sockets (CAP_NET_RAW): %w", err)
	}
	datagrams, err := net.ListenUDP("udp4", nil)
	if err != nil {
		echo.Close()
		return fmt.Errorf("probing: %w", err)
	}
	context.AfterFunc(ctx, func() { echo.Close(); datagrams.Close() })
	p.echo, p.datagrams, p.unwatch = ipv4.NewPacketConn(echo), ipv4.NewPacketConn(datagrams), func() {}
	_ = echo.SetReadBuffer(1 << 20) // what does not fit counts as lost, so there is room for a slow reader
	_ = datagrams.SetReadBuffer(1 << 20)
	if err := errors.Join(stampArrivals(echo), stampArrivals(datagrams)); err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	p.reset()
	go readPackets(p.echo, p.answeredEcho)
	go readPackets(p.datagrams, p.answeredDatagram)
	go p.send(ctx)
	return nil
}

// watch looks at some of the addresses more closely, and no more at those that it watched before.
func (p *prober) watch(ctx context.Context, names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwatch()
	ctx, p.unwatch = context.WithCancel(ctx)
	p.watched = map[netip.Addr]*watched{}
	for address, one := range p.services {
		one.watched = slices.Contains(names, address.String())
	}
	for _, address := range p.addresses {
		if slices.Contains(names, address.String()) {
			one := &watched{client: idleClient{address: address}}
			p.watched[address] = one
			go one.client.run(ctx)
		}
	}
	p.begin()
}

func (p *prober) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
}

// begin counts anew. p.mu is held.
func (p *prober) begin() {
	now := time.Now()
	p.sent, p.received, p.pause = 0, 0, 0
	p.silences = make(map[netip.Addr]*silence)
	for _, address := range p.addresses {
		p.silences[address] = &silence{last: now}
	}
	for _, one := range p.services {
		one.silence = silence{last: now}
	}
	for _, one := range p.watched {
		one.silence, one.tally = silence{last: now}, tally{next: p.round + 1}
		one.client.reset()
	}
}

// now includes the silence that goes on.
func (p *prober) now() probeReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	r := probeReport{Sent: p.sent, Received: p.received, PauseMS: milliseconds(p.pause), LongestMS: make(map[string]float64), LastMS: make(map[string]float64)}
	for _, address := range p.addresses {
		s := *p.silences[address]
		one := p.watched[address]
		if one != nil {
			if r.Watched == nil {
				r.Watched = make(map[string]watchedReport)
			}
			r.Watched[address.String()] = one.report()
		}
		r.LastMS[address.String()] = milliseconds(now.Sub(s.last))
		r.LongestMS[address.String()] = milliseconds(s.until(now))
	}
	for address, one := range p.services {
		if r.Services == nil {
			r.Services = make(map[string]serviceReport)
		}
		r.Services[address.String()] = serviceReport{LongestMS: milliseconds(one.silence.until(now)), LastMS: milliseconds(now.Sub(one.silence.last)), Watched: one.watched}
	}
	return r
}

// report says what has become of the address for a client that uses it, since the last reset.
func (w *watched) report() watchedReport {
	node, broke, stands := w.client.state()
	r := watchedReport{Answers: w.client.answered(), Lost: len(w.tally.lost), Node: node, Broke: !broke.IsZero(), LastMS: milliseconds(time.Since(w.silence.last))}
	if r.Broke && node != "" {
		if began := w.began; len(w.tally.lost) > 0 && began.Before(broke) {
			broke = began
		}
		r.ReconnectMS = milliseconds(stands.Sub(broke))
	}
	return r
}

// send sends a round of probes each interval. One that is late is not made up for: nobody gains by a burst.
func (p *prober) send(ctx context.Context) {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		echoes, datagrams := p.nextRound(time.Now())
		sendAll(p.echo, echoes)
		sendAll(p.datagrams, datagrams)
	}
}

// nextRound makes the packets of one round.
func (p *prober) nextRound(now time.Time) (echoes, datagrams []ipv4.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
	if !p.last.IsZero() {
		p.pause = max(p.pause, now.Sub(p.last))
	}
	p.last = now
	request, datagram := [][]byte{echoRequest(p.round)}, [][]byte{datagramOf(p.round)}
	for _, address := range p.addresses {
		if p.watched[address] != nil {
			datagrams = append(datagrams, ipv4.Message{Buffers: datagram, Addr: &net.UDPAddr{IP: address.AsSlice(), Port: echoPort}})
		} else if p.round%p.every != 0 {
			continue
		}
		echoes = append(echoes, ipv4.Message{Buffers: request, Addr: &net.IPAddr{IP: address.AsSlice()}})
	}
	for address, one := range p.services {
		if one.watched || p.round%p.every == 0 {
			datagrams = append(datagrams, ipv4.Message{Buffers: [][]byte{numbered(p.query, p.round)}, Addr: &net.UDPAddr{IP: address.AsSlice(), Port: dnsPort}})
		}
	}
	p.sent += len(echoes) + len(datagrams)
	return echoes, datagrams
}

// answeredEcho takes in an answer to an echo request.
func (p *prober) answeredEcho(from netip.Addr, packet []byte, at time.Time) {
	if !isEchoReply(packet) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.silences[from]; s != nil {
		p.received++
		s.answered(at)
	}
}

// answeredDatagram takes in an echo of a datagram, or the answer to a query.
func (p *prober) answeredDatagram(from netip.Addr, packet []byte, at time.Time) {
	if p.answeredQuery(from, packet, at) {
		return
	}
	number, ok := numberOf(packet)
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.watched[from]
	if one == nil || !ok {
		return
	}
	p.received++
	before := one.silence
	one.silence.answered(at)
	if one.silence.longest > before.longest {
		one.began = before.last
	}
	one.tally.answered(number)
}
