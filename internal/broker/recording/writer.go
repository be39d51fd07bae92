package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"filippo.io/age"
)

// flushAt is how many bytes may wait before they are written without being asked.
const flushAt = 64 << 10

// file is what a Writer needs of *os.File.
type file interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
}

// ErrClosed is the error of what comes when a recording has been ended in order.
var ErrClosed = errors.New("it is closed")

// Writer records one channel of a session. Its methods return the first error that any of them met: a recording with a gap is none. ErrQuota and ErrClosed are
// no such errors: what was recorded before is whole.
type Writer struct {
	name string
	done func(Writer *Writer, length time.Duration) error // enters the end into the index

	lock       sync.Mutex
	file       file
	quota      *Quota
	recipients []age.Recipient // none: plain
	about      About
	first      string // hash of the first line, if encrypted
	syncEvery  time.Duration
	waiting    []byte // whole lines that are not yet written
	tails      map[Kind][]byte
	frame      int
	synced     time.Duration
	unsynced   bool
	size       int64
	err        error
	closed     bool
}

// begin writes the header.
func (w *Writer) begin(header Header) error {
	line, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if len(line) >= MaxLine {
		return fmt.Errorf("its header has %d bytes, at most %d can be read again", len(line), MaxLine)
	}
	if len(w.recipients) > 0 {
		clear, err := json.Marshal(clearHeader{Format: encryptedFormat, Session: header.Session})
		if err != nil {
			return err
		}
		w.first = firstHash(clear)
		if err := w.put(append(clear, '\n')); err != nil {
			return err
		}
	}
	w.waiting = append(append(w.waiting, line...), '\n')
	return w.flush(false)
}

// Name is the recording's file within its directory.
func (w *Writer) Name() string { return w.name }

// Output records what the terminal showed. A character that is split over two calls is put together; what is no UTF-8 is replaced.
func (w *Writer) Output(at time.Duration, data []byte) error { return w.text(at, Output, data) }

// Input records what was typed, passwords included.
func (w *Writer) Input(at time.Duration, data []byte) error { return w.text(at, Input, data) }

// Resize records a new size of the terminal.
func (w *Writer) Resize(at time.Duration, width, height int) error {
	return w.text(at, Resize, fmt.Appendf(nil, "%dx%d", width, height))
}

// Mark records that something happened that shows nothing on the terminal: a file that is transferred, an end.
func (w *Writer) Mark(at time.Duration, what string) error {
	return w.text(at, Marker, []byte(what))
}

func (w *Writer) text(at time.Duration, kind Kind, data []byte) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err != nil || w.closed {
		return w.failed()
	}
	if w.quota.over() {
		return ErrQuota
	}
	for len(data) > 0 {
		part := data[:min(len(data), maxData)]
		data = data[len(part):]
		if tail := w.tails[kind]; len(tail) > 0 {
			part = append(bytes.Clone(tail), part...)
		}
		cut := len(part)
		if kind == Output || kind == Input {
			cut = whole(part)
		}
		w.tails[kind] = append(w.tails[kind][:0], part[cut:]...)
		if cut > 0 {
			w.waiting = appendEvent(w.waiting, at, kind, bytes.ToValidUTF8(part[:cut], []byte("\uFFFD")))
		}
		if len(w.waiting) >= flushAt {
			if w.err = w.flush(false); w.err != nil {
				return w.failed()
			}
		}
	}
	return nil
}

func (w *Writer) failed() error {
	if w.err != nil {
		return fmt.Errorf("the recording %s cannot be continued: %w", w.name, w.err)
	}
	return fmt.Errorf("the recording %s: %w", w.name, ErrClosed)
}

// Flush writes what waits, and syncs when it is time. It is called every second or so with the time since the beginning.
func (w *Writer) Flush(at time.Duration) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err != nil || w.closed {
		return w.failed()
	}
	if w.err = w.flush(false); w.err == nil && w.unsynced && at-w.synced >= w.syncEvery {
		w.err, w.synced, w.unsynced = w.file.Sync(), at, false
	}
	if w.err != nil {
		return w.failed()
	}
	return nil
}

func (w *Writer) flush(last bool) error {
	if len(w.waiting) == 0 && !last {
		return nil
	}
	data := w.waiting
	if len(w.recipients) > 0 {
		var err error
		if data, err = seal(w.recipients, frameHeader{ID: w.about.ID, First: w.first, Frame: w.frame, Last: last}, w.waiting); err != nil {
			return err
		}
		w.frame++
	}
	w.waiting = w.waiting[:0]
	return w.put(data)
}

func (w *Writer) put(data []byte) error {
	n, err := w.file.Write(data)
	w.size += int64(n)
	w.quota.take(n)
	w.unsynced = true
	return err
}

// Close ends the recording: what waits is written, a character that was cut off is replaced, all is synced, and the index says that
// it is whole.
func (w *Writer) Close(at time.Duration) error {
	w.lock.Lock()
	if w.closed {
		w.lock.Unlock()
		return nil
	}
	w.closed = true
	for _, kind := range []Kind{Output, Input} {
		if len(w.tails[kind]) > 0 {
			w.waiting = appendEvent(w.waiting, at, kind, []byte("\uFFFD"))
		}
	}
	if w.err == nil {
		w.waiting = appendEvent(w.waiting, at, Marker, []byte(endMark))
		w.err = w.flush(true)
	}
	if w.err == nil {
		w.err = w.file.Sync()
	}
	if err := w.file.Close(); w.err == nil && err != nil && !errors.Is(err, os.ErrClosed) {
		w.err = err
	}
	err := w.err
	w.lock.Unlock()
	if indexed := w.done(w, at); err == nil {
		err = indexed
	}
	if err != nil {
		return fmt.Errorf("ending the recording %s: %w", w.name, err)
	}
	return nil
}

// endMark is the last event of a recording that was ended and not cut off.
const endMark = "end of session"
