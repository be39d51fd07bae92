package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Record is a typed entry: its value is JSON.
type Record[T any] struct {
	Key      string
	Value    T
	Revision int64
	Lease    LeaseID
}

// GetRecord reads and decodes one record. ErrDamaged: the value is not a T.
func GetRecord[T any](ctx context.Context, s Store, key string) (Record[T], bool, error) {
	entry, found, err := s.Get(ctx, key)
	if err != nil || !found {
		return Record[T]{}, false, err
	}
	record, err := DecodeRecord[T](entry)
	return record, err == nil, err
}

// ListRecords reads and decodes the records under prefix. Damaged ones are left out and reported together in the error,
// beside the good ones and the revision: one bad record must not hide the others.
func ListRecords[T any](ctx context.Context, s Store, prefix string) ([]Record[T], int64, error) {
	entries, revision, err := s.List(ctx, prefix)
	if err != nil {
		return nil, 0, err
	}
	records := make([]Record[T], 0, len(entries))
	var damaged []error
	for _, entry := range entries {
		record, err := DecodeRecord[T](entry)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		records = append(records, record)
	}
	return records, revision, errors.Join(damaged...)
}

// DecodeRecord decodes an entry, strictly: exactly one JSON value, no field that T does not have. A field that this
// version does not know may be the one that forbids what it is about to do.
func DecodeRecord[T any](entry Entry) (Record[T], error) {
	record := Record[T]{Key: entry.Key, Revision: entry.Revision, Lease: entry.Lease}
	decoder := json.NewDecoder(bytes.NewReader(entry.Value))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&record.Value)
	if err == nil {
		if _, trailing := decoder.Token(); !errors.Is(trailing, io.EOF) {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return Record[T]{}, fmt.Errorf("reading record %q at revision %d: %w (%s)", entry.Key, entry.Revision, ErrDamaged, reason(err))
	}
	return record, nil
}

// reason says what is wrong with a JSON text without naming types of this program.
func reason(err error) string {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return fmt.Sprintf("field %q cannot be a %s", mismatch.Field, mismatch.Value)
	}
	return err.Error()
}

// PutOp is the operation that stores value as JSON under key, bound to lease unless that is zero.
func PutOp[T any](key string, value T, lease LeaseID) (Op, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding record %q: %w", key, err)
	}
	return Put{Key: key, Value: data, Lease: lease}, nil
}

// Unchanged is the condition that nobody has changed the record since it was read.
func (r Record[T]) Unchanged() Condition { return Condition{Key: r.Key, Revision: r.Revision} }

// Absent is the condition that the key does not exist.
func Absent(key string) Condition { return Condition{Key: key} }
