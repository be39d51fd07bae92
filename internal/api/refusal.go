package api

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
)

// The constructors below are how handlers refuse. The text is written for operators: what, where, why, what to do.

// Invalid refuses what cannot be right, whatever the state of the cluster.
func Invalid(format string, args ...any) error {
	return refuse(connect.CodeInvalidArgument, format, args)
}

// NotFound refuses what names something that does not exist.
func NotFound(format string, args ...any) error { return refuse(connect.CodeNotFound, format, args) }

// NotNow refuses what the state of the cluster forbids.
func NotNow(format string, args ...any) error {
	return refuse(connect.CodeFailedPrecondition, format, args)
}

// Changed refuses a change that was made against an older configuration.
func Changed(format string, args ...any) error { return refuse(connect.CodeAborted, format, args) }

// Unavailable refuses what needs a store or a node that does not answer.
func Unavailable(format string, args ...any) error {
	return refuse(connect.CodeUnavailable, format, args)
}

// Forbidden refuses a caller who may not ask this.
func Forbidden(format string, args ...any) error {
	return refuse(connect.CodePermissionDenied, format, args)
}

func refuse(code connect.Code, format string, args []any) error {
	return connect.NewError(code, fmt.Errorf(format, args...))
}

// Outcome is how a call ended, as far as its caller must act differently.
type Outcome int

// The outcomes.
const (
	Done        Outcome = iota
	Refused             // the other side answered and said no, or failed; Text says why
	Unreachable         // nobody answered
	Stopped             // the caller gave up: cancelled or out of time
)

// Ended tells how a call ended from the error that a client returned.
func Ended(err error) Outcome {
	var failure *connect.Error
	switch {
	case err == nil:
		return Done
	case errors.As(err, &failure) && connect.IsWireError(err):
		return Refused
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Stopped
	// Connect says "canceled", too, of a connection that was reset before an answer.
	case connect.CodeOf(err) == connect.CodeUnavailable, connect.CodeOf(err) == connect.CodeCanceled:
		return Unreachable
	default:
		return Refused
	}
}

// IsInvalid reports whether the other side refused what cannot be right, whatever the state of the cluster.
func IsInvalid(err error) bool { return connect.CodeOf(err) == connect.CodeInvalidArgument }

// IsNotFound reports whether the other side said that something does not exist.
func IsNotFound(err error) bool { return connect.CodeOf(err) == connect.CodeNotFound }

// IsChanged reports whether a change was refused because the configuration had changed meanwhile.
func IsChanged(err error) bool { return connect.CodeOf(err) == connect.CodeAborted }

// Text is what an error of a call says, without the code in front of it.
func Text(err error) string {
	var failure *connect.Error
	if !errors.As(err, &failure) {
		return err.Error()
	}
	if failure.Code() == connect.CodeUnimplemented {
		return "the agent does not know this command: command line and agent are of different versions"
	}
	return failure.Message()
}

// IsForbidden reports whether the other side refused the caller, or what no grant allows him.
func IsForbidden(err error) bool { return connect.CodeOf(err) == connect.CodePermissionDenied }
