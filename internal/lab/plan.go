package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/holdfast/holdfast/internal/cluster"
)

// Kind says what a member of a lab is.
type Kind string

// The kinds of members.
const (
	KindNode     Kind = "node"     // runs an agent
	KindClient   Kind = "client"   // runs nothing by itself
	KindRouter   Kind = "router"   // forwards between what is attached to it
	KindResolver Kind = "resolver" // runs the recursive DNS server
	KindMachine  Kind = "machine"  // runs what a scenario tells it to, such as a session gateway or a server
)

// Plan is everything that is decided about a lab before anything is made. It is a plain value, and is kept in the
// lab's directory.
type Plan struct {
	Members  []Member       `json:"members"` // nodes, clients, machines, routers, resolver, in this order
	Cluster  string         `json:"cluster"` // the cluster's YAML, complete
	Name     string         `json:"name"`    // the cluster's name
	Resolver ResolverPlan   `json:"resolver"`
	Nodes    []cluster.Node `json:"-"`
}

// Member is one machine of a lab.
type Member struct {
	Name       string       `json:"name"`
	Kind       Kind         `json:"kind"`
	LNN        int          `json:"lnn,omitempty"`
	Interfaces []Interface  `json:"interfaces"`
	Gateways   []netip.Addr `json:"gateways,omitempty"` // default routes of a member that is not a node
}

// Interface is one interface of a member and the port of the switch that it is plugged into.
type Interface struct {
	Name      string         `json:"name"` // inside the member
	Port      string         `json:"port"` // the other end, at the switch
	MAC       string         `json:"mac"`  // the same in each life of the member
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Link      *Link          `json:"link,omitempty"` // nil: a plain veth
}

// ResolverPlan is what the resolver must know.
type ResolverPlan struct {
	Kind        Resolver     `json:"kind"`
	Address     netip.Addr   `json:"address"`
	Delegations []Delegation `json:"delegations"`
}

// Delegation hands one zone to the service addresses of a subnet.
type Delegation struct {
	Zone        string       `json:"zone"`
	ServiceName string       `json:"service_name"`
	Addresses   []netip.Addr `json:"addresses"`
}

// The addresses of the default network (10.10.0.0/24).
var (
	labNetwork      = netip.MustParsePrefix("10.10.0.0/24")
	resolverAddress = netip.MustParseAddr("10.10.0.2")
)

func labAddress(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 10, 0, byte(last)}) }

func nodeAddress(number int) netip.Addr   { return labAddress(10 + number) }
func clientAddress(number int) netip.Addr { return labAddress(200 + number) }

// machineAddress is 10.10.0.81 and up, which is beyond the last node.
func machineAddress(number int) netip.Addr { return labAddress(80 + number) }

// routerAddress is 10.10.0.1 for the first router, then 10.10.0.241 upwards.
func routerAddress(number int) netip.Addr {
	if number == 1 {
		return labAddress(1)
	}
	return labAddress(239 + number)
}

// Member returns the member of that name.
func (p *Plan) Member(name string) (Member, bool) {
	i := slices.IndexFunc(p.Members, func(m Member) bool { return m.Name == name })
	if i < 0 {
		return Member{}, false
	}
	return p.Members[i], true
}

// Names returns the names of the members of one kind.
func (p *Plan) Names(kind Kind) []string {
	var names []string
	for _, m := range p.Members {
		if m.Kind == kind {
			names = append(names, m.Name)
		}
	}
	return names
}

// BuildPlan decides about everything in the lab that file describes. It is pure.
func BuildPlan(file File) (*Plan, error) {
	text := clusterYAML(file)
	config, err := cluster.Parse("the cluster of the lab file", []byte(text))
	if err != nil {
		return nil, err
	}
	plan := &Plan{Cluster: text, Name: config.Settings.Name, Nodes: config.Nodes}
	plan.Resolver = ResolverPlan{Kind: file.Resolver, Address: resolverAddress, Delegations: delegations(config)}
	var gateways []netip.Addr
	if file.Routers > 0 {
		gateways = []netip.Addr{routerAddress(1)}
	}
	for _, node := range config.Nodes {
		plan.Members = append(plan.Members, nodeMember(config, node))
	}
	single := func(name string, kind Kind, address netip.Addr, gateways []netip.Addr) {
		eth0 := Interface{Name: "eth0", Addresses: []netip.Prefix{netip.PrefixFrom(address, labNetwork.Bits())}}
		plan.Members = append(plan.Members, Member{Name: name, Kind: kind, Interfaces: []Interface{eth0}, Gateways: gateways})
	}
	for i := 1; i <= file.Clients; i++ {
		single(fmt.Sprintf("client%d", i), KindClient, clientAddress(i), gateways)
	}
	for i, name := range file.Machines {
		single(name, KindMachine, machineAddress(i+1), gateways)
	}
	for i := 1; i <= file.Routers; i++ {
		single(fmt.Sprintf("router%d", i), KindRouter, routerAddress(i), nil)
	}
	if file.Resolver != ResolverNone {
		single("resolver", KindResolver, resolverAddress, gateways)
	}
	return plan, plan.wire(file.Links)
}

// nodeMember plugs every interface of a node into the switch. A node with as many cluster addresses as interfaces
// has one on each; otherwise all are on the first.
func nodeMember(config *cluster.Config, node cluster.Node) Member {
	names := node.Interfaces
	if len(names) == 0 {
		names = []string{"eth0"} // a witness hosts nothing, but must be reached
	}
	member := Member{Name: node.Name, Kind: KindNode, LNN: node.LNN}
	for _, name := range names {
		member.Interfaces = append(member.Interfaces, Interface{Name: name})
	}
	for i, address := range node.Addresses {
		at := 0
		if len(node.Addresses) == len(names) {
			at = i
		}
		to := &member.Interfaces[at]
		to.Addresses = append(to.Addresses, netip.PrefixFrom(address, prefixBits(config, address)))
	}
	return member
}

// prefixBits is the prefix length of the subnet that holds address, or that of an ordinary network.
func prefixBits(config *cluster.Config, address netip.Addr) int {
	for _, groupnet := range config.Groupnets {
		for _, subnet := range groupnet.Subnets {
			if subnet.CIDR.Contains(address) {
				return subnet.CIDR.Bits()
			}
		}
	}
	if address.Is4() {
		return 24
	}
	return 64
}

// wire gives every interface its port, MAC address and link, and checks that the names can be used.
func (p *Plan) wire(links map[string]Link) error {
	var faults []error
	number := 0
	seen := make(map[string]bool)
	for m := range p.Members {
		member := &p.Members[m]
		if seen[member.Name] || strings.ContainsAny(member.Name, "/ ") || strings.HasPrefix(member.Name, ".") {
			faults = append(faults, fmt.Errorf("%q cannot be the name of a member: it is taken or not a plain name", member.Name))
		}
		seen[member.Name] = true
		for i := range member.Interfaces {
			number++
			iface := &member.Interfaces[i]
			iface.Port = member.Name + "-" + iface.Name
			if len(iface.Port) > 14 { // IFNAMSIZ, less one letter for the inner half of a link with faults
				iface.Port = fmt.Sprintf("port%d", number)
			}
			iface.MAC = fmt.Sprintf("02:00:0a:0a:%02x:%02x", number>>8, number&0xff)
			if link, ok := links[member.Name]; ok {
				iface.Link = &link
			}
		}
	}
	for name := range links {
		if !seen[name] {
			faults = append(faults, fmt.Errorf("links: %s is not a member of this lab", name))
		}
	}
	return errors.Join(faults...)
}

// delegations lists the zones of all pools with the service addresses that answer for them.
func delegations(config *cluster.Config) []Delegation {
	var all []Delegation
	for _, groupnet := range config.Groupnets {
		for _, subnet := range groupnet.Subnets {
			for _, pool := range subnet.Pools {
				serving := subnet
				if i := slices.IndexFunc(groupnet.Subnets, func(s cluster.Subnet) bool { return s.Name == pool.ServiceSubnet }); i >= 0 {
					serving = groupnet.Subnets[i]
				}
				if pool.Zone == "" || serving.ServiceName == "" {
					continue
				}
				addresses := rangeAddresses(serving.ServiceAddrs)
				for _, zone := range append([]string{pool.Zone}, pool.ZoneAliases...) {
					all = addDelegation(all, Delegation{Zone: zone, ServiceName: serving.ServiceName, Addresses: addresses})
				}
			}
		}
	}
	return all
}

// addDelegation adds d; a zone that pools of two families share is delegated once, to the addresses of both.
func addDelegation(all []Delegation, d Delegation) []Delegation {
	i := slices.IndexFunc(all, func(have Delegation) bool { return strings.EqualFold(have.Zone, d.Zone) })
	if i < 0 {
		return append(all, d)
	}
	for _, address := range d.Addresses {
		if !slices.Contains(all[i].Addresses, address) {
			all[i].Addresses = append(slices.Clip(all[i].Addresses), address)
		}
	}
	return all
}

func rangeAddresses(ranges []cluster.Range) []netip.Addr {
	var all []netip.Addr
	for _, r := range ranges {
		for address := r.Low; address.IsValid() && address.Compare(r.High) <= 0 && len(all) < 32; address = address.Next() {
			all = append(all, address)
		}
	}
	return all
}

// HostsFile is the /etc/hosts of every member.
func (p *Plan) HostsFile() string {
	var out strings.Builder
	out.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for _, member := range p.Members {
		for _, iface := range member.Interfaces {
			for _, address := range iface.Addresses {
				fmt.Fprintf(&out, "%s %s\n", address.Addr(), member.Name)
			}
		}
	}
	return out.String()
}
