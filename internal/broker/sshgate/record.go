package sshgate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast/holdfast/internal/broker/recording"
)

// InputPolicy says whose input is recorded.
type InputPolicy uint8

const (
	// InputWithoutTerminal is of programs without a terminal: there what is typed has no echo, so that the commands of a shell would be nowhere. Passwords
	// are asked for on terminals, mostly.
	InputWithoutTerminal InputPolicy = iota
	// InputAlways is of all, passwords included.
	InputAlways
	// InputNever is of none. Of what goes to a program without a terminal the audit log says that it was not recorded.
	InputNever
)

// records tells whether the input of a program is recorded.
func (p InputPolicy) records(terminal bool) bool {
	return p == InputAlways || p == InputWithoutTerminal && !terminal
}

// record begins the recording of a program, before it runs.
func (s *session) record(v verdict) error {
	c := s.connection
	c.lock.Lock()
	c.number++
	number := c.number
	c.lock.Unlock()
	header := recording.Header{
		Width: 80, Height: 24, Timestamp: c.began.Unix(), Command: v.command, Title: fmt.Sprintf("%s as %s on %s", c.grant.Who, c.grant.Account, c.grant.Target),
		Session: recording.About{
			ID: fmt.Sprintf("%s.%d", c.id, number), Session: c.id, Who: c.grant.Who, Target: c.grant.Target.String(), Account: c.grant.Account,
			Gateway: c.gate.options.Name, Kind: v.starts, Began: c.began.UTC().Format("2006-01-02T15:04:05Z07:00"), Client: c.client.String(),
		},
	}
	if s.terminal != nil {
		if s.terminal.Columns > 0 && s.terminal.Rows > 0 { // some clients leave the size open
			header.Width, header.Height = int(s.terminal.Columns), int(s.terminal.Rows)
		}
		header.Env = map[string]string{"TERM": printable(fmt.Sprintf("%.100s", s.terminal.Term))}
	}
	kept := v.kept(s.terminal != nil)
	header.Session.Partial, header.Session.Plain = kept < everything, s.terminal == nil
	if v.starts == "sftp" {
		s.names = &fileNames{}
	}
	writer, err := c.gate.options.Recorder.Begin(header, c.quota)
	if err != nil {
		c.unrecordable(err)
		return err
	}
	s.output.set(kept)
	if c.gate.options.RecordInput.records(s.terminal != nil) {
		s.input.set(kept)
	} else {
		s.unheard.Store(kept > 0 && s.terminal == nil)
	}
	s.writer.Store(writer)
	c.note(&c.recordings, writer.Name())
	return nil
}

// unrecordable counts what keeps a recording from being begun or continued, and returns what the user reads of it when his session is ended.
func (c *connection) unrecordable(err error) string {
	if errors.Is(err, recording.ErrQuota) {
		c.gate.counts.recordingsFull.Inc()
		return fmt.Sprintf("its recordings have %d MiB, which is as much as those of one session may have", c.gate.options.Limits.Recorded>>20)
	}
	c.gate.counts.recordingsFailed.Inc()
	c.gate.options.Logger.Error("an SSH session cannot be recorded", "session", c.id, "error", err)
	return "it cannot be recorded any more"
}

// recorded does something with the recording, if there is one. When it fails the session is ended: nothing goes on unrecorded. What comes when the recording has
// been ended in order comes too late, as a flush may, and is no failure.
func (s *session) recorded(do func(*recording.Writer) error) {
	writer := s.writer.Load()
	if writer == nil {
		return
	}
	if err := do(writer); err != nil && !errors.Is(err, recording.ErrClosed) {
		s.lost(writer, err)
	}
}

// lost ends the session, once, since its recording has failed.
func (s *session) lost(writer *recording.Writer, err error) {
	if s.broken.Swap(true) {
		return
	}
	c := s.connection
	reason := c.unrecordable(err)
	_ = writer.Close(c.elapsed()) // what it says is known
	go c.end(reason)
}

// errBroken stops what would be carried on without being recorded.
var errBroken = errors.New("the recording has failed")

// amount is how many bytes are still recorded. Both outputs draw on one.
type amount struct {
	lock sync.Mutex
	left int
}

func (a *amount) set(bytes int) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.left = bytes
}

// take returns how much of a number of bytes is recorded, and whether with it the end is reached.
func (a *amount) take(want int) (take int, end bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	take = min(want, a.left)
	a.left -= take
	return take, take > 0 && a.left == 0
}

// lookOut records output before the client sees it.
func (s *session) lookOut(data []byte) error {
	take, end := s.output.take(len(data))
	if take > 0 {
		s.recorded(func(w *recording.Writer) error { return w.Output(s.connection.elapsed(), data[:take]) })
	}
	if end {
		// Whoever reads the audit log must see it: a command may be a shell, whose first output was long on purpose.
		s.connection.noteUnrecorded("more output than is recorded")
		s.mark(fmt.Sprintf("only the first %d KiB of the output are recorded", firstOutput>>10))
	}
	if s.broken.Load() {
		return errBroken
	}
	return nil
}

// mark notes in the recording what shows nothing on the terminal.
func (s *session) mark(what string) {
	s.recorded(func(w *recording.Writer) error { return w.Mark(s.connection.elapsed(), what) })
}

// heard records what is typed, as far as that is recorded.
func (s *session) heard(data []byte) {
	take, end := s.input.take(len(data))
	if take > 0 {
		s.recorded(func(w *recording.Writer) error { return w.Input(s.connection.elapsed(), data[:take]) })
	}
	if end {
		s.connection.noteUnrecorded("more input than is recorded")
		s.mark(fmt.Sprintf("only the first %d KiB of the input are recorded", firstOutput>>10))
	}
	if s.unheard.Swap(false) {
		s.connection.noteUnrecorded("input without a terminal")
	}
}

// lookIn looks at what the client sends: for the names of files, and to record it where that is configured.
func (s *session) lookIn(data []byte) error {
	if s.names != nil {
		for _, what := range s.names.write(data) {
			s.mark(what)
		}
	} else {
		s.heard(data)
	}
	if s.broken.Load() {
		return errBroken
	}
	return nil
}
