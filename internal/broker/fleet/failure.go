package fleet

import "fmt"

// FailureKind is why asking a central manager gave no view.
type FailureKind uint8

// The kinds, those first that say that it cannot be reached.
const (
	Refused       FailureKind = iota // the connection was refused or reset: its machine is there, and it is not
	TimedOut                         // no answer within the deadline
	Unreachable                      // no route, no address, no such name
	Untrusted                        // whoever answered has another certificate than the one that was linked
	Unwell                           // it answered with an HTTP status that is not 200
	Garbled                          // the answer cannot be read, or is longer than the bound
	Empty                            // the answer lists no gateway
	Contradictory                    // the answer speaks for another central manager than the linked one
)

var failureNames = [...]string{
	Refused: "refused", TimedOut: "timed out", Unreachable: "unreachable", Untrusted: "untrusted", Unwell: "unwell",
	Garbled: "garbled", Empty: "empty", Contradictory: "contradictory",
}

// String is the kind in lower case.
func (k FailureKind) String() string {
	if int(k) >= len(failureNames) {
		return fmt.Sprintf("failure %d", uint8(k))
	}
	return failureNames[k]
}

// Answered reports whether it was the linked central manager that answered, though of no use. Then it is not down.
func (k FailureKind) Answered() bool { return k == Garbled || k == Empty || k == Contradictory }

// Failure is why asking a central manager gave no view, with what came instead.
type Failure struct {
	Kind     FailureKind
	Evidence string // one line: what was asked, and what came
}

// Error is the evidence.
func (f *Failure) Error() string { return f.Evidence }

func failed(kind FailureKind, format string, arguments ...any) *Failure {
	return &Failure{Kind: kind, Evidence: fmt.Sprintf(format, arguments...)}
}
