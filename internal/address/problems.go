package address

import (
	"time"

	"github.com/holdfast/holdfast/internal/problem"
)

// The kinds of problems that this package finds.
var (
	problemConflict = problem.Define(problem.Kind{
		Code: "address.conflict", Severity: problem.Error,
		Meaning: "Another host claims an address that this node holds.",
		Remedy:  "Find the host by the MAC in the detail and take the address off it. This node goes on announcing the address as its own.",
	})
	problemInUse = problem.Define(problem.Kind{
		Code: "address.in-use", Severity: problem.Error,
		Meaning: "A host that is not in the cluster answers for an address before any node has taken it, so it is not taken.",
		Remedy:  "Find the host by the MAC in the detail and give it another address, or take the address out of the pool.",
	})
	problemAddFailed = problem.Define(problem.Kind{
		Code: "address.add-failed", Severity: problem.Error,
		Meaning: "The kernel refused an address that this node should hold.",
		Remedy:  "The detail has the kernel's reason. Check the interface and the capabilities of the agent.",
	})
	problemRemoveFailed = problem.Define(problem.Kind{
		Code: "address.remove-failed", Severity: problem.Critical,
		Meaning: "An address that this node must not hold any more could not be removed; two nodes may hold it.",
		Remedy:  "Remove it by hand with `ip address del`. A moving address leaves by itself when its lifetime ends.",
	})
	problemConfigured = problem.Define(problem.Kind{
		Code: "address.configured-elsewhere", Severity: problem.Error,
		Meaning: "A managed address is on this node with a prefix that Holdfast does not use, so something else configured it.",
		Remedy:  "Take the address out of the system's network configuration, or out of the pool.",
	})
	problemInterface = problem.Define(problem.Kind{
		Code: "address.interface-missing", Severity: problem.Error,
		Meaning: "An interface that should hold addresses is not there.",
		Remedy:  "Bring the interface back, or take it out of the node's interfaces. Its addresses return with it.",
	})
	problemRenew = problem.Define(problem.Kind{
		Code: "address.renew-failed", Severity: problem.Error,
		Meaning: "The lifetime of a held address could not be renewed; the kernel removes the address when it ends.",
		Remedy:  "The detail has the kernel's reason. Check the interface and the capabilities of the agent.",
	})
	problemAnnounce = problem.Define(problem.Kind{
		Code: "address.announce-failed", Severity: problem.Warning,
		Meaning: "Announcements could not be sent on an interface; clients may go on sending to the old holder.",
		Remedy:  "The detail has the reason. Announcements are repeated, and sent again when the carrier returns.",
	})
	problemDeaf = problem.Define(problem.Kind{
		Code: "address.not-watched", Severity: problem.Warning,
		Meaning: "Foreign claims to held addresses cannot be heard on an interface.",
		Remedy:  "The detail has the reason. Check that the agent has CAP_NET_RAW.",
	})
	problemRoute = problem.Define(problem.Kind{
		Code: "address.route-failed", Severity: problem.Error,
		Meaning: "A rule or route for replies from a subnet could not be put into effect.",
		Remedy:  "Check the gateway and the static routes of the subnet; the detail has the kernel's reason.",
	})
	problemMTU = problem.Define(problem.Kind{
		Code: "interface.mtu", Severity: problem.Warning,
		Meaning: "An interface takes smaller packets than the mtu of a subnet that it is a member of; replies from that subnet's addresses are as small as the interface needs.",
		Remedy:  "Set it with `ip link set dev INTERFACE mtu BYTES`, and in the system's network configuration so that it lasts, or lower the subnet's mtu.",
	})
	problemKernel = problem.Define(problem.Kind{
		Code: "address.kernel-unreadable", Severity: problem.Error,
		Meaning: "The state of interfaces and addresses cannot be read from the kernel.",
		Remedy:  "The detail has the reason. What is held is renewed, and nothing else changes until it can be read.",
	})
	problemSetting = problem.Define(problem.Kind{
		Code: "address.kernel-setting", Severity: problem.Warning,
		Meaning: "A kernel setting can keep clients from reaching addresses of this node.",
		Remedy:  "Set it as the detail says, in /etc/sysctl.d so that it lasts.",
	})
	problemUntracked = problem.Define(problem.Kind{
		Code: "address.connections-untracked", Severity: problem.Warning,
		Meaning: "There are more connections of clients than are kept for a failover; the clients of the others notice one at their next packet only.",
		Remedy:  "Spread the clients over more addresses and nodes; nothing else suffers.",
	})
	problemSocketsKept = problem.Define(problem.Kind{
		Code: "address.sockets-kept", Severity: problem.Warning,
		Meaning: "Connections to an address that left this node could not be reset here; idle clients notice at their next packet, or when the new owner wakes them.",
		Remedy:  "The detail has the reason. A kernel needs CONFIG_INET_DIAG_DESTROY, and the agent CAP_NET_ADMIN.",
	})
	problemTickle = problem.Define(problem.Kind{
		Code: "address.tickle-failed", Severity: problem.Warning,
		Meaning: "Clients of an address that came here could not be woken; those that are idle notice at their next packet.",
		Remedy:  "The detail has the reason. Check that the agent has CAP_NET_RAW, and the routes to the clients.",
	})
	noteSetting = problem.Define(problem.Kind{
		Code: "address.kernel-setting-note", Severity: problem.Info,
		Meaning: "A kernel setting is not as it is best for moving addresses; clients lose nothing by it.",
		Remedy:  "Set it as the detail says if the consequence matters here.",
	})
)

// found is one problem that is present.
type found struct {
	kind            *problem.Kind
	subject, detail string
}

// findings keeps the board in step with what one kind of look found: what an earlier look found and the last did not is
// cleared.
type findings struct {
	board *problem.Board
	last  map[string][]found // by look
}

func (f *findings) replace(look string, now time.Time, list []found) {
	for _, old := range f.last[look] {
		still := false
		for _, n := range list {
			still = still || n.kind == old.kind && n.subject == old.subject
		}
		if !still {
			f.board.Clear(old.kind, old.subject)
		}
	}
	for _, n := range list {
		f.board.Set(n.kind, n.subject, n.detail, now)
	}
	f.last[look] = list
}
