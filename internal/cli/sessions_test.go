package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/holdfast/holdfast/internal/broker/recording"
)

// recordedSessions makes a directory with two recordings: alice's is whole, bob's was cut off.
func recordedSessions(t *testing.T, recipients ...age.Recipient) string {
	t.Helper()
	dir := t.TempDir()
	store, err := recording.NewStore(recording.Options{Directory: dir, MinFree: 1, Recipients: recipients})
	if err != nil {
		t.Fatal(err)
	}
	for i, who := range []string{"alice", "bob"} {
		began := now.Add(-time.Duration(2-i) * time.Hour)
		id := recording.NewSessionID(began, [8]byte{byte(i)})
		w, err := store.Begin(recording.Header{Width: 80, Height: 24, Timestamp: began.Unix(), Session: recording.About{
			ID: id + ".1", Session: id, Who: who, Target: "db1:22", Account: "postgres", Gateway: "gw1", Kind: "shell", Began: began.Format(time.RFC3339),
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Output(time.Second, []byte("the \x1b[1mneedle\x1b[0m of "+who+"\r\n\x1b]0;title\x07")); err != nil {
			t.Fatal(err)
		}
		if who == "alice" {
			err = w.Close(2 * time.Second)
		} else {
			err = w.Flush(2 * time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSessions: what is listed, found and played.
func TestSessions(t *testing.T) {
	dir := recordedSessions(t)
	const list = `ID                                   BEGAN                 WHO    ACCOUNT   TARGET  KIND   LENGTH  STATE
20261105T110000Z-0100000000000000.1  2026-11-05T11:00:00Z  bob    postgres  db1:22  shell  1s      unended
20261105T100000Z-0000000000000000.1  2026-11-05T10:00:00Z  alice  postgres  db1:22  shell  2s      whole
`
	for _, c := range []struct{ line, out, err string }{
		{"sessions list", list, ""},
		{"sessions list --who carol", "No recorded session.\n", ""},
		{"sessions search NEEDLE --who alice", "ID                                   WHO    TARGET  AT  LINE\n20261105T100000Z-0000000000000000.1  alice  db1:22  1s  the needle of alice\n", ""},
		{"sessions search title", "Nothing was found.\n", ""},
		{"sessions play 20261105T10 --text", "    1.000  the needle of alice\n    2.000  [end of session]\n", ""},
		{"sessions play 20261105T11 --text", "    1.000  the needle of bob\n", "the recording has no end"},
		{"sessions play 20261105T10 --speed 1000", "the \x1b[1mneedle\x1b[0m of alice\r\n\x0f\x1b(B\x1b[0m\x1b7\x1b[r\x1b8\x1b[4l\x1b[?5l\x1b[?7h\x1b[?25h\x1b[?1049l\r\n", "alice as postgres on db1:22, 80x24"},
	} {
		r := run(t, "", "", append(strings.Fields(c.line), "--dir", dir)...)
		if r.code != 0 || r.out != c.out || !strings.Contains(r.err, c.err) {
			t.Errorf("holdfast %s: exit code %d, printed\n%s\nsaid %s", c.line, r.code, r.out, r.err)
		}
	}
	if r := run(t, "", "", "sessions", "list", "--dir", dir, "--since", "90m", "-o", "json"); strings.Count(r.out, `"id"`) != 1 || !strings.Contains(r.out, `"who": "bob"`) {
		t.Errorf("within 90 minutes: %s", r.out)
	}
}

// TestSessionsRefused: what cannot be done is said, with what to do.
func TestSessionsRefused(t *testing.T) {
	dir := recordedSessions(t)
	for line, c := range map[string]struct {
		code int
		says string
	}{
		"sessions play 2026 --dir " + dir:                             {1, "more than one recording begins with"},
		"sessions play nothing --dir " + dir:                          {1, "there is no recording"},
		"sessions play x --speed 0 --dir " + dir:                      {2, "--speed 0"},
		"sessions play x --idle-limit -1s --dir " + dir:               {2, "--idle-limit"},
		"sessions list --limit 0 --dir " + dir:                        {2, "--limit 0: write 1 to 100000"},
		"sessions list --dir " + filepath.Join(dir, "missing"):        {1, "name the gateway's with --dir"},
		"sessions search":                                             {2, "needs TEXT"},
		"sessions play 20261105T10 --identity /dev/null --dir " + dir: {1, "not a file of identities"},
	} {
		if r := run(t, "", "", strings.Fields(line)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("holdfast %s: %d, %s", line, r.code, r.err)
		}
	}
}

// TestSealedSessions: encrypted recordings are listed without a key, and read with one.
func TestSealedSessions(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := recordedSessions(t, identity.Recipient())
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "", "sessions", "list", "--dir", dir); r.code != 0 || strings.Count(r.out, "db1:22") != 2 {
		t.Errorf("listed: %+v", r)
	}
	if r := run(t, "", "", "sessions", "search", "needle", "--dir", dir); strings.Count(r.err, "the recording is encrypted, and none") != 2 {
		t.Errorf("without key: %+v", r)
	}
	if r := run(t, "", "", "sessions", "search", "needle", "--dir", dir, "--identity", key); strings.Count(r.out, "the needle of") != 2 || r.err != "" {
		t.Errorf("with key: %+v", r)
	}
}
