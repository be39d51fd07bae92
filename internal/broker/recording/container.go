package recording

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
)

// A plain recording is asciicast v2, line by line.
//
// An encrypted one begins with one line of JSON in clear text (clearHeader), and goes on with frames: four bytes of length in
// network order, and an age file (https://age-encryption.org/v1) whose text is one line of JSON (frameHeader) and then lines of the
// asciicast. A single age file would not do: its last block is only written at its end, so that a crash would take up to 64 KiB of a
// session with it, which is the whole of many. Each frame names the recording and its place, so that frames which are missing,
// exchanged or put elsewhere are noticed; the last one says that it is the last. Each has the hash of the first line, too, so that nobody
// who cannot read the frames gives them to another person, place or time. It is no signature: who can write to the directory can make a
// whole recording of his own, since anybody can encrypt to a recipient.
//
// The first format (encryptedFormat1) had no such hash. It is still read, and what its first frame says has to agree with its first line.

type clearHeader struct {
	Format  string `json:"format"` // encryptedFormat, or encryptedFormat1 of older ones
	Session About  `json:"holdfast"`
}

const (
	encryptedFormat  = "holdfast-recording-age-2"
	encryptedFormat1 = "holdfast-recording-age-1"
)

type frameHeader struct {
	ID    string `json:"id"`
	First string `json:"first,omitempty"` // SHA-256 of the file's first line without its end, in hexadecimal; of encryptedFormat1 none
	Frame int    `json:"frame"`           // from 0
	Last  bool   `json:"last,omitempty"`
}

// firstHash is how frames name the first line.
func firstHash(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// maxFrame bounds a frame, in bytes. What is written stays far below it.
const maxFrame = 4 << 20

// seal encrypts lines as one frame.
func seal(recipients []age.Recipient, header frameHeader, lines []byte) ([]byte, error) {
	var out bytes.Buffer
	out.Write(make([]byte, 4))
	into, err := age.Encrypt(&out, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypting a recording: %w", err)
	}
	first, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]byte{append(first, '\n'), lines} {
		if _, err := into.Write(part); err != nil {
			return nil, fmt.Errorf("encrypting a recording: %w", err)
		}
	}
	if err := into.Close(); err != nil {
		return nil, fmt.Errorf("encrypting a recording: %w", err)
	}
	frame := out.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// ErrSealed is the error of an encrypted recording that none of the identities opens.
var ErrSealed = errors.New("the recording is encrypted, and none of the given identities opens it (--identity FILE)")

// lineReader is what both kinds of files are read through: line by line, each whole.
type lineReader struct {
	about About
	lines *bufio.Reader
	next  func() ([]byte, error) // the lines of the next frame; io.EOF behind the last. Nil for plain recordings
	ended bool                   // the last frame was seen
	older bool                   // encrypted, and of the first format
}

// openLines begins to read a recording. The identities are only needed for encrypted ones; without any, it still returns who it is about.
func openLines(from io.Reader, identities []age.Identity) (*lineReader, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	first, err := readLine(in)
	if err != nil {
		return nil, fmt.Errorf("reading the first line: %w", err)
	}
	var clear clearHeader
	if err := json.Unmarshal(first, &clear); err != nil {
		return nil, errors.New("its first line is not the header of a recording")
	}
	if clear.Format != encryptedFormat && clear.Format != encryptedFormat1 {
		var header Header
		if err := json.Unmarshal(first, &header); err != nil || header.Version != 2 {
			return nil, errors.New("its first line is not the header of an asciicast of version 2")
		}
		return &lineReader{about: header.Session, lines: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(append(first, '\n')), in), 64<<10)}, nil
	}
	r := &lineReader{about: clear.Session, lines: bufio.NewReader(bytes.NewReader(nil)), older: clear.Format == encryptedFormat1}
	number, hash := 0, firstHash(first)
	r.next = func() ([]byte, error) {
		header, lines, err := openFrame(in, identities)
		if err != nil {
			return nil, err
		}
		if header.ID != clear.Session.ID || header.Frame != number || r.ended {
			return nil, fmt.Errorf("frame %d is not the one that belongs there: the file was put together from others, or a part of it is missing", number)
		}
		if header.First != hash && (!r.older || header.First != "") {
			return nil, fmt.Errorf("frame %d was not made for the first line of the file: that line says who, where and when, and was exchanged", number)
		}
		number++
		r.ended = header.Last
		return lines, nil
	}
	return r, nil
}

func openFrame(in *bufio.Reader, identities []age.Identity) (frameHeader, []byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return frameHeader{}, nil, io.EOF // a length that is cut off ends the recording just as none does
	}
	length := binary.BigEndian.Uint32(size[:])
	if length > maxFrame {
		return frameHeader{}, nil, fmt.Errorf("a frame of %d bytes, at most %d are read", length, maxFrame)
	}
	frame := make([]byte, length)
	if _, err := io.ReadFull(in, frame); err != nil {
		return frameHeader{}, nil, io.EOF
	}
	if len(identities) == 0 {
		return frameHeader{}, nil, ErrSealed
	}
	plain, err := age.Decrypt(bytes.NewReader(frame), identities...)
	if err != nil {
		var none *age.NoIdentityMatchError
		if errors.As(err, &none) {
			return frameHeader{}, nil, ErrSealed
		}
		return frameHeader{}, nil, fmt.Errorf("decrypting: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(plain, maxFrame))
	if err != nil {
		return frameHeader{}, nil, fmt.Errorf("decrypting: %w", err)
	}
	first, lines, found := bytes.Cut(text, []byte("\n"))
	var header frameHeader
	if err := json.Unmarshal(first, &header); err != nil || !found {
		return frameHeader{}, nil, errors.New("a frame has no header")
	}
	return header, lines, nil
}

// line returns the next whole line, without its end. A line that is cut off at the end of the file is not returned: that is io.EOF.
func (r *lineReader) line() ([]byte, error) {
	for {
		line, err := readLine(r.lines)
		if err == nil || r.next == nil || !errors.Is(err, io.EOF) {
			return line, err
		}
		lines, err := r.next()
		if err != nil {
			return nil, err
		}
		r.lines.Reset(bytes.NewReader(lines))
	}
}

// readLine reads up to the end of a line, and no more than MaxLine.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > MaxLine:
			return nil, fmt.Errorf("a line is longer than %d bytes", MaxLine)
		}
	}
}
