// Package cli is the command line: it asks the agent over its socket (internal/api) and prints the answer.
//
// It guarantees: every command takes `--output table|json|yaml`, the latter two with stable lower_snake names; results go
// to standard output and everything else to standard error; exit codes are those of `holdfast help exit-codes`; errors say
// what, where, why and what to do. It decides nothing about the cluster: what would change and move is the agent's word,
// with --dry-run and without.
//
// Run may be called once per process or, in tests, many times: there is no package state.
package cli
