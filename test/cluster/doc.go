// Package cluster holds the tests that run whole clusters of the real binary, in labs (`holdfast lab`), against real
// peers: BIND and dig, nginx and curl, NFS-Ganesha and libnfs, tcpdump, and etcd.
//
// They assert order, counts and safety, never times: every wait is for a condition, with a deadline that only a broken
// cluster reaches. Safety (no address on two nodes) is watched from outside by the kernels' own notifications; see
// watcher_test.go. Each lab is taken down by its test, also when the test's process dies, and TestMain fails if
// anything is left.
package cluster
