// Package doctest has no code: its tests read the pages (README.md, ARCHITECTURE.md, docs/*.md) and hold them to the program.
//
// They guarantee that configuration examples are valid, that every command and flag that a page mentions exists, that examples in
// blocks marked "console lab" run in a lab and end with exit code 0, that relative links and their anchors resolve, that every
// package, file and function that ARCHITECTURE.md names exists, and that the lists of settings and metrics are the program's. Lists are
// written anew by `go test ./internal/doctest -update`. The short checks of the models in docs/model run, where SPIN is installed.
//
// They do not judge what the pages say, nor compare the output of examples.
package doctest
