package wholefile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever fails, the older file stays whole, the error says what it was, and nothing is left beside.
func TestAFailureKeepsTheOlderFile(t *testing.T) {
	for name, fails := range map[string]Disk{
		"no space at once": {Write: func(*os.File, []byte) (int, error) { return 0, syscall.ENOSPC }},
		"no space halfway": {Write: func(f *os.File, b []byte) (int, error) {
			n, _ := f.Write(b[:len(b)/2])
			return n, syscall.ENOSPC
		}},
		"short without an error": {Write: func(f *os.File, b []byte) (int, error) { return f.Write(b[:len(b)/2]) }},
		"not durable":            {Sync: func(*os.File) error { return syscall.EIO }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "rules")
			must(t, Replace(path, []byte("older")))
			if err := fails.Replace(path, []byte("the new one")); err == nil || !slices.ContainsFunc([]string{"no space", "short write", "input/output"}, func(s string) bool {
				return strings.Contains(err.Error(), s)
			}) {
				t.Errorf("told: %v", err)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != "older" {
				t.Errorf("it has %q, %v", text, err)
			}
			if files, _ := os.ReadDir(dir); len(files) != 1 {
				t.Errorf("files %v", files)
			}
		})
	}
}

// A file is durable before it gets its name, and so is the name before the caller hears that it is done.
func TestBothTheFileAndItsNameAreDurable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	var synced []string
	disk := Disk{Sync: func(f *os.File) error {
		_, err := os.Stat(path)
		named := "named"
		if errors.Is(err, os.ErrNotExist) {
			named = "not yet named"
		}
		synced = append(synced, filepath.Base(f.Name())+" "+named)
		return f.Sync()
	}}
	must(t, disk.Replace(path, []byte("x")))
	if want := []string{"rules.partial not yet named", filepath.Base(filepath.Dir(path)) + " named"}; !slices.Equal(synced, want) {
		t.Errorf("durable were %q, want %q", synced, want)
	}
}

// What a killed process has left beside a file is no part of the next one.
func TestWhatAKilledProcessLeftIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	must(t, os.WriteFile(path+Partial, []byte("half of something longer"), 0o600))
	must(t, Replace(path, []byte("new")))
	text, err := os.ReadFile(path)
	info, missing := os.Stat(path)
	if err != nil || missing != nil || string(text) != "new" || info.Mode() != 0o600 {
		t.Errorf("it has %q, %v, %v", text, err, info)
	}
	if _, err := os.Stat(path + Partial); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("beside: %v", err)
	}
}
