package broker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// Digest is the SHA-256 of rules as text: the same for brokers that have the same ones.
type Digest [sha256.Size]byte

// ruled is the rules at one moment, in every form that they are needed in. It is never changed.
type ruled struct {
	book   *rules.Book
	table  *rules.Table
	faults []rules.Fault // that the table has by itself
	text   []byte
	digest Digest
	kept   bool // there are rules, or have been
}

func newRuled(book *rules.Book, kept bool) *ruled {
	r := &ruled{book: book, kept: kept, text: rules.Encode(book)}
	r.table, r.faults = book.Compile()
	r.digest = sha256.Sum256(r.text)
	return r
}

// readRules reads the rules on disk; none if there is no file.
func readRules(dir string) (*ruled, error) {
	path := filepath.Join(dir, rulesFile)
	text, err := readBounded(path, rules.MaxEncoded)
	if errors.Is(err, fs.ErrNotExist) {
		return newRuled(&rules.Book{}, false), nil
	}
	var book *rules.Book
	if err == nil {
		book, err = rules.Decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the rules in %s are not used, and nothing is launched without them: %w; put the file back as it was, take another broker's, or remove it to begin without rules", path, err)
	}
	return newRuled(book, true), nil
}

// adopt makes rules those that count, once they are on disk. The caller has b.changing.
func (b *Broker) adopt(next *ruled) error {
	if err := b.makeDir(); err != nil {
		return err
	}
	path := filepath.Join(b.options.Dir, rulesFile)
	if err := wholefile.Replace(path, next.text); err != nil {
		return refused("keeping the rules in %s: %v; the ones before still count", path, err)
	}
	b.rules.Store(next)
	return nil
}

// Rules are the rules that count, and their digest.
func (b *Broker) Rules() (*rules.Book, Digest) {
	r := b.rules.Load()
	return r.book, r.digest
}

// RuleFaults are what is wrong with the rules, now.
func (b *Broker) RuleFaults() []rules.Fault {
	r := b.rules.Load()
	return append(r.faults[:len(r.faults):len(r.faults)], r.book.Dangling(b.knows())...)
}

// Put sets a rule. It returns what is wrong with it as things are, which keeps it from nothing: a fleet may be linked later.
func (b *Broker) Put(value rules.Value, operator, reason string) ([]rules.Fault, error) {
	return b.change(value.Key(), "set", operator, reason, func(book *rules.Book, by rules.Author) (*rules.Book, error) {
		return book.Put(value, by, time.Now())
	})
}

// Remove removes a rule.
func (b *Broker) Remove(key rules.Key, operator, reason string) error {
	_, err := b.change(key, "removed", operator, reason, func(book *rules.Book, by rules.Author) (*rules.Book, error) {
		next, err := book.Remove(key, by, time.Now())
		if _, there := book.Get(key); err != nil && !there {
			return nil, fmt.Errorf("%w: %w; holdfast broker rules list has those that there are", ErrNoRule, err)
		}
		return next, err
	})
	return err
}

// change makes one change of the rules, and tells the other brokers.
func (b *Broker) change(key rules.Key, what, operator, reason string, do func(*rules.Book, rules.Author) (*rules.Book, error)) ([]rules.Fault, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	book, err := do(b.rules.Load().book, rules.Author{Origin: b.options.Name, Operator: operator, Reason: reason})
	if err != nil {
		if errors.Is(err, ErrNoRule) {
			return nil, err
		}
		return nil, refused("%v", err)
	}
	next := newRuled(book, true)
	if err := b.adopt(next); err != nil {
		return nil, err
	}
	b.options.Event("broker.rule-changed", key.String(), fmt.Sprintf("%s was %s by %s", key, what, operator), map[string]string{"reason": reason})
	b.exchange.wish()
	var about []rules.Fault
	for _, fault := range b.RuleFaults() {
		if fault.Key == key {
			about = append(about, fault)
		}
	}
	return about, nil
}

// merge brings another broker's rules and these together.
func (b *Broker) merge(from string, other *rules.Book) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.closed {
		return ErrClosed
	}
	before := b.rules.Load()
	merged, err := rules.Merge(before.book, other)
	if err != nil {
		return err
	}
	if merged = merged.Trimmed(); merged.Equal(before.book) {
		return nil
	}
	next := newRuled(merged, true)
	if len(next.text) > rules.MaxEncoded {
		return fmt.Errorf("together the rules have %d bytes, at most %d are kept", len(next.text), rules.MaxEncoded)
	}
	if err := b.adopt(next); err != nil {
		return err
	}
	b.options.Event("broker.rules-merged", from, "the rules of broker "+from+" are merged with those of this one", nil)
	return nil
}
