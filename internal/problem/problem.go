// Package problem is the one register of what can be wrong: every problem has a code, a severity, what it means and
// what to do, and every face (status, API, metrics, console) shows the same active ones.
//
// Kinds are defined once, at program start, as package variables next to the code that detects them. A Board is safe
// for concurrent use. The package decides nothing and tells nobody by itself: faces read the Board.
package problem

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Severity orders problems by what they cost a client.
type Severity string

// Severities, mildest first.
const (
	Info     Severity = "info"     // worth knowing; clients lose nothing
	Warning  Severity = "warning"  // redundancy or quality is reduced
	Error    Severity = "error"    // some clients are or soon will be affected
	Critical Severity = "critical" // clients are losing service
)

// Kind is one kind of problem.
type Kind struct {
	Code     string // stable, dotted, lower case, such as "address.conflict"
	Severity Severity
	Meaning  string // one sentence
	Remedy   string // what the operator should do, one or two sentences
}

var (
	kindsMu sync.Mutex
	kinds   = map[string]*Kind{}
)

// Define registers a kind. It panics on a code that is empty or already taken: both are programming errors that
// must show at start.
func Define(k Kind) *Kind {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	if k.Code == "" || k.Meaning == "" || k.Remedy == "" || k.Severity == "" {
		panic(fmt.Sprintf("problem: incomplete kind %+v", k))
	}
	if _, taken := kinds[k.Code]; taken {
		panic("problem: code defined twice: " + k.Code)
	}
	kinds[k.Code] = &k
	return &k
}

// Kinds returns every defined kind, sorted by code.
func Kinds() []*Kind {
	kindsMu.Lock()
	defer kindsMu.Unlock()
	return slices.SortedFunc(maps.Values(kinds), func(a, b *Kind) int { return cmp.Compare(a.Code, b.Code) })
}

// Active is one problem that is present now.
type Active struct {
	Kind    *Kind
	Subject string // what is concerned: an address, an interface, a node, a pool
	Detail  string // this occurrence in one line
	Since   time.Time
}

// maxActive bounds a Board. More than this many different problems on one node is itself the problem: while a Board is full and
// something did not fit, it lists Full too, and counts in Dropped.
const maxActive = 1024

// Full is the problem of a Board that had no place for another one.
var Full = Define(Kind{
	Code: "problem.list-full", Severity: Warning,
	Meaning: "This node has more problems than it keeps; those that came later are not shown.",
	Remedy:  "Look at what those that are shown have in common, and solve that first. holdfast_agent_problems_dropped_total counts what was not kept.",
})

// Board holds the problems that are present on one node. The zero Board is ready to use.
type Board struct {
	mu      sync.Mutex
	active  map[key]Active
	dropped int
	full    time.Time // since when something does not fit; zero: everything does
}

type key struct{ code, subject string }

// Set says that the problem is present. Repeating it keeps Since and updates the detail.
func (b *Board) Set(kind *Kind, subject, detail string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key{kind.Code, subject}
	since := now
	if old, present := b.active[k]; present {
		since = old.Since
	} else if len(b.active) >= maxActive {
		b.dropped++
		if b.full.IsZero() {
			b.full = now
		}
		return
	}
	if b.active == nil {
		b.active = map[key]Active{}
	}
	b.active[k] = Active{Kind: kind, Subject: subject, Detail: detail, Since: since}
}

// Clear says that the problem is over. Clearing what is not present does nothing.
func (b *Board) Clear(kind *Kind, subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.active, key{kind.Code, subject})
	if len(b.active) < maxActive {
		b.full = time.Time{}
	}
}

// Is sets the problem when present is true and clears it otherwise.
func (b *Board) Is(present bool, kind *Kind, subject, detail string, now time.Time) {
	if present {
		b.Set(kind, subject, detail, now)
	} else {
		b.Clear(kind, subject)
	}
}

// List returns the problems that are present, sorted by code and subject, and Full among them while there are more.
func (b *Board) List() []Active {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := slices.Collect(maps.Values(b.active))
	if !b.full.IsZero() {
		list = append(list, Active{Kind: Full, Detail: fmt.Sprintf("%d problems are shown, and there are more", len(b.active)), Since: b.full})
	}
	slices.SortFunc(list, func(x, y Active) int {
		return cmp.Or(cmp.Compare(x.Kind.Code, y.Kind.Code), cmp.Compare(x.Subject, y.Subject))
	})
	return list
}

// Dropped counts how often a problem did not fit on the board.
func (b *Board) Dropped() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
