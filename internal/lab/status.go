package lab

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Status is what `lab status --output json` prints.
type Status struct {
	Directory string         `json:"directory"`
	Cluster   string         `json:"cluster"`
	Switch    string         `json:"switch"` // on or off
	Partition [][]string     `json:"partition,omitempty"`
	Members   []MemberStatus `json:"members"`
}

// MemberStatus is the state of one member.
type MemberStatus struct {
	Name      string               `json:"name"`
	Kind      Kind                 `json:"kind"`
	LNN       int                  `json:"lnn,omitempty"`
	Addresses []string             `json:"addresses"`
	State     string               `json:"state"`             // on, off, frozen or crashed
	Link      string               `json:"link"`              // up, cut (frames are dropped; "cut out" or "cut in" in one direction) or down (no carrier)
	Service   string               `json:"service,omitempty"` // what runs in it: "agent running", "resolver ended with exit code 1"
	Guard     string               `json:"guard,omitempty"`   // "running", or how it ended; empty where there is none
	Wires     map[string]LinkCount `json:"faults,omitempty"`  // by interface, for links with faults
}

// LinkCount counts what a link with faults did in each direction.
type LinkCount struct {
	Out WireCount `json:"out"`
	In  WireCount `json:"in"`
}

// status describes the lab. It is called with the host's lock held.
func (h *host) status() *Status {
	s := &Status{Directory: string(h.Dir), Cluster: h.plan.Name, Switch: "on"}
	if h.off {
		s.Switch = "off"
	}
	for _, ports := range h.filter.Partition {
		var names []string
		for _, member := range h.plan.Members {
			if slices.Contains(ports, member.Interfaces[0].Port) {
				names = append(names, member.Name)
			}
		}
		s.Partition = append(s.Partition, names)
	}
	for _, member := range h.plan.Members {
		s.Members = append(s.Members, h.members[member.Name].status())
	}
	return s
}

func (m *machine) status() MemberStatus {
	s := MemberStatus{Name: m.Name, Kind: m.Kind, LNN: m.LNN, State: "off", Link: "up", Addresses: []string{}}
	for _, iface := range m.Interfaces {
		for _, address := range iface.Addresses {
			s.Addresses = append(s.Addresses, address.Addr().String())
		}
	}
	switch {
	case !m.on || m.carrierDown || m.switchDown:
		s.Link = "down"
	case slices.Contains(m.host.filter.Cut, m.Interfaces[0].Port):
		s.Link = "cut"
	case slices.Contains(m.host.filter.Mute, m.Interfaces[0].Port):
		s.Link = "cut out"
	case slices.Contains(m.host.filter.Deaf, m.Interfaces[0].Port):
		s.Link = "cut in"
	}
	if !m.on {
		return s
	}
	s.State = "on"
	if m.frozen {
		s.State = "frozen"
	}
	m.line.mu.Lock()
	if m.line.gone {
		s.State = "crashed"
	}
	m.line.mu.Unlock()
	for _, service := range append(m.hostedNames(), serviceAgent, serviceResolver) {
		if how, known := m.line.state(service); known {
			if s.Service != "" {
				s.Service += ", "
			}
			s.Service += service + " " + firstOf(how, "running")
		}
	}
	if how, known := m.line.state(serviceGuard); known {
		s.Guard = firstOf(how, "running")
	}
	for i, w := range m.wires {
		if s.Wires == nil {
			s.Wires = make(map[string]LinkCount)
		}
		s.Wires[m.Interfaces[i].Name] = LinkCount{Out: w.out.counts(), In: w.in.counts()}
	}
	return s
}

// runs is what runs in a member, for people.
func (m MemberStatus) runs() string {
	if m.Guard == "" {
		return m.Service
	}
	return m.Service + ", guard " + m.Guard
}

// table prints s for people.
func (s *Status) table(out io.Writer) error {
	fmt.Fprintf(out, "cluster %s in %s, switch %s\n", s.Cluster, s.Directory, s.Switch)
	if len(s.Partition) > 0 {
		var groups []string
		for _, group := range s.Partition {
			groups = append(groups, strings.Join(group, ","))
		}
		fmt.Fprintf(out, "partition %s\n", strings.Join(groups, " / "))
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nNAME\tKIND\tADDRESS\tSTATE\tLINK\tRUNS")
	for _, m := range s.Members {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Kind, strings.Join(m.Addresses, " "), m.State, m.Link, m.runs())
	}
	return table.Flush()
}
