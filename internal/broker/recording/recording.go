// Package recording keeps what happened in sessions: one file for each, in asciicast v2
// (https://docs.asciinema.org/manual/asciicast/v2/), to be listed, searched and played again.
//
// A file grows by whole lines and is never rewritten, so that a crash costs at most what was not yet flushed, and leaves a
// file that reads up to its last line. It is flushed when Writer.Flush is called (the gateway does so every second) or when
// 64 KiB wait, and synced to the disk at the intervals that Options say. Encrypted files hold the same lines in frames that are
// each an age file of its own (container.go), for the same reason.
//
// A Store begins no recording when the disk has less than its limit of free space: new sessions are refused so that running ones can
// be kept to their end, and a Quota bounds what one session takes of it. A Writer that cannot write says so from then on; ending the session is for its caller.
//
// Store is safe for concurrent use. A Writer is too: the output of a session, its resizes and the flushing come from different goroutines.
// Times are passed in, as the time since the session began by a monotonic clock.
package recording

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Header is the first line of a recording. The fields up to Env are asciicast's; players skip the last.
type Header struct {
	Version   int               `json:"version"` // 2
	Width     int               `json:"width"`
	Height    int               `json:"height"`
	Timestamp int64             `json:"timestamp"` // when it began, in seconds since 1970
	Command   string            `json:"command,omitempty"`
	Title     string            `json:"title,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Session   About             `json:"holdfast"`
}

// About says whose session it was. It stands in clear text in front of encrypted recordings as well, so that they can be listed without a key.
type About struct {
	ID      string `json:"id"`                // of the recording: the session's, and the channel's number in it
	Session string `json:"session"`           // of the connection, as in the audit records
	Who     string `json:"who"`               // the requester
	Target  string `json:"target"`            // host:port
	Account string `json:"account"`           // on the target
	Gateway string `json:"gateway"`           // that recorded it
	Kind    string `json:"kind"`              // shell, exec or sftp
	Began   string `json:"began"`             // RFC 3339, UTC
	Client  string `json:"client,omitempty"`  // address of the client
	Plain   bool   `json:"plain,omitempty"`   // there was no terminal: what was typed has no echo in the output
	Partial bool   `json:"partial,omitempty"` // only the beginning of the output is kept (commands without a terminal)
}

// Kind is the code of an event.
type Kind byte

// The events of asciicast v2.
const (
	Output Kind = 'o'
	Input  Kind = 'i'
	Resize Kind = 'r'
	Marker Kind = 'm'
)

// Event is one line of a recording.
type Event struct {
	At   time.Duration // since the beginning
	Kind Kind
	Data string
}

// MaxLine bounds one line of a recording, in bytes. Longer ones are not read. What is written stays below it.
const MaxLine = 1 << 20

// maxData is how much of an event is put into one line. JSON may make six bytes of one.
const maxData = 64 << 10

// appendEvent writes one line. The data is valid UTF-8.
func appendEvent(line []byte, at time.Duration, kind Kind, data []byte) []byte {
	line = append(line, '[')
	line = fmt.Appendf(line, "%.6f", max(at, 0).Seconds())
	line = append(line, ", \""...)
	line = append(line, byte(kind))
	line = append(line, "\", "...)
	line = appendText(line, data)
	return append(line, "]\n"...)
}

// appendText writes valid UTF-8 as a JSON string. Terminal output is mostly plain, so it is copied in runs.
func appendText(line, data []byte) []byte {
	const digits = "0123456789abcdef"
	line = append(line, '"')
	from := 0
	for i, b := range data {
		if b >= 0x20 && b != '"' && b != '\\' && b != 0x7f {
			continue
		}
		line = append(line, data[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			line = append(line, '\\', b)
		case '\n':
			line = append(line, '\\', 'n')
		case '\r':
			line = append(line, '\\', 'r')
		default:
			line = append(line, '\\', 'u', '0', '0', digits[b>>4], digits[b&15])
		}
	}
	return append(append(line, data[from:]...), '"')
}

// parseEvent reads one line.
func parseEvent(line []byte) (Event, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(line, &parts); err != nil || len(parts) < 3 {
		return Event{}, fmt.Errorf("it is not [time, code, data]")
	}
	var seconds float64
	var code, data string
	for i, into := range []any{&seconds, &code, &data} {
		if err := json.Unmarshal(parts[i], into); err != nil {
			return Event{}, fmt.Errorf("its part %d is of the wrong kind", i+1)
		}
	}
	if len(code) != 1 || !(seconds >= 0 && seconds < math.MaxInt64/1e9) {
		return Event{}, fmt.Errorf("its code or its time is impossible")
	}
	return Event{At: time.Duration(seconds * 1e9), Kind: Kind(code[0]), Data: data}, nil
}

// whole cuts text where a character ends: what follows the cut is the beginning of a character whose rest comes later, three bytes at most.
func whole(data []byte) int {
	for back := 1; back <= min(3, len(data)); back++ {
		if b := data[len(data)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-back:]) {
				return len(data) - back
			}
			break
		}
	}
	return len(data)
}
