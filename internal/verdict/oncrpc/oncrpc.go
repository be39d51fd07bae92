// Package oncrpc is just enough of ONC RPC version 2 (RFC 5531) over TCP to make the null call of a program and to
// understand the reply: it is how NFS and other RPC services are asked whether they are alive.
//
// It guarantees bounded memory for any input and never panics on one. It is pure but for ReadRecord and WriteRecord,
// which use the stream that they are given; nothing is kept between calls, so everything is safe for concurrent use.
//
// It does no authentication but AUTH_NONE, encodes no arguments and decodes no results.
package oncrpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxRecord bounds the record that ReadRecord accepts, in bytes. The reply to a null call has 24 bytes and a verifier
// of at most 400.
const MaxRecord = 4096

// maxFragments bounds the fragments of one record, so that empty ones cannot keep a reader busy.
const maxFragments = 16

// maxVerifier is the longest opaque authentication body, RFC 5531 section 8.2.
const maxVerifier = 400

// Numbers of RFC 5531 section 9.
const (
	rpcVersion = 2

	messageCall  = 0
	messageReply = 1

	replyAccepted = 0
	replyDenied   = 1

	rejectMismatch = 0
	rejectAuth     = 1

	authNone = 0
)

// AcceptStatus is what became of an accepted call (RFC 5531 section 9).
type AcceptStatus uint32

// The accept states.
const (
	Success AcceptStatus = iota
	ProgramUnavailable
	ProgramMismatch
	ProcedureUnavailable
	GarbageArguments
	SystemError
)

var acceptNames = [...]string{
	Success:              "success",
	ProgramUnavailable:   "the program is not registered there",
	ProgramMismatch:      "the program does not offer that version",
	ProcedureUnavailable: "the program has no such procedure",
	GarbageArguments:     "the server could not decode the arguments",
	SystemError:          "the server reports a system error",
}

// String says what the status means.
func (s AcceptStatus) String() string {
	if int(s) >= len(acceptNames) {
		return fmt.Sprintf("accept status %d", uint32(s))
	}
	return acceptNames[s]
}

// ErrMalformed is wrapped by every error about bytes that are not RPC.
var ErrMalformed = errors.New("not a valid ONC RPC message")

// NullCall encodes the call of procedure 0, which takes nothing, returns nothing and, by convention, always works
// (RFC 5531 section 12.1), without its record mark.
func NullCall(xid, program, version uint32) []byte {
	var b []byte
	for _, word := range []uint32{xid, messageCall, rpcVersion, program, version, 0, authNone, 0, authNone, 0} {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return b
}

// Call is a decoded call header.
type Call struct{ XID, Program, Version, Procedure uint32 }

// ParseCall decodes a call header, as a server needs it.
func ParseCall(record []byte) (Call, error) {
	d := decoder{rest: record}
	call := Call{XID: d.word()}
	kind, version := d.word(), d.word()
	call.Program, call.Version, call.Procedure = d.word(), d.word(), d.word()
	d.opaqueAuth() // credentials
	d.opaqueAuth() // verifier
	switch {
	case d.err != nil:
		return Call{}, d.err
	case kind != messageCall:
		return Call{}, fmt.Errorf("%w: message type %d instead of a call", ErrMalformed, kind)
	case version != rpcVersion:
		return Call{}, fmt.Errorf("%w: RPC version %d", ErrMalformed, version)
	}
	return call, nil
}

// Reply is a decoded reply header. Status counts only when Denied is empty.
type Reply struct {
	XID       uint32
	Denied    string // why the server refused the call itself; empty when it accepted it
	Status    AcceptStatus
	Low, High uint32 // versions that the server offers, with ProgramMismatch
}

// Err is nil for a successful reply and says otherwise what the server said.
func (r Reply) Err() error {
	switch {
	case r.Denied != "":
		return fmt.Errorf("the server denied the call: %s", r.Denied)
	case r.Status == ProgramMismatch:
		return fmt.Errorf("%s, only %d to %d", r.Status, r.Low, r.High)
	case r.Status != Success:
		return errors.New(r.Status.String())
	}
	return nil
}

// ParseReply decodes a reply header. What follows the header, the result, is ignored.
func ParseReply(record []byte) (Reply, error) {
	d := decoder{rest: record}
	reply := Reply{XID: d.word()}
	kind, status := d.word(), d.word()
	switch {
	case d.err != nil:
		return Reply{}, d.err
	case kind != messageReply:
		return Reply{}, fmt.Errorf("%w: message type %d instead of a reply", ErrMalformed, kind)
	case status == replyDenied:
		reply.Denied = d.rejection()
	case status == replyAccepted:
		d.opaqueAuth()
		reply.Status = AcceptStatus(d.word())
		if reply.Status == ProgramMismatch {
			reply.Low, reply.High = d.word(), d.word()
		}
		if d.err == nil && reply.Status > SystemError {
			return Reply{}, fmt.Errorf("%w: %s", ErrMalformed, reply.Status)
		}
	default:
		return Reply{}, fmt.Errorf("%w: reply status %d", ErrMalformed, status)
	}
	if d.err != nil {
		return Reply{}, d.err
	}
	return reply, nil
}

// AppendReply encodes a reply header without its record mark, as a server needs it. A denied reply is encoded as an
// authentication error.
func AppendReply(b []byte, r Reply) []byte {
	words := []uint32{r.XID, messageReply, replyAccepted, authNone, 0, uint32(r.Status)}
	if r.Denied != "" {
		words = []uint32{r.XID, messageReply, replyDenied, rejectAuth, 1}
	} else if r.Status == ProgramMismatch {
		words = append(words, r.Low, r.High)
	}
	for _, word := range words {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	return b
}

// decoder reads XDR (RFC 4506) from the front of rest. After the first error it yields zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) word() uint32 {
	if d.err == nil && len(d.rest) < 4 {
		d.err = fmt.Errorf("%w: it ends too soon", ErrMalformed)
	}
	if d.err != nil {
		return 0
	}
	word := binary.BigEndian.Uint32(d.rest)
	d.rest = d.rest[4:]
	return word
}

// opaqueAuth skips a flavour and its body (RFC 5531 section 8.2).
func (d *decoder) opaqueAuth() {
	d.word()
	length := d.word()
	padded := (length + 3) &^ 3
	switch {
	case d.err != nil:
	case length > maxVerifier:
		d.err = fmt.Errorf("%w: a verifier of %d bytes, more than %d", ErrMalformed, length, maxVerifier)
	case int(padded) > len(d.rest):
		d.err = fmt.Errorf("%w: it ends inside a verifier", ErrMalformed)
	default:
		d.rest = d.rest[padded:]
	}
}

// rejection words a rejected_reply.
func (d *decoder) rejection() string {
	switch kind := d.word(); kind {
	case rejectMismatch:
		return fmt.Sprintf("it speaks RPC version %d to %d, not %d", d.word(), d.word(), rpcVersion)
	case rejectAuth:
		return fmt.Sprintf("authentication error %d; it does not take AUTH_NONE", d.word())
	default:
		if d.err == nil {
			d.err = fmt.Errorf("%w: reject status %d", ErrMalformed, kind)
		}
		return ""
	}
}

// Record marking, RFC 5531 section 11: each fragment has a header of four bytes, whose highest bit marks the last.
const lastFragment = 1 << 31

// WriteRecord writes record as one fragment.
func WriteRecord(w io.Writer, record []byte) error {
	if len(record) > MaxRecord {
		return fmt.Errorf("an RPC record of %d bytes is longer than %d", len(record), MaxRecord)
	}
	framed := binary.BigEndian.AppendUint32(nil, lastFragment|uint32(len(record)))
	if _, err := w.Write(append(framed, record...)); err != nil {
		return fmt.Errorf("writing an RPC record: %w", err)
	}
	return nil
}

// ReadRecord reads one record of at most MaxRecord bytes in at most 16 fragments.
func ReadRecord(r io.Reader) ([]byte, error) {
	var record []byte
	for range maxFragments {
		var mark [4]byte
		if _, err := io.ReadFull(r, mark[:]); err != nil {
			return nil, fmt.Errorf("reading an RPC record mark: %w", err)
		}
		header := binary.BigEndian.Uint32(mark[:])
		length := int(header &^ lastFragment)
		if length > MaxRecord-len(record) {
			return nil, fmt.Errorf("%w: a record longer than %d bytes", ErrMalformed, MaxRecord)
		}
		fragment := make([]byte, length)
		if _, err := io.ReadFull(r, fragment); err != nil {
			return nil, fmt.Errorf("reading an RPC fragment of %d bytes: %w", length, err)
		}
		record = append(record, fragment...)
		if header&lastFragment != 0 {
			return record, nil
		}
	}
	return nil, fmt.Errorf("%w: a record in more than %d fragments", ErrMalformed, maxFragments)
}
