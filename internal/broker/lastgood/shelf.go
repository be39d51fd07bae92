package lastgood

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// Shelf is a directory with one file for each fleet. Make it with Open.
type Shelf struct {
	dir  string
	disk wholefile.Disk
}

// suffix ends the names of files.
const suffix = ".view"

// Open makes the directory if it is not there, and takes out what an interrupted writing has left.
func Open(dir string) (*Shelf, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of last good views: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"+suffix+wholefile.Partial))
	if err != nil {
		return nil, fmt.Errorf("looking into the directory of last good views: %w", err)
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("removing an incomplete last good view: %w", err)
		}
	}
	return &Shelf{dir: dir}, nil
}

// path is where a fleet is kept. Fleets' names have no letter that means something to a file system but these.
func (s *Shelf) path(fleet string) string {
	name := strings.NewReplacer("%", "%25", "/", "%2f", ".", "%2e").Replace(fleet)
	return filepath.Join(s.dir, name+suffix)
}

// Save writes a record. If it cannot, the file that was there is still there.
func (s *Shelf) Save(r *Record) error {
	text, err := Encode(r)
	if err != nil {
		return err
	}
	if err := s.disk.Replace(s.path(r.Fleet), text); err != nil {
		return fmt.Errorf("keeping the last good view of fleet %s (the older one stays): %w", r.Fleet, err)
	}
	return nil
}

// Load reads the record of a fleet. None and no error means that there is no file. A file that cannot be believed is an error, and is left
// for whoever wants to look at it; the next Save replaces it.
func (s *Shelf) Load(fleet string) (*Record, error) {
	path := s.path(fleet)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the last good view of fleet %s: %w", fleet, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxRecord+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("reading the last good view of fleet %s: %w", fleet, err)
	}
	r, err := Decode(fleet, text)
	if err != nil {
		return nil, fmt.Errorf("the last good view of fleet %s in %s is not used: %w", fleet, path, err)
	}
	return r, nil
}

// Forget removes the record of a fleet that is no longer linked.
func (s *Shelf) Forget(fleet string) error {
	if err := os.Remove(s.path(fleet)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting the last good view of fleet %s: %w", fleet, err)
	}
	return nil
}
