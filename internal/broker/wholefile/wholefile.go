// Package wholefile replaces files that have to be whole, and notices when files were replaced.
//
// It guarantees that after Replace, whether it fails or succeeds, also when the disk is full, the power fails or the process is killed, a
// file is the older one or the new one; and that after a Replace without an error it is the new one, also after a power cut. What was
// being written then is left beside it, under a name that the next Replace takes.
//
// A file has one writer at a time; who that is, is for the callers to see to. It reads nothing, but tells whether a file has changed since it was read (State).
package wholefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Partial follows the name of a file while it is not complete.
const Partial = ".partial"

// Disk is what of writing can fail in ways that a test wants to see. The zero Disk is the operating system's.
type Disk struct {
	Write func(*os.File, []byte) (int, error)
	Sync  func(*os.File) error
}

// Replace makes text what is in a file that only its owner may read. If it cannot, the file that was there is still there.
func Replace(path string, text []byte) error { return Disk{}.Replace(path, text) }

// Replace does so on a disk: it writes beside, makes that durable, puts it in the place of the file, and makes that durable.
func (d Disk) Replace(path string, text []byte) (err error) {
	if d.Write == nil {
		d.Write = (*os.File).Write
	}
	if d.Sync == nil {
		d.Sync = (*os.File).Sync
	}
	beside := path + Partial
	defer func() {
		if err != nil {
			if left := os.Remove(beside); left != nil && !errors.Is(left, fs.ErrNotExist) {
				err = errors.Join(err, left)
			}
		}
	}()
	if err := d.fill(beside, text); err != nil {
		return err
	}
	if err := os.Rename(beside, path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(directory), directory.Close())
}

func (d Disk) fill(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := d.Write(file, text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = d.Sync(file)
	}
	return errors.Join(err, file.Close())
}
