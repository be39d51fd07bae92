package token

import (
	"time"
)

// Spent remembers which tokens a gateway has accepted, until they would have expired anyway. It is bounded: when it is full of tokens
// that have not expired, the next one is refused. It is not forgetful instead, since a token that is forgotten could be used twice.
// It belongs to one caller at a time.
type Spent struct {
	most int
	seen map[ID]time.Time // the token, and when it may be forgotten
	next time.Time        // before this time nothing in it can be forgotten
}

// NewSpent makes an empty memory for at most so many tokens at once.
func NewSpent(most int) *Spent { return &Spent{most: most, seen: map[ID]time.Time{}} }

// Count is how many tokens are remembered.
func (s *Spent) Count() int { return len(s.seen) }

// Spend marks a grant as used. It fails with Used if it was before, and with Full at the bound. The grant has been checked at the same time.
func (s *Spent) Spend(g Grant, now time.Time) error {
	if _, used := s.seen[g.ID]; used {
		return refuse(Used, "The session token was used before. %s", again)
	}
	if len(s.seen) >= s.most {
		s.forget(now)
	}
	if len(s.seen) >= s.most {
		return refuse(Full, "The gateway has accepted %d sessions within minutes and remembers no more tokens. Try again in a minute, or at another gateway.", s.most)
	}
	s.Remember(g.ID, g.RememberUntil())
	return nil
}

// Return takes back that a token was used, for a session that did not begin by it.
func (s *Spent) Return(id ID) { delete(s.seen, id) }

// RememberUntil is how long a gateway remembers that the token was used. A clock that is set back must not make a token good again that was forgotten
// as expired: it is kept for as long again as any token may live.
func (g Grant) RememberUntil() time.Time { return g.Expires.Add(MaxValidity) }

// Remember marks a token as used that was before this memory began, by what was written down then. The bound does not hold for it: what
// is over it makes the next ones wait.
func (s *Spent) Remember(id ID, until time.Time) {
	s.seen[id] = until
	if s.next.IsZero() || until.Before(s.next) {
		s.next = until
	}
}

// forget drops what has expired. It looks through everything only when something can be found.
func (s *Spent) forget(now time.Time) {
	if now.Before(s.next) {
		return
	}
	s.next = time.Time{}
	for id, until := range s.seen {
		if !now.Before(until) {
			delete(s.seen, id)
		} else if s.next.IsZero() || until.Before(s.next) {
			s.next = until
		}
	}
}
