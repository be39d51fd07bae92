package cluster

import "net/netip"

func (v *validator) nodes() {
	at := place{"nodes", "nodes"}
	numbers := map[int]int{}
	type owned struct {
		node int
		at   place
	}
	addresses := map[netip.Addr]owned{}
	for i := range v.c.Nodes {
		n := &v.c.Nodes[i]
		here := at.object(place{}, i, n.Name, false)
		if first, dup := numbers[n.LNN]; dup && n.LNN != 0 {
			v.collision(here.field("lnn"), at.item(first).field("lnn"), "%d is the number of %s too; every node has one of its own", n.LNN, v.c.Nodes[first].Name)
		} else {
			numbers[n.LNN] = i
		}
		if n.Witness && n.Voter == VoterFalse {
			v.fault(here.field("voter"), "a witness is a voter; remove the setting, or make the node an ordinary one")
		}
		if n.Witness && len(n.Interfaces) > 0 {
			v.warn(here.field("interfaces"), "a witness hosts nothing; its interfaces are not used")
		}
		if len(n.Addresses) == 0 && len(v.c.Nodes) > 1 {
			v.warn(here, "has no addresses; the other nodes cannot reach it")
		}
		for j, a := range n.Addresses {
			where := here.field("addresses").item(j)
			if first, dup := addresses[a]; dup && a.IsValid() && first.node != i {
				v.collision(where, first.at, "%s is an address of %s too", a, v.c.Nodes[first.node].Name)
			} else if !dup {
				addresses[a] = owned{i, where}
			}
		}
	}
}

// voters checks that the embedded store has members, and warns where their number protects less than it costs.
func (v *validator) voters() {
	at := place{"nodes", "nodes"}
	if v.broken(at) || len(v.c.Nodes) == 0 {
		return
	}
	explicit, open := 0, 0
	for i := range v.c.Nodes {
		switch n := &v.c.Nodes[i]; {
		case n.Witness || n.Voter == VoterTrue:
			explicit++
		case n.Voter == VoterAuto:
			open++
		}
	}
	if len(v.c.Settings.StoreEndpoints) > 0 {
		for i := range v.c.Nodes {
			if n := &v.c.Nodes[i]; n.Voter == VoterTrue {
				v.warn(at.object(place{}, i, n.Name, false).field("voter"), "has no effect: cluster.store.endpoints names an external store")
			}
		}
		return
	}
	voters := len(v.c.Voters())
	switch {
	case explicit+open == 0:
		v.fault(at, "no node may host the store; remove voter: false from one, three or five of them")
	case explicit > MaxVoters:
		v.fault(at, "%d nodes are voters or witnesses; the store has one, three or five members", explicit)
	case voters%2 == 0:
		v.warn(at, "the store has %d members, and stops when %d of them are lost, as it would with %d; make it one, three or five", voters, voters/2, voters-1)
	case len(v.c.Nodes) == 2 && v.c.Settings.NoWitness: // noWitness says what that means
	case len(v.c.Nodes) == 2:
		v.warn(at, "with two nodes the second hosts nothing, and nothing moves when the first is lost; add a third node, or a witness")
	case voters == 1 && len(v.c.Nodes) > 2:
		v.warn(at, "the store has one member; while its node is down nothing can be changed; allow three")
	}
}
