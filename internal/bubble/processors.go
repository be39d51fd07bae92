//go:build !race

package bubble

// oneProcessor is of use with the race detector only.
func oneProcessor() (gone func()) { return func() {} }
