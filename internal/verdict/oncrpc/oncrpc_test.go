package oncrpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unhex reads hexadecimal digits in groups.
func unhex(t testing.TB, digits string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNullCallOnTheWire is the call that `rpcinfo -T tcp HOST nfs 4` sends.
func TestNullCallOnTheWire(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteRecord(&wire, NullCall(0x12345678, 100003, 4)); err != nil {
		t.Fatal(err)
	}
	// last fragment of 40 bytes; number; call; RPC 2; program; version; procedure 0; no credentials; no verifier
	want := unhex(t, "80000028 12345678 00000000 00000002 000186a3 00000004 00000000 00000000 00000000 00000000 00000000")
	if diff := cmp.Diff(want, wire.Bytes()); diff != "" {
		t.Errorf("wire (-want +got):\n%s", diff)
	}
	record, err := ReadRecord(&wire)
	if err != nil {
		t.Fatal(err)
	}
	call, err := ParseCall(record)
	if want := (Call{XID: 0x12345678, Program: 100003, Version: 4}); err != nil || call != want {
		t.Errorf("%+v, %v; want %+v", call, err, want)
	}
}

func TestParseReply(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      Reply
		message   string // of Reply.Err; empty: none
	}{
		{"success", "00000007 00000001 00000000 00000000 00000000 00000000", Reply{XID: 7}, ""},
		{"success with a verifier that needs padding", "00000007 00000001 00000000 00000006 00000005 6162636465000000 00000000",
			Reply{XID: 7}, ""},
		{"success with a result", "00000007 00000001 00000000 00000000 00000000 00000000 deadbeef", Reply{XID: 7}, ""},
		{"not registered", "00000007 00000001 00000000 00000000 00000000 00000001",
			Reply{XID: 7, Status: ProgramUnavailable}, "the program is not registered there"},
		{"other versions", "00000007 00000001 00000000 00000000 00000000 00000002 00000002 00000003",
			Reply{XID: 7, Status: ProgramMismatch, Low: 2, High: 3}, "the program does not offer that version, only 2 to 3"},
		{"system error", "00000007 00000001 00000000 00000000 00000000 00000005",
			Reply{XID: 7, Status: SystemError}, "the server reports a system error"},
		{"another RPC version", "00000007 00000001 00000001 00000000 00000003 00000004",
			Reply{XID: 7, Denied: "it speaks RPC version 3 to 4, not 2"}, "the server denied the call: it speaks RPC version 3 to 4, not 2"},
		{"not allowed", "00000007 00000001 00000001 00000001 00000005",
			Reply{XID: 7, Denied: "authentication error 5; it does not take AUTH_NONE"},
			"the server denied the call: authentication error 5; it does not take AUTH_NONE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseReply(unhex(t, tc.hex))
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Fatalf("error %v, reply (-want +got):\n%s", err, diff)
			}
			if err := got.Err(); (err == nil) != (tc.message == "") || err != nil && err.Error() != tc.message {
				t.Errorf("says %v, want %q", err, tc.message)
			}
		})
	}
}

func TestParseReplySaysNo(t *testing.T) {
	for name, digits := range map[string]string{
		"empty":                      "",
		"half a word":                "0000",
		"a call":                     "00000007 00000000 00000002 000186a3 00000004 00000000",
		"unknown reply status":       "00000007 00000001 00000002",
		"unknown accept status":      "00000007 00000001 00000000 00000000 00000000 00000006",
		"unknown reject status":      "00000007 00000001 00000001 00000002",
		"ends before accept status":  "00000007 00000001 00000000 00000000 00000000",
		"ends before versions":       "00000007 00000001 00000000 00000000 00000000 00000002 00000002",
		"verifier too long":          "00000007 00000001 00000000 00000000 00000191 00000000",
		"verifier past the end":      "00000007 00000001 00000000 00000000 00000008 00000000",
		"verifier of four gigabytes": "00000007 00000001 00000000 00000000 ffffffff 00000000",
	} {
		if got, err := ParseReply(unhex(t, digits)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v; want it malformed", name, got, err)
		}
	}
}

func TestParseCallSaysNo(t *testing.T) {
	good := "00000007 00000000 00000002 000186a3 00000004 00000000 00000000 00000000 00000000 00000000"
	for name, digits := range map[string]string{
		"short":             good[:40],
		"a reply":           strings.Replace(good, "00000007 00000000", "00000007 00000001", 1),
		"RPC version 3":     strings.Replace(good, "00000002", "00000003", 1),
		"credential length": strings.TrimSuffix(good, " 00000000 00000000 00000000") + " ffffffff",
	} {
		if got, err := ParseCall(unhex(t, digits)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v; want it malformed", name, got, err)
		}
	}
}

func TestReadRecord(t *testing.T) {
	long := append([]byte{0x80, 0, 0x10, 0x01}, make([]byte, MaxRecord+1)...)
	for _, tc := range []struct {
		name string
		in   []byte
		want string
		err  error
	}{
		{"one fragment", unhex(t, "80000003 616263"), "abc", nil},
		{"three fragments", unhex(t, "00000001 61 00000000 80000002 6263"), "abc", nil},
		{"empty record", unhex(t, "80000000"), "", nil},
		{"ends in the mark", unhex(t, "8000"), "", io.ErrUnexpectedEOF},
		{"ends in the fragment", unhex(t, "80000003 61"), "", io.ErrUnexpectedEOF},
		{"nothing", nil, "", io.EOF},
		{"too long", long, "", ErrMalformed},
		{"too long in all", append(append([]byte{0, 0, 0x0f, 0xff}, make([]byte, MaxRecord-1)...), 0x80, 0, 0, 2, 0, 0), "", ErrMalformed},
		{"claims two gigabytes", unhex(t, "ffffffff"), "", ErrMalformed},
		{"fragments without end", make([]byte, 4*maxFragments), "", ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadRecord(bytes.NewReader(tc.in))
			if string(got) != tc.want || !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestWriteRecordSaysNo(t *testing.T) {
	if err := WriteRecord(io.Discard, make([]byte, MaxRecord+1)); err == nil {
		t.Error("a record longer than the bound was written")
	}
}

func FuzzParseReply(f *testing.F) {
	for _, r := range []Reply{{XID: 7}, {XID: 7, Status: ProgramMismatch, Low: 2, High: 3}, {XID: 7, Denied: "no"}, {XID: 1, Status: SystemError}} {
		f.Add(AppendReply(nil, r))
	}
	f.Add([]byte{0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, record []byte) {
		reply, err := ParseReply(record)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || reply != (Reply{}) {
				t.Errorf("%+v, %v", reply, err)
			}
			return
		}
		if reply.Denied != "" {
			return // the reason is words, which do not encode
		}
		again, err := ParseReply(AppendReply(nil, reply))
		if err != nil || again != reply {
			t.Errorf("%+v became %+v, %v", reply, again, err)
		}
	})
}

func FuzzParseCall(f *testing.F) {
	f.Add(NullCall(1, 100003, 4))
	f.Add(NullCall(1, 2, 3)[:30])
	f.Fuzz(func(t *testing.T, record []byte) {
		call, err := ParseCall(record)
		if err != nil && (!errors.Is(err, ErrMalformed) || call != Call{}) {
			t.Errorf("%+v, %v", call, err)
		}
	})
}

func FuzzReadRecord(f *testing.F) {
	f.Add([]byte{0x80, 0, 0, 1, 'a'})
	f.Add([]byte{0, 0, 0, 1, 'a', 0x80, 0, 0, 1, 'b'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		record, err := ReadRecord(bytes.NewReader(stream))
		if len(record) > MaxRecord || len(record) > len(stream) || err != nil && record != nil {
			t.Errorf("%d bytes from %d, %v", len(record), len(stream), err)
		}
	})
}
