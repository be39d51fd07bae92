// Package architecture holds the rules of this source tree as tests: who may import whom, what the deciding packages must not
// touch, how long things may be, how metrics and packages are named, and that every problem is on the page for operators.
//
// Each rule is a function from source files to findings, and each is itself tested on small sources that break it. The tables
// at the top of the files are meant to be edited: a new arrow between packages or a new library is a decision, and its place
// is there, with the reason. The package has no code of its own.
package architecture
