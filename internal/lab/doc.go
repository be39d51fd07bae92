// Package lab builds disposable clusters of the real binary out of Linux namespaces on one machine.
//
// A lab is one detached host process that is pid 1 of its own pid namespace and owns a network namespace with one
// bridge in it, the switch. Every member (node, client, router, resolver) is a child of the host with network,
// mount, pid and host name namespaces of its own, joined to the switch by a veth pair. When the host dies, however it
// dies, the kernel kills every member and destroys every namespace and link: nothing is left but files, which
// `lab gc` removes. The machine's own network is never touched. Without root everything lives in a user namespace.
//
// Concurrency: the host serialises the commands that change the lab; entering a member never waits for them.
//
// The package decides nothing about clusters: it runs agents, breaks their world and shows what happened. Everything
// that it reads from the output of the holdfast command is in clijson.go.
package lab
