package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Honest clients, and how often they ask.
const (
	withCookie    = "cookie"    // over UDP, with a cookie of the server
	withoutCookie = "plain"     // over UDP, without
	neighbour     = "neighbour" // over UDP, without a cookie, from the /24 that floods claim to come from
	overTCP       = "tcp"       // a connection for each query
)

const (
	honestEvery       = 5 * time.Millisecond // over UDP
	connectEvery      = 50 * time.Millisecond
	honestPatience    = time.Second // until a query counts as lost
	patienceForServer = 10 * time.Second
)

// honest is what one honest client saw. A resolver would have asked again what was lost here.
type honest struct {
	Asked    int     `json:"asked"`
	Answered int     `json:"answered"`
	Led      int     `json:"led"` // told to come over TCP or with the cookie that it was given
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
}

// lost is the share of queries that were neither answered nor led elsewhere.
func (h honest) lost() float64 { return 1 - float64(h.Answered+h.Led)/float64(max(h.Asked, 1)) }

// client asks from an address of its own.
type client struct {
	kind  string
	from  netip.Addr
	to    netip.AddrPort
	query []byte
	mu    sync.Mutex
	seen  honest
	took  []time.Duration
}

// question is a query of one question, with an OPT record if there is room for so large responses, and options in it.
func question(name string, qtype uint16, size uint16, options []byte) []byte {
	m := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	m = append(m, wireName(name)...)
	m = binary.BigEndian.AppendUint16(m, qtype)
	m = append(m, 0, 1)
	if size > 0 {
		m[11] = 1
		m = append(m, 0, 0, 41)
		m = binary.BigEndian.AppendUint16(m, size)
		m = append(m, 0, 0, 0, 0)
		m = binary.BigEndian.AppendUint16(m, uint16(len(options)))
		m = append(m, options...)
	}
	return m
}

// askUDP asks for a while at a steady rate.
func (c *client) askUDP(length time.Duration) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0)), net.UDPAddrFromAddrPort(c.to))
	if err != nil {
		return err
	}
	defer conn.Close()
	var mu sync.Mutex
	sent := map[uint16]time.Time{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answer := make([]byte, 2048)
		for {
			n, err := conn.Read(answer)
			if err != nil {
				if errors.Is(err, net.ErrClosed) || isTimeout(err) {
					return
				}
				continue
			}
			mu.Lock()
			at, mine := sent[binary.BigEndian.Uint16(answer)]
			delete(sent, binary.BigEndian.Uint16(answer))
			mu.Unlock()
			if mine {
				c.heard(answer[:n], time.Since(at))
			}
		}
	}()
	began := time.Now()
	query := slices.Clone(c.query)
	for id := uint16(1); time.Since(began) < length; id++ {
		time.Sleep(time.Until(began.Add(time.Duration(id) * honestEvery)))
		binary.BigEndian.PutUint16(query, id)
		mu.Lock()
		sent[id] = time.Now()
		mu.Unlock()
		c.seen.Asked++
		_, _ = conn.Write(query) // a full buffer is a loss like any other
	}
	for late := time.Now().Add(honestPatience); time.Now().Before(late); time.Sleep(honestEvery) {
		mu.Lock()
		left := len(sent)
		mu.Unlock()
		if left == 0 {
			break
		}
	}
	_ = conn.SetReadDeadline(time.Unix(1, 0))
	<-ended
	return nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// heard takes in a response.
func (c *client) heard(m []byte, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(m) >= 12 && m[3]&0xf == 0 && m[2]&2 == 0 && binary.BigEndian.Uint16(m[6:]) > 0:
		c.seen.Answered++
		c.took = append(c.took, after)
	case len(m) >= 12 && (m[2]&2 != 0 || m[3]&0xf == 7): // TC, or BADCOOKIE, of which the lower bits are 7
		c.seen.Led++
	}
}

// askTCP asks for a while over connections.
func (c *client) askTCP(length time.Duration) {
	began := time.Now()
	var under sync.WaitGroup
	for i := 1; time.Since(began) < length; i++ {
		time.Sleep(time.Until(began.Add(time.Duration(i) * connectEvery)))
		c.seen.Asked++
		under.Go(func() {
			at := time.Now()
			if m, err := c.connect(); err == nil {
				c.heard(m, time.Since(at))
			}
		})
	}
	under.Wait()
}

// connect asks once over a connection.
func (c *client) connect() ([]byte, error) {
	dialer := net.Dialer{Timeout: honestPatience, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 0))}
	conn, err := dialer.Dial("tcp", c.to.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(honestPatience))
	if _, err := conn.Write(framed(c.query)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err = io.ReadFull(conn, m)
	return m, err
}

// framed puts its length before a message.
func framed(m []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
}

// learn asks over TCP until the server answers, and takes its cookie.
func (c *client) learn() error {
	const option, clientCookie = "\x00\x0a", "honestly"
	proposed := option + "\x00\x08" + clientCookie
	c.query = question(asked("w", 0, false), 1, 1232, []byte(proposed))
	for late := time.Now().Add(patienceForServer); ; time.Sleep(50 * time.Millisecond) {
		m, err := c.connect()
		if err == nil && len(m) > 24 {
			// The OPT record with its only option is the last: both cookies end the message.
			c.query = question(asked("w", 0, false), 1, 1232, slices.Concat([]byte(option+"\x00\x18"), m[len(m)-24:]))
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("%v does not answer: %w", c.to, err)
		}
	}
}

// honestClients are those that ask a server; it has to answer by now, or soon.
func honestClients(g *ground) ([]*client, error) {
	plain := question(asked("w", 0, false), 1, 1232, nil)
	first := g.honest.Addr().Next()
	clients := []*client{
		{kind: withCookie, from: first, to: g.service},
		{kind: withoutCookie, from: first.Next(), to: g.service, query: plain},
		{kind: neighbour, from: g.neighbour, to: g.service, query: plain},
		{kind: overTCP, from: first, to: g.service, query: plain},
	}
	return clients, clients[0].learn()
}

// ask has all of them ask for a while.
func ask(clients []*client, length time.Duration) (map[string]honest, error) {
	faults := make([]error, len(clients))
	var under sync.WaitGroup
	for i, c := range clients {
		c.seen, c.took = honest{}, nil
		under.Go(func() {
			if c.kind == overTCP {
				c.askTCP(length)
				return
			}
			faults[i] = c.askUDP(length)
		})
	}
	under.Wait()
	out := map[string]honest{}
	for _, c := range clients {
		slices.Sort(c.took)
		if n := len(c.took); n > 0 {
			c.seen.P50, c.seen.P99 = float64(c.took[n/2].Nanoseconds())/1e3, float64(c.took[(n-1)*99/100].Nanoseconds())/1e3
		}
		out[c.kind] = c.seen
	}
	return out, errors.Join(faults...)
}
