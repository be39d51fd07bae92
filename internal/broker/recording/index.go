package recording

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// State is how far a recording is.
type State string

const (
	// Whole: the session was ended, and all of it is there.
	Whole State = "whole"
	// Unended: the session is running, or the recording was cut off by a crash; it reads up to where it was flushed.
	Unended State = "unended"
	// Damaged: not even its first line can be read.
	Damaged State = "damaged"
)

// Entry is one recording in a list.
type Entry struct {
	File    string  `json:"file"` // within the folder of its day
	About   About   `json:"about"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	State   State   `json:"state"`
}

// indexName is the index of one day: a line of JSON for each recording that has ended. It saves reading the recordings to list them. What is not
// in it is read, and where it is missing it is made anew.
const indexName = "index.jsonl"

func appendIndex(folder string, e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	index, err := os.OpenFile(filepath.Join(folder, indexName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("entering a recording into the index: %w", err)
	}
	_, err = index.Write(append(line, '\n'))
	return errors.Join(err, index.Close())
}

// readIndex returns the entries of a day, and whether there was an index. Lines that are damaged are skipped: what they were about is read from
// the recordings.
func readIndex(folder string) (map[string]Entry, bool, error) {
	file, err := os.Open(filepath.Join(folder, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Entry{}, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the index of recordings: %w", err)
	}
	defer file.Close()
	entries, lines := map[string]Entry{}, bufio.NewReader(file)
	for {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return entries, true, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading the index %s: %w", file.Name(), err)
		}
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.File != "" {
			entries[e.File] = e
		}
	}
}

// maxDay bounds the recordings of one day that are listed.
const maxDay = 200_000

// days returns the folders of days, the last one first.
func (s *Store) days() ([]string, error) {
	found, err := os.ReadDir(s.options.Directory)
	if err != nil {
		return nil, fmt.Errorf("listing recordings: %w", err)
	}
	var days []string
	for _, f := range found {
		if _, err := time.Parse(dayForm, f.Name()); err == nil && f.IsDir() {
			days = append(days, f.Name())
		}
	}
	slices.Sort(days)
	slices.Reverse(days)
	return days, nil
}

// List returns up to limit recordings, the last begun first. Keep, if not nil, says which.
func (s *Store) List(limit int, keep func(Entry) bool) ([]Entry, error) {
	days, err := s.days()
	if err != nil {
		return nil, err
	}
	var list []Entry
	for _, day := range days {
		entries, err := s.day(day)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if len(list) == limit {
				return list, nil
			}
			if keep == nil || keep(e) {
				list = append(list, e)
			}
		}
	}
	return list, nil
}

// day lists one day, the last begun first, and makes its index anew if it is missing.
func (s *Store) day(day string) ([]Entry, error) {
	folder := filepath.Join(s.options.Directory, day)
	indexed, there, err := readIndex(folder)
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("listing recordings: %w", err)
	}
	if len(files) > maxDay {
		return nil, fmt.Errorf("%s holds more than %d recordings; move some elsewhere", folder, maxDay)
	}
	var list []Entry
	for _, f := range files {
		id, ours := strings.CutSuffix(strings.TrimSuffix(f.Name(), ".age"), plainSuffix)
		if !ours || !f.Type().IsRegular() {
			continue
		}
		e, known := indexed[f.Name()]
		if !known {
			e = look(folder, f.Name(), id)
			if !there && e.State == Whole {
				_ = appendIndex(folder, e) // it is only slower without; who lists may not even be allowed to write
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return -cmp.Compare(a.About.ID, b.About.ID) })
	return list, nil
}

// look finds out about a recording from itself. Of an encrypted one it needs no identity for who it is about; how long it is remains unknown.
func look(folder, name, id string) Entry {
	e := Entry{File: name, About: About{ID: id}, State: Damaged}
	path := filepath.Join(folder, name)
	if info, err := os.Stat(path); err == nil {
		e.Bytes = info.Size()
	}
	r, err := Open(path, nil)
	if errors.Is(err, ErrSealed) {
		return lookSealed(path, e)
	}
	if err != nil {
		return e
	}
	defer r.Close()
	length, whole, err := r.length()
	e.About, e.Seconds, e.State = r.Header.Session, length.Seconds(), Unended
	if whole && err == nil {
		e.State = Whole
	}
	return e
}

func lookSealed(path string, e Entry) Entry {
	file, err := os.Open(path)
	if err != nil {
		return e
	}
	defer file.Close()
	lines, err := openLines(file, nil)
	if err != nil {
		return e
	}
	e.About, e.State = lines.about, Unended
	return e
}
