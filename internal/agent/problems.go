package agent

import "github.com/holdfast/holdfast/internal/problem"

var (
	problemNodeDown = problem.Define(problem.Kind{
		Code: "node.down", Severity: problem.Error,
		Meaning: "A node of the cluster is down; what it held is with others.",
		Remedy:  "Find out why with `holdfast explain NODE` and that machine's own logs; start it, or take it out of the configuration.",
	})
	problemNodeUnfit = problem.Define(problem.Kind{
		Code: "node.unfit", Severity: problem.Warning,
		Meaning: "A node runs, but is given nothing, or nothing of the pools that the detail names, because a check of its own fails.",
		Remedy:  "Mend what the detail names; the node is used again by itself after its hold-down.",
	})
	problemNodeDraining = problem.Define(problem.Kind{
		Code: "node.draining", Severity: problem.Info,
		Meaning: "An operator drained a node: it is given nothing.",
		Remedy:  "End it with `holdfast node undrain NODE` when the work on it is done.",
	})
	problemTwoVoices = problem.Define(problem.Kind{
		Code: "cluster.two-voices", Severity: problem.Warning,
		Meaning: "The cluster has two voices. If each needed the other, the death of either would stop both; so the first holds by itself, and the second hosts nothing that moves and takes nothing over.",
		Remedy:  "Add a third node, or a witness: a small machine whose agent hosts nothing (`witness: true`).",
	})
	problemOrphaned = problem.Define(problem.Kind{
		Code: "pool.orphaned", Severity: problem.Critical,
		Meaning: "Addresses of a pool have no working holder, so their clients are served by nobody.",
		Remedy:  "See `holdfast network pools status` for why no node may take them; a member must be up and pass its checks.",
	})
	problemUneven = problem.Define(problem.Kind{
		Code: "pool.uneven", Severity: problem.Warning,
		Meaning: "The addresses of a pool are not spread evenly over its fit nodes, and the pool's rebalance policy leaves it to an operator.",
		Remedy:  "Spread them with `holdfast network pools rebalance-ips POOL`, with --dry-run to see first what would move.",
	})
	problemNobodyFit = problem.Define(problem.Kind{
		Code: "pool.nobody-fit", Severity: problem.Critical,
		Meaning: "No node of a pool is fit: its addresses stay where they are, and its name is answered as on-none says.",
		Remedy:  "Mend what the detail names; when all nodes fail the same check, look for what they share, or for a check that asks the wrong thing.",
	})
	problemNoSuccessor = problem.Define(problem.Kind{
		Code: "pool.no-successor", Severity: problem.Warning,
		Meaning: "Only one node of a pool is fit: it has all of the pool's addresses, and nobody could take over.",
		Remedy:  "Bring another node of the pool back; `holdfast network pools status POOL` says for each why it is out.",
	})
	problemLapsed = problem.Define(problem.Kind{
		Code: "node.lapsed", Severity: problem.Critical,
		Meaning: "This node has lost the right to hold moving addresses: too few of its observers acknowledge its heartbeats, or they have found it down.",
		Remedy:  "Check its network to the other nodes, and that UDP port 7703 is open between them; it takes part again by itself as soon as they acknowledge it.",
	})
	problemNoStore = problem.Define(problem.Kind{
		Code: "node.store-silent", Severity: problem.Error,
		Meaning: "The store does not answer this node; it keeps what it holds as long as its observers acknowledge it, and nothing can move.",
		Remedy:  "Bring back a majority of the store's members (`holdfast status` lists them); until then a further death has no successor.",
	})
	problemForeign = problem.Define(problem.Kind{
		Code: "store.record", Severity: problem.Error,
		Meaning: "A record in the store cannot be read by this version; what it said before stays in force.",
		Remedy:  "Bring all agents to one version; if a person changed the record by hand, put it back.",
	})
	problemDirectory = problem.Define(problem.Kind{
		Code: "node.directory", Severity: problem.Warning,
		Meaning: "The agent cannot write to its directory; after a restart it would begin with an old configuration.",
		Remedy:  "Make room on the disk, or mend the directory's permissions.",
	})
	problemUntaken = problem.Define(problem.Kind{
		Code: "address.not-taken", Severity: problem.Critical,
		Meaning: "This node owns an address and cannot put it on its interface.",
		Remedy:  "Mend what the detail names; until then drain the node, so that another one takes the address.",
	})
)
