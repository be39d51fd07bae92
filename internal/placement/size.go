package placement

// maxPoolAddresses is as far as Size looks for a fitting number: no pool may have more addresses.
const maxPoolAddresses = 4096

// SizeRequest asks how a dynamic pool with equal weights fares when nodes die.
type SizeRequest struct {
	Nodes         int
	Addresses     int
	Clients       int     // spread evenly over the addresses
	WithinPercent float64 // how far above the even share the most loaded node may be, in percent; 0: not at all
}

// Sizing is the answer of Size.
type Sizing struct {
	Recommended int     // N*(N-1): each address of a dead node has a survivor of its own, and all hold the same before and after
	Losses      [3]Loss // with no, one and two nodes lost

	// Needed is the smallest number of addresses, not below the present one and the number of nodes, with which no node is
	// beyond WithinPercent, before a loss and after one; NeededForTwo, also after two. With 0 percent Needed is N*(N-1) or
	// a multiple. 0: no number up to 4096, the most that a pool may have, is enough, or there are too few nodes.
	Needed, NeededForTwo int

	Notes []string // what is unwise about the numbers, in sentences
}

// Loss is the state after some nodes died one after the other, each one's addresses having gone to its nexts.
type Loss struct {
	Lost             int     // nodes that died
	Groups           []Group // survivors with equal load together, the most loaded first; empty when none survives
	WorstOverPercent float64 // how far the most loaded survivor is above the even share of clients, in percent
}

// Group is a number of nodes with the same load.
type Group struct {
	Nodes     int
	Addresses int     // of each of the nodes
	Clients   float64 // of each of the nodes
}

// Size computes the sizing of a pool. Numbers below zero count as zero.
func Size(req SizeRequest) Sizing {
	nodes, addresses, clients := max(req.Nodes, 0), max(req.Addresses, 0), max(req.Clients, 0)
	within := req.WithinPercent
	if !(within > 0) {
		within = 0
	}
	sizing := Sizing{Recommended: nodes * max(nodes-1, 0)}
	for lost := range sizing.Losses {
		sizing.Losses[lost] = spreadAfter(lost, nodes-lost, addresses, clients)
	}
	sizing.Needed = fewestWithin(within, nodes, addresses, 1)
	sizing.NeededForTwo = fewestWithin(within, nodes, addresses, 2)
	if addresses < nodes {
		sizing.Notes = append(sizing.Notes, "There are fewer addresses than nodes: some nodes hold none.")
	}
	if clients > 0 && addresses > clients {
		sizing.Notes = append(sizing.Notes, "There are more addresses than clients: those beyond serve nobody.")
	}
	if nodes == 1 {
		sizing.Notes = append(sizing.Notes, "With one node there is nobody to take over.")
	}
	return sizing
}

// spreadAfter is the even spread over the survivors. Nexts keep a spread even, so that it does not matter in which order
// the nodes died.
func spreadAfter(lost, survivors, addresses, clients int) Loss {
	loss := Loss{Lost: lost}
	if survivors <= 0 {
		return loss
	}
	each, more := addresses/survivors, addresses%survivors
	perAddress := 0.0
	if addresses > 0 {
		perAddress = float64(clients) / float64(addresses)
	}
	group := func(nodes, addresses int) {
		if nodes > 0 {
			loss.Groups = append(loss.Groups, Group{Nodes: nodes, Addresses: addresses, Clients: float64(addresses) * perAddress})
		}
	}
	group(more, each+1)
	group(survivors-more, each)
	if addresses > 0 {
		loss.WorstOverPercent = overEven(survivors, addresses)
	}
	return loss
}

// overEven is how far the survivor with most addresses is above the even share, in percent.
func overEven(survivors, addresses int) float64 {
	most := (addresses + survivors - 1) / survivors
	return 100 * float64(most*survivors-addresses) / float64(addresses)
}

// fewestWithin looks for the number of addresses that Sizing.Needed describes.
func fewestWithin(percent float64, nodes, addresses, losses int) int {
	if nodes <= losses {
		return 0
	}
	for count := max(addresses, nodes, 1); count <= maxPoolAddresses; count++ {
		fits := true
		for lost := 0; lost <= losses && fits; lost++ {
			fits = overEven(nodes-lost, count) <= percent
		}
		if fits {
			return count
		}
	}
	return 0
}
