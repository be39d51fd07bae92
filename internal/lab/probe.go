package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// probeReport is what `lab probe` says when asked.
type probeReport struct {
	Sent      int                `json:"sent"`
	Received  int                `json:"received"`
	LongestMS map[string]float64 `json:"longest_ms"` // longest time without an answer since the last reset, by address
	LastMS    map[string]float64 `json:"last_ms"`    // time since the last answer, by address
}

// probeCommand sends echo requests (RFC 792) to addresses without pause and measures how long each does not answer.
func probeCommand() *cobra.Command {
	interval := 5 * time.Millisecond
	command := &cobra.Command{
		Use: "probe ADDRESS...", Short: "Measure for how long addresses do not answer", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			p := &prober{interval: interval}
			for _, argument := range arguments {
				address, err := netip.ParseAddr(argument)
				if err != nil || !address.Is4() {
					return fmt.Errorf("%q is not an IPv4 address", argument)
				}
				p.addresses = append(p.addresses, address)
			}
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			if err := p.start(ctx); err != nil {
				return err
			}
			return answerLines(c.InOrStdin(), c.OutOrStdout(), func(line string) any {
				if line == "reset" {
					p.reset()
				}
				return p.now()
			})
		},
	}
	command.Flags().DurationVar(&interval, "interval", interval, "between two probes of one address")
	return command
}

// prober sends and counts. Safe for concurrent use once started.
type prober struct {
	interval  time.Duration
	addresses []netip.Addr
	socket    *net.IPConn

	mu     sync.Mutex
	report probeReport
	last   map[netip.Addr]time.Time // when the last answer came
}

func (p *prober) start(ctx context.Context) error {
	socket, err := net.ListenIP("ip4:icmp", nil)
	if err != nil {
		return fmt.Errorf("probing needs raw sockets (CAP_NET_RAW): %w", err)
	}
	context.AfterFunc(ctx, func() { socket.Close() })
	p.socket = socket
	p.reset()
	go p.receive()
	go p.send(ctx)
	return nil
}

func (p *prober) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = probeReport{LongestMS: make(map[string]float64)}
	p.last = make(map[netip.Addr]time.Time)
	for _, address := range p.addresses {
		p.last[address] = time.Now()
	}
}

// now includes the silence that goes on.
func (p *prober) now() probeReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := probeReport{Sent: p.report.Sent, Received: p.report.Received, LongestMS: make(map[string]float64), LastMS: make(map[string]float64)}
	for _, address := range p.addresses {
		silence := milliseconds(time.Since(p.last[address]))
		r.LastMS[address.String()] = silence
		r.LongestMS[address.String()] = max(silence, p.report.LongestMS[address.String()])
	}
	return r
}

func (p *prober) send(ctx context.Context) {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for number := uint16(0); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		packet := echoRequest(uint16(os.Getpid()), number)
		for _, address := range p.addresses {
			_, _ = p.socket.WriteToIP(packet, &net.IPAddr{IP: address.AsSlice()}) // no way there is the same as no answer
		}
		p.mu.Lock()
		p.report.Sent += len(p.addresses)
		p.mu.Unlock()
	}
}

func (p *prober) receive() {
	buffer := make([]byte, 1500)
	for {
		n, from, err := p.socket.ReadFromIP(buffer)
		if err != nil {
			return
		}
		address, ok := netip.AddrFromSlice(from.IP.To4())
		if ok && n >= 8 && buffer[0] == 0 && binary.BigEndian.Uint16(buffer[4:]) == uint16(os.Getpid()) {
			p.answered(address, time.Now())
		}
	}
}

func (p *prober) answered(address netip.Addr, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[address]
	if !known {
		return
	}
	p.report.Received++
	p.last[address] = now
	name := address.String()
	p.report.LongestMS[name] = max(p.report.LongestMS[name], milliseconds(now.Sub(last)))
}

// echoRequest is an ICMP echo request without data (RFC 792), with its checksum (RFC 1071).
func echoRequest(identifier, number uint16) []byte {
	packet := make([]byte, 8)
	packet[0] = 8
	binary.BigEndian.PutUint16(packet[4:], identifier)
	binary.BigEndian.PutUint16(packet[6:], number)
	sum := uint32(packet[0])<<8 + uint32(identifier) + uint32(number)
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(packet[2:], ^uint16(sum))
	return packet
}
