// Package audit writes down who did what through a gateway: JSON, one record on a line, appended to a file.
//
// The file is opened for each record, so that whatever rotates logs may rename it at any time; records of several processes do not mix,
// and one that was cut off takes no other with it. The beginning and the end of a session are on the disk itself when Write returns, so that a power cut
// takes no session with it that was let in; a refusal waits for the next of them, or for the kernel. A record that cannot be written is an error for the caller, who
// then lets nothing begin. Log is safe for concurrent use. There is no secret in a record: no token, no key, and no command line either, since people write
// passwords into those; commands are in the recordings, which can be encrypted.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Event is what a record says.
type Event string

const (
	// Refused: a connection was not admitted.
	Refused Event = "refused"
	// Started: a session was admitted.
	Started Event = "started"
	// Ended: a session is over.
	Ended Event = "ended"
)

// Record is one line. Texts are cut to MaxText; lists are bounded by whoever fills them.
type Record struct {
	Time       time.Time `json:"time"`
	Event      Event     `json:"event"`
	Session    string    `json:"session,omitempty"`
	Who        string    `json:"who,omitempty"`
	Target     string    `json:"target,omitempty"`
	Account    string    `json:"account,omitempty"`
	Gateway    string    `json:"gateway"`
	Client     string    `json:"client"`               // address and port
	Token      string    `json:"token,omitempty"`      // its ID, with which nothing can be opened
	Rule       string    `json:"rule,omitempty"`       // of the broker's choice, as the token tells it
	Fitness    string    `json:"fitness,omitempty"`    // of the gateway, as the token tells it
	May        []string  `json:"may,omitempty"`        // what was granted
	Started    time.Time `json:"started,omitzero"`     // of a session that has ended
	Seconds    float64   `json:"seconds,omitempty"`    // by a clock that nobody sets
	Outcome    string    `json:"outcome,omitempty"`    // why it was refused or how it ended
	BytesIn    int64     `json:"bytes_in,omitempty"`   // from the client to the target
	BytesOut   int64     `json:"bytes_out,omitempty"`  // from the target to the client
	Channels   []string  `json:"channels,omitempty"`   // what was done: shell, exec, sftp, jump, tunnel and local-forward with host:port
	Requests   []string  `json:"refused,omitempty"`    // what was asked for and refused
	Recordings []string  `json:"recordings,omitempty"` // files, from the directory of recordings
	Unrecorded bool      `json:"unrecorded,omitempty"` // something was done that cannot be recorded (jump, tunnel, forwarding), or is not (the rest of a long output)
	// Connections are those of a jump or a tunnel, in the order of their ends, and MoreConnections how many there were beside them.
	Connections     []Connection `json:"connections,omitempty"`
	MoreConnections int          `json:"more_connections,omitempty"`
}

// Connection is one that passed the gateway unread.
type Connection struct {
	What     string  `json:"what"` // jump or tunnel, with host:port
	At       float64 `json:"at"`   // seconds since the session began
	Seconds  float64 `json:"seconds"`
	BytesIn  int64   `json:"bytes_in"`
	BytesOut int64   `json:"bytes_out"`
	Outcome  string  `json:"outcome"`
}

// MaxText bounds each text of a record, in bytes.
const MaxText = 1024

// Log is a file of records.
type Log struct {
	path string
	sync func(*os.File) error
	lock sync.Mutex
}

// New names the file. It is made with the first record, readable by its owner.
func New(path string) *Log { return &Log{path: path, sync: (*os.File).Sync} }

// Write appends a record.
func (l *Log) Write(r Record) error {
	for _, text := range []*string{&r.Outcome, &r.Client, &r.Who, &r.Target, &r.Account} {
		*text = (*text)[:min(len(*text), MaxText)]
	}
	r.Time, r.Started = r.Time.UTC(), r.Started.UTC()
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing an audit record: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("writing an audit record: %w", err)
	}
	first, err := l.add(file, append(line, '\n'))
	if err == nil && r.Event != Refused { // outside the lock, so that the disk is waited for by all at once
		err = l.sync(file)
	}
	if err == nil && first {
		err = l.syncFolder()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("writing an audit record: %w", err)
	}
	return nil
}

// add appends a line, and tells whether it is the file's first.
func (l *Log) add(file *os.File, line []byte) (first bool, err error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if EndsCutOff(file) {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := file.Write(line); err != nil {
		return false, err
	}
	end, err := file.Seek(0, io.SeekCurrent)
	return end == int64(len(line)), err
}

// syncFolder makes the name of a new file lasting.
func (l *Log) syncFolder() error {
	folder, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	return errors.Join(l.sync(folder), folder.Close())
}

// EndsCutOff tells whether the last line of a file was written only in part, as on a full disk or at a power cut: the next one must not become a part of
// it, or both would be lost. The file is open for reading too.
func EndsCutOff(file *os.File) bool {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return false
	}
	var last [1]byte
	_, err = file.ReadAt(last[:], end-1)
	return err == nil && last[0] != '\n'
}
