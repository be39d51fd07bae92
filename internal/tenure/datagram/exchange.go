package datagram

// exchange is where this node stands with one other node: what it has been given to be heard there, and what it takes from there.
//
// A message is taken only if it bears the pass that this node gave to the sender's session. A node that has no pass, or one that is no
// longer good, gets it by a hello in answer to what it sent. A pass is drawn at random when the first message of an unknown session
// comes, and becomes the good one, in place of the one before, when a message comes that bears it. So whatever was sealed before
// that, in this life of the sender or an earlier one, is refused from then on, without a memory of sessions that were; and
// whatever was sealed in an earlier life of this node bears a pass that nobody gave.
//
// It is more than naming this node's session would be: datagrams of a sender's earlier life, held back on the way until the sender had
// started again, would name that rightly too.
//
// A hello is believed only if it is said to this node's own session and answers a datagram that is later than any that was answered before. So
// an old hello that somebody repeats takes no good pass away.
type exchange struct {
	// Towards the other node.
	sent     uint64 // the number of the last datagram
	pass     token  // zero: none yet
	answered uint64 // the number of the datagram that the last hello answered

	// From the other node.
	session token // whose messages are taken; counts if given is not zero
	given   token // the pass that they bear
	window  window
	offered token // the pass for a session that is not known yet; zero: none
}

// resume begins an exchange with a node that was a peer before, in this session: its numbers go on, for each of them makes a nonce
// that must not be used twice, and hellos that answer earlier ones are over.
func resume(sent uint64) exchange { return exchange{sent: sent, answered: sent} }

// verdict is what becomes of a message.
type verdict int

const (
	taken    verdict = iota // it is new
	replayed                // it has come before, or is too old to know
	stranger                // it does not bear a good pass: a hello is the answer
)

// admit judges a message whose seal is good.
func (e *exchange) admit(h *header) verdict {
	switch {
	case h.pass == token{}:
		return stranger
	case h.pass == e.offered:
		e.session, e.given, e.offered, e.window = h.session, e.offered, token{}, window{}
	case h.pass != e.given || h.session != e.session:
		return stranger
	}
	if !e.window.take(h.number) {
		return replayed
	}
	return taken
}

// offer returns the pass for a session, for a hello. A session whose messages are taken is told its own again. For any other it is the one
// on offer, which draw makes if there is none.
func (e *exchange) offer(session token, draw func() (token, error)) (token, error) {
	if e.given != (token{}) && session == e.session {
		return e.given, nil
	}
	if e.offered == (token{}) {
		drawn, err := draw()
		if err != nil {
			return token{}, err
		}
		e.offered = drawn
	}
	return e.offered, nil
}

// believe takes the pass that a hello gives, if the hello is newer than the last. It reports whether it is, and whether the pass is
// another than before.
func (e *exchange) believe(h hello) (newer, changed bool) {
	if h.answered <= e.answered || h.answered > e.sent || h.pass == (token{}) {
		return false, false
	}
	changed = h.pass != e.pass
	e.answered, e.pass = h.answered, h.pass
	return true, changed
}

// next numbers a datagram to the other node; false if there are no more numbers, which at a thousand in a second is after
// 8900 years.
func (e *exchange) next() (uint64, bool) {
	if e.sent >= maxNumber {
		return 0, false
	}
	e.sent++
	return e.sent, true
}
