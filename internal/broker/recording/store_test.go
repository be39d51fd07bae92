package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

// TestFullDisk: below the limit nothing new begins, and what is running goes on.
func TestFullDisk(t *testing.T) {
	free := uint64(11 << 20)
	store := testStore(t, func(o *Options) {
		o.MinFree, o.Free = 10<<20, func(string) (uint64, error) { return free, nil }
	})
	running := begin(t, store, header(0))
	free = 9 << 20
	_, err := store.Begin(header(1), nil)
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "9 MiB are free") {
		t.Errorf("got %v", err)
	}
	must(t, running.Output(0, []byte("still here")), running.Close(time.Second))
}

// TestQuota: the recordings of one session end, each whole, when together they are as large as they may be; none begins then, and those of others go on.
func TestQuota(t *testing.T) {
	const most = 1 << 20
	sealed, _ := sealedStore(t)
	for name, store := range map[string]*Store{"plain": testStore(t, nil), "encrypted": sealed} {
		quota := NewQuota(most)
		var writers []*Writer
		for n := range byte(2) {
			w, err := store.Begin(header(n), quota)
			must(t, err)
			writers = append(writers, w)
		}
		var err error
		for n := 0; err == nil; n++ {
			if err = writers[n%2].Output(0, bytes.Repeat([]byte{0x1b}, 1000)); n > most/1000 { // each becomes six bytes of JSON
				t.Fatalf("%s: there is no end", name)
			}
		}
		if !errors.Is(err, ErrQuota) {
			t.Fatalf("%s: %v", name, err)
		}
		must(t, writers[0].Close(time.Second), writers[1].Close(time.Second))
		if _, err := store.Begin(header(2), quota); !errors.Is(err, ErrQuota) {
			t.Errorf("%s: another one begins: %v", name, err)
		}
		list, err := store.List(3, nil)
		must(t, err)
		if len(list) != 2 || list[0].State != Whole || list[1].State != Whole {
			t.Fatalf("%s: listed as %+v", name, list)
		}
		if sum := list[0].Bytes + list[1].Bytes; sum < most/2 || sum > most+2*(flushAt+6*maxData) {
			t.Errorf("%s: they have %d bytes, of %d", name, sum, most)
		}
		must(t, begin(t, store, header(3)).Output(0, []byte("another session")))
	}
	store, quota := testStore(t, nil), NewQuota(10*ofFile)
	for n := range byte(20) { // files cost something, however little is in them
		w, err := store.Begin(header(n), quota)
		if errors.Is(err, ErrQuota) {
			if n > 10 {
				t.Errorf("%d files", n)
			}
			return
		}
		must(t, err, w.Close(0))
	}
	t.Error("there is no end of files")
}

// TestIndex: listing reads the index, does without it, makes it anew, and does not trust it about files that are gone.
func TestIndex(t *testing.T) {
	store := testStore(t, nil)
	for n := range byte(3) {
		w := begin(t, store, header(n))
		must(t, w.Output(0, []byte("x")), w.Close(time.Duration(n)*time.Second))
	}
	ids := func() (got []string) {
		list, err := store.List(10, func(e Entry) bool { return e.About.Who == "alice" })
		must(t, err)
		for _, e := range list {
			got = append(got, fmt.Sprintf("%s %g %s", e.About.ID[:16], e.Seconds, e.State))
		}
		return got
	}
	want := []string{"20260301T120200Z 2 whole", "20260301T120100Z 1 whole", "20260301T120000Z 0 whole"}
	index := filepath.Join(store.options.Directory, "2026-03-01", indexName)
	if diff := cmp.Diff(want, ids()); diff != "" {
		t.Error(diff)
	}
	must(t, os.Remove(index))
	if diff := cmp.Diff(want, ids()); diff != "" {
		t.Error("without index: " + diff)
	}
	made, err := os.ReadFile(index)
	must(t, err)
	if bytes.Count(made, []byte("\n")) != 3 {
		t.Errorf("made anew: %s", made)
	}
	must(t, os.WriteFile(index, append([]byte("{garbled\n"), made[:len(made)-20]...), 0o600))
	if diff := cmp.Diff(want, ids()); diff != "" {
		t.Error("with a damaged index: " + diff)
	}
	must(t, os.Remove(filepath.Join(store.options.Directory, "2026-03-01", header(1).Session.ID+plainSuffix)))
	if diff := cmp.Diff([]string{want[0], want[2]}, ids()); diff != "" {
		t.Error("with a file gone: " + diff)
	}
}

func TestFind(t *testing.T) {
	store := testStore(t, nil)
	must(t, begin(t, store, header(0)).Close(0), begin(t, store, header(1)).Close(0))
	for id, want := range map[string]string{"20260301T1201": "", "2026": "more than one", "nothing": "there is no recording", "": "there is no recording"} {
		r, err := store.Find(id, nil)
		if err == nil {
			r.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", id, err, want)
		}
	}
	h := header(2)
	h.Session.ID = "20260301T120000Z-../../etc"
	if _, err := store.Begin(h, nil); err == nil {
		t.Error("an ID with a path was accepted")
	}
}

// TestSearch: a word is found where it was shown, though escape sequences and writes split it; in commands and markers; and not where it is not.
func TestSearch(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	store := testStore(t, nil)
	w := begin(t, store, header(0))
	must(t, w.Output(time.Second, []byte("nothing\r\nthe \x1b[1mpass")), w.Output(2*time.Second, []byte("\x1b[0mPHRASE file\r\n")), w.Mark(3*time.Second, "sftp: put passphrase.txt"), w.Close(4*time.Second))
	h := header(1)
	h.Command = "cat passphrase"
	must(t, begin(t, store, h).Close(0), os.WriteFile(filepath.Join(store.options.Directory, "2026-03-01", header(2).Session.ID+plainSuffix), []byte("garbage"), 0o600))
	sealed := testStore(t, func(o *Options) {
		o.Directory, o.Recipients = store.options.Directory, []age.Recipient{identity.Recipient()}
	})
	w = begin(t, sealed, header(3))
	must(t, w.Output(0, []byte("another passphrase")), w.Close(0))
	search := func(what string, limit int, identities ...age.Identity) (got []string, skipped int) {
		must(t, store.Search(context.Background(), identities, nil, Containing(what), func(f Found) bool {
			got = append(got, fmt.Sprintf("%s %v %s", f.Entry.About.ID[11:13], f.Line.At, f.Line.Text))
			return len(got) < limit
		}, func(Entry, error) { skipped++ }))
		return got, skipped
	}
	got, skipped := search("passPhrase", 10)
	if diff := cmp.Diff([]string{"01 0s cat passphrase", "00 2s the passPHRASE file", "00 3s sftp: put passphrase.txt"}, got); diff != "" || skipped != 2 {
		t.Error(diff, skipped)
	}
	if got, skipped = search("passphrase", 1, identity); len(got) != 1 || got[0] != "03 0s another passphrase" || skipped != 0 {
		t.Error(got, skipped)
	}
	if got, _ = search("31m", 10); len(got) != 0 {
		t.Error(got)
	}
}

// TestHeaderThatCannotBeRead: a recording whose first line would be too long to read again does not begin.
func TestHeaderThatCannotBeRead(t *testing.T) {
	h := header(1)
	h.Command = strings.Repeat("<", MaxLine/6)
	if _, err := testStore(t, nil).Begin(h, nil); err == nil || !strings.Contains(err.Error(), "can be read again") {
		t.Errorf("got %v", err)
	}
}
