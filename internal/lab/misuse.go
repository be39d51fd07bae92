package lab

import "fmt"

// misuse is an error of whoever wrote the command line.
type misuse string

func (m misuse) Error() string { return string(m) }

// ExitCode is the code with which the program ends.
func (misuse) ExitCode() int { return 2 }

func misused(format string, args ...any) error { return misuse(fmt.Sprintf(format, args...)) }
