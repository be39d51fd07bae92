package cluster

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// frame is one announcement that a capture caught: an ARP packet, or a neighbour advertisement.
type frame struct {
	at       time.Time
	from, to string // MACs of the Ethernet header
	kind     string // "request", "reply", "advertisement"
	mac      string // that the packet names for address
	address  netip.Addr
	target   netip.Addr // ARP: who is asked for
	override bool       // advertisements
}

// announces says whether the frame tells everybody that address is at mac, by itself rather than as an answer to somebody.
func (f frame) announces(address, mac string) bool {
	broadcast := f.to == "ff:ff:ff:ff:ff:ff" || f.to == "33:33:00:00:00:01"
	return broadcast && f.address.String() == address && f.mac == mac && f.from == mac && f.target == f.address
}

// capture is a running tcpdump.
type capture struct {
	file    string
	program *program
}

// needCapture skips a test where tcpdump cannot run.
func needCapture(t *testing.T) {
	t.Helper()
	need(t, "tcpdump:tcpdump")
	if os.Getuid() != 0 {
		t.Skip("tcpdump insists on changing its user, which the user namespace of an ordinary user does not permit: run as root to see captures")
	}
}

// capture starts tcpdump on a member for ARP and ICMPv6, and what else filter says.
func (l *lab) capture(t *testing.T, member string, filter ...string) *capture {
	t.Helper()
	needCapture(t)
	c := &capture{file: filepath.Join(t.TempDir(), "frames.pcap")}
	ready := c.file + ".said"
	rules := strings.Join(append([]string{"arp", "icmp6"}, filter...), " or ")
	c.program = l.start(t, member, "sh", "-c", `exec tcpdump -Z root -U -s 256 -i eth0 -w "$0" "$1" 2>"$2"`, c.file, rules, ready)
	eventually(t, "tcpdump listens on "+member, func() error {
		said, err := os.ReadFile(ready)
		if err == nil && !strings.Contains(string(said), "listening on") {
			err = fmt.Errorf("it says %q", said)
		}
		if err != nil && !c.program.running() {
			t.Fatalf("tcpdump ended: %s %s", said, c.program.output)
		}
		return err
	})
	return c
}

// packets reads the Ethernet frames that were caught so far.
func (c *capture) packets(t *testing.T) (packets [][]byte, times []time.Time) {
	t.Helper()
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	const fileHeader, packetHeader = 24, 16
	if len(data) < fileHeader {
		return nil, nil
	}
	for data = data[fileHeader:]; len(data) >= packetHeader; {
		length := int(binary.LittleEndian.Uint32(data[8:]))
		if len(data) < packetHeader+length {
			break // not written whole yet
		}
		times = append(times, time.Unix(int64(binary.LittleEndian.Uint32(data)), int64(binary.LittleEndian.Uint32(data[4:]))*1000))
		packets = append(packets, data[packetHeader:packetHeader+length])
		data = data[packetHeader+length:]
	}
	return packets, times
}

// frames is packets as announcements.
func (c *capture) frames(t *testing.T) []frame {
	t.Helper()
	packets, times := c.packets(t)
	var frames []frame
	for i, packet := range packets {
		if f, ok := parseFrame(packet); ok {
			f.at = times[i]
			frames = append(frames, f)
		}
	}
	return frames
}

// parseFrame reads ARP (RFC 826) and neighbour advertisements (RFC 4861 section 4.4).
func parseFrame(packet []byte) (frame, bool) {
	if len(packet) < 42 {
		return frame{}, false
	}
	mac := func(b []byte) string { return net.HardwareAddr(b[:6]).String() }
	f := frame{to: mac(packet), from: mac(packet[6:])}
	body := packet[14:]
	switch binary.BigEndian.Uint16(packet[12:]) {
	case 0x0806:
		f.kind = map[uint16]string{1: "request", 2: "reply"}[binary.BigEndian.Uint16(body[6:])]
		f.mac = mac(body[8:])
		f.address, f.target = netip.AddrFrom4([4]byte(body[14:18])), netip.AddrFrom4([4]byte(body[24:28]))
		return f, f.kind != ""
	case 0x86dd:
		const header, advertisement = 40, 136
		if len(body) < header+32 || body[6] != 58 || body[header] != advertisement || body[header+24] != 2 {
			return frame{}, false
		}
		f.kind, f.override = "advertisement", body[header+4]&0x20 != 0
		f.address, f.mac = netip.AddrFrom16([16]byte(body[header+8:header+24])), mac(body[header+26:])
		f.target = f.address
		return f, true
	}
	return frame{}, false
}

// mac is the address of a node's card.
func (l *lab) mac(t *testing.T, node string) string {
	t.Helper()
	out := l.must(t, node, "cat", "/sys/class/net/eth0/address")
	return strings.TrimSpace(out)
}
