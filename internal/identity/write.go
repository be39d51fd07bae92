package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
)

type newFile struct {
	name string
	data []byte
	mode fs.FileMode
}

// prepareDir creates dir when it is absent and refuses when one of the named files is already there.
func prepareDir(dir, remedy string, names ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the identity directory: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s already exists and is not overwritten: %s", path, remedy)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking at %s: %w", path, err)
		}
	}
	return nil
}

// writeAll writes files in order, each whole or not at all and durable before the next begins. The last one is the sign
// that the set is complete.
func writeAll(dir string, files ...newFile) error {
	for _, f := range files {
		if err := writeOnce(dir, f); err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return nil
}

// writeOnce writes a temporary file, makes it durable, and gives it its name by a hard link, which unlike a rename fails
// when the name was taken in the meantime.
func writeOnce(dir string, f newFile) (err error) {
	temp, err := os.CreateTemp(dir, "."+f.name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.Remove(temp.Name()))
	}()
	if err := fill(temp, f); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), filepath.Join(dir, f.name)); err != nil {
		return err
	}
	directory, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

func fill(file *os.File, f newFile) error {
	_, err := file.Write(f.data)
	if err == nil {
		err = file.Chmod(f.mode)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// newSerial returns a random certificate serial number of 127 bits (RFC 5280 section 4.1.2.2: positive, at most 20 bytes).
func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
