package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tellCounters tells whoever connects how the counters stand.
func tellCounters(address string, registry prometheus.Gatherer) error {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = json.NewEncoder(c).Encode(countersOf(registry))
			c.Close()
		}
	}()
	return nil
}

// countersOf are all counters that are not zero, by name and label.
func countersOf(registry prometheus.Gatherer) map[string]float64 {
	out := map[string]float64{}
	families, _ := registry.Gather()
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "holdfast_dns_")
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if v := m.GetCounter().GetValue(); v != 0 {
				out[name] = v
			}
		}
	}
	return out
}

// kernelCounters are those of this network namespace that tell where packets were lost or connections put off.
var kernelCounters = map[string][]string{
	"/proc/net/snmp":    {"Udp: RcvbufErrors", "Udp: SndbufErrors"},
	"/proc/net/netstat": {"TcpExt: SyncookiesSent", "TcpExt: ListenOverflows", "TcpExt: TCPReqQFullDrop"},
}

// countersNow are those of the server and of the kernel.
func countersNow(server string) (map[string]float64, error) {
	c, err := net.DialTimeout("tcp4", server, patienceForServer)
	if err != nil {
		return nil, fmt.Errorf("asking the server for its counters: %w", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patienceForServer))
	out := map[string]float64{}
	if err := json.NewDecoder(c).Decode(&out); err != nil {
		return nil, fmt.Errorf("reading the server's counters: %w", err)
	}
	for file, wanted := range kernelCounters {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all := parseKernel(string(text))
		for _, name := range wanted {
			out["kernel "+strings.Fields(name)[1]] = all[name]
		}
	}
	return out, nil
}

// parseKernel reads the counters of /proc/net/snmp and its like: a line of names, then one of numbers.
func parseKernel(text string) map[string]float64 {
	out := map[string]float64{}
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, numbers := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k := 1; k < min(len(names), len(numbers)); k++ {
			out[names[0]+" "+names[k]], _ = strconv.ParseFloat(numbers[k], 64)
		}
	}
	return out
}

// risen is by how much counters rose.
func risen(before, after map[string]float64) map[string]float64 {
	out := maps.Clone(after)
	for name, was := range before {
		out[name] -= was
	}
	maps.DeleteFunc(out, func(_ string, by float64) bool { return by == 0 })
	return out
}
