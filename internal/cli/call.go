package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
)

// askTimeout bounds a question: an agent that does not answer for so long is as good as absent.
const askTimeout = 30 * time.Second

// ask makes one call to the agent within a time and translates its error. what says what is being waited for.
func ask[Answer any](s *session, cmd *cobra.Command, what string, timeout time.Duration, call func(context.Context, Client) (*Answer, error)) (*Answer, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	client := s.Dial(s.socket)
	defer client.Close()
	done := s.progress(what)
	answer, err := call(ctx, client)
	done()
	if err != nil {
		return nil, s.explained(err, timeout)
	}
	return answer, nil
}

// explained turns an error of a call into one for people.
func (s *session) explained(err error, timeout time.Duration) error {
	switch api.Ended(err) {
	case api.Unreachable:
		if errors.Is(err, fs.ErrPermission) {
			return &failure{exitUnreachable, fmt.Sprintf("this user may not use %s: run the command as root or as a member of the agent's group", s.socket)}
		}
		return &failure{exitUnreachable, fmt.Sprintf("no agent answers on %s%s: start one with 'holdfast agent', or name its socket with --socket", s.socket, cause(err))}
	case api.Stopped:
		if errors.Is(err, context.DeadlineExceeded) {
			return &failure{exitUnreachable, fmt.Sprintf("the agent on %s took the question and did not answer within %s: its log says what it waits for", s.socket, span(timeout))}
		}
		return failed("interrupted; what was asked may still be done")
	default:
		if api.IsInvalid(err) {
			return misused("%s", api.Text(err))
		}
		return &failure{exitFailed, api.Text(err)}
	}
}

// cause names the usual reasons in words.
func cause(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return " (there is no such socket)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return " (the socket is there, and nobody listens on it)"
	default:
		return ""
	}
}

// progress says on a terminal what is being waited for, once that has lasted a second, and takes it away again.
func (s *session) progress(what string) (done func()) {
	if !s.ErrTerminal {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		begun, shown := s.Now(), false
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				if shown {
					fmt.Fprint(s.Err, "\r\x1b[K")
				}
				return
			case <-ticker.C:
				shown = true
				fmt.Fprintf(s.Err, "\r\x1b[K%s ... %s", what, span(s.Now().Sub(begun)))
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
