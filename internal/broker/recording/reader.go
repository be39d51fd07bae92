package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"filippo.io/age"
)

// Reader reads a recording event by event. It holds one line, or one frame of an encrypted recording, at a time.
type Reader struct {
	Header Header
	lines  *lineReader
	file   *os.File
	name   string
	ended  bool
}

// Open begins to read a recording.
func Open(name string, identities []age.Identity) (*Reader, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening a recording: %w", err)
	}
	r := &Reader{file: file, name: name}
	if err := r.begin(identities); err != nil {
		_ = file.Close() // nothing was written, so there is nothing to lose
		return nil, fmt.Errorf("reading the recording %s: %w", name, err)
	}
	return r, nil
}

func (r *Reader) begin(identities []age.Identity) error {
	lines, err := openLines(r.file, identities)
	if err != nil {
		return err
	}
	r.lines = lines
	first, err := lines.line()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(first, &r.Header); err != nil {
		return errors.New("its header is damaged")
	}
	if r.Header.Session != lines.about {
		return errors.New("its first line, which says who, where and when, is not the one that was encrypted with it: it was exchanged")
	}
	return nil
}

// Next returns the next event, and io.EOF behind the last whole one. Whole tells then whether the session was ended or the recording cut off.
func (r *Reader) Next() (Event, error) {
	line, err := r.lines.line()
	if errors.Is(err, io.EOF) {
		return Event{}, io.EOF
	}
	if err != nil {
		return Event{}, fmt.Errorf("reading the recording %s: %w", r.name, err)
	}
	event, err := parseEvent(line)
	if err != nil {
		return Event{}, fmt.Errorf("reading the recording %s: a line is damaged: %w", r.name, err)
	}
	r.ended = event.Kind == Marker && event.Data == endMark
	return event, nil
}

// Whole tells, after io.EOF, whether the recording was brought to its end.
func (r *Reader) Whole() bool { return r.ended && (r.lines.next == nil || r.lines.ended) }

// Older tells that the recording is of the first encrypted format, of which only the beginning is bound to who, where and when.
func (r *Reader) Older() bool { return r.lines.older }

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// length reads to the end and returns the time of the last event, and whether the recording was brought to its end.
func (r *Reader) length() (time.Duration, bool, error) {
	var last time.Duration
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return last, r.Whole(), nil
		}
		if err != nil {
			return last, false, err
		}
		last = event.At
	}
}
