package store

import "github.com/holdfast/holdfast/internal/problem"

// What the store can suffer from. Subjects are "store" or an endpoint.
var (
	unavailable = problem.Define(problem.Kind{
		Code:     "store.unavailable",
		Severity: problem.Error,
		Meaning: "No majority of the store's members answers this node. Names and addresses that work go on working; nothing " +
			"new can be decided.",
		Remedy: "Bring back the members that do not answer, or the network to them. holdfast status lists them.",
	})
	slow = problem.Define(problem.Kind{
		Code:     "store.slow",
		Severity: problem.Warning,
		Meaning:  "The store's answers take so long that calls need more than one try.",
		Remedy:   "Look for slow disks or overloaded machines under the store's members.",
	})
	full = problem.Define(problem.Kind{
		Code:     "store.full",
		Severity: problem.Error,
		Meaning:  "The store's space quota or a member's disk is used up: it can be read and not written.",
		Remedy: "Free space on the disk under the members' data directories or raise their quota, compact and defragment, and " +
			"clear the NOSPACE alarm; restart an agent whose member has stopped.",
	})
	outdated = problem.Define(problem.Kind{
		Code:     "store.outdated",
		Severity: problem.Warning,
		Meaning: "A member of the store is an etcd whose leader, once it was held up by its disk or stood still, ends leases that were " +
			"renewed meanwhile (etcd-io/etcd issue 15247). Who holds an address does not rest on them; a node may be unable to find out " +
			"whether a write of which it got no answer took effect.",
		Remedy: "Upgrade the members to etcd 3.4.31, 3.5.13 or later.",
	})
	empty = problem.Define(problem.Kind{
		Code:     "store.empty",
		Severity: problem.Critical,
		Meaning: "The store has lost this cluster's records, or is another cluster's. This node goes on with what it knows and " +
			"decides nothing new.",
		Remedy: "Check store.endpoints and the members' data directories; restore them from a backup, or found the cluster anew.",
	})
	memberStopped = problem.Define(problem.Kind{
		Code:     "store.member-stopped",
		Severity: problem.Error,
		Meaning:  "The store member on this node has stopped. The others carry the store as long as they are a majority.",
		Remedy:   "Remove the cause that the detail names, mostly a full or broken disk, and restart the agent.",
	})
)
