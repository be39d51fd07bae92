package datagram

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// drawing returns tokens 1, 2, 3...
func drawing() func() (token, error) {
	last := byte(0)
	return func() (token, error) { last++; return token{last}, nil }
}

// side is one life of one end: its session, and its exchange with the other end.
type side struct {
	session token
	exchange
}

func (s *side) seal() header {
	n, _ := s.next()
	return header{session: s.session, number: n, pass: s.pass}
}

// greet is one exchange of a message and a hello.
func (s *side) greet(t *testing.T, to *side, draw func() (token, error)) {
	t.Helper()
	h := s.seal()
	if v := to.admit(&h); v != stranger {
		t.Fatalf("a message without a pass is judged %d", v)
	}
	pass, err := to.offer(h.session, draw)
	if err != nil {
		t.Fatal(err)
	}
	if newer, changed := s.believe(hello{pass, h.number}); !newer || !changed {
		t.Fatal("the answer is not believed")
	}
}

func TestRestartsLetNothingBackIn(t *testing.T) {
	draw := drawing()
	receiver, sender := &side{session: token{100}}, &side{session: token{101}}
	sender.greet(t, receiver, draw)
	delivered, heldBack := sender.seal(), sender.seal()
	if v := receiver.admit(&delivered); v != taken {
		t.Fatalf("it is judged %d", v)
	}
	if v := receiver.admit(&delivered); v != replayed {
		t.Errorf("again it is judged %d", v)
	}

	// The sender starts again. What it said before is good until it is heard anew, and never after.
	again := &side{session: token{102}}
	again.greet(t, receiver, draw)
	first := again.seal()
	if v := receiver.admit(&first); v != taken {
		t.Fatalf("it is judged %d", v)
	}
	for _, old := range []header{delivered, heldBack} {
		if v := receiver.admit(&old); v != stranger {
			t.Errorf("what an earlier life said is judged %d", v)
		}
	}
	// Hellos in answer to that go to a session that is no more, and take nothing from the one that is.
	if _, err := receiver.offer(heldBack.session, draw); err != nil {
		t.Fatal(err)
	}
	second := again.seal()
	if v := receiver.admit(&second); v != taken {
		t.Errorf("it is judged %d", v)
	}

	// The receiver starts again: nothing that was said to it before is taken.
	reborn := &side{session: token{103}}
	for _, old := range []header{delivered, heldBack, first, second} {
		if v := reborn.admit(&old); v != stranger {
			t.Errorf("what was said to an earlier life is judged %d", v)
		}
	}
	again.greet(t, reborn, draw)
	third := again.seal()
	if v := reborn.admit(&third); v != taken {
		t.Errorf("it is judged %d", v)
	}
	for _, old := range []header{delivered, heldBack, first, second} {
		if v := reborn.admit(&old); v != stranger {
			t.Errorf("what was said to an earlier life is judged %d", v)
		}
	}
}

// Two lives of a sender got the same pass, for the first was not heard before the second began. Once the second is heard, the first is over.
func TestTwoLivesWithOnePass(t *testing.T) {
	draw := drawing()
	receiver, first, second := &side{session: token{100}}, &side{session: token{101}}, &side{session: token{102}}
	first.greet(t, receiver, draw)
	second.greet(t, receiver, draw)
	if first.pass != second.pass {
		t.Fatal("they have two passes")
	}
	heldBack, now := first.seal(), second.seal()
	if v := receiver.admit(&now); v != taken {
		t.Errorf("the second life is judged %d", v)
	}
	if v := receiver.admit(&heldBack); v != stranger {
		t.Errorf("then the first is judged %d", v)
	}
}

// A message that was on its way when its sender got its pass comes late; the pass stays what it is, so that nothing else is lost.
func TestLateMessageWithoutPass(t *testing.T) {
	draw := drawing()
	receiver, sender := &side{session: token{100}}, &side{session: token{101}}
	late := sender.seal()
	sender.greet(t, receiver, draw)
	h := sender.seal()
	receiver.admit(&h)
	if v := receiver.admit(&late); v != stranger {
		t.Errorf("it is judged %d", v)
	}
	if pass, err := receiver.offer(late.session, draw); err != nil || pass != sender.pass {
		t.Errorf("the sender is told another pass: %v, %v", pass, err)
	}
}

func TestHellosAreBelievedOnceAndInOrder(t *testing.T) {
	s := &side{session: token{100}}
	for range 5 {
		s.seal()
	}
	for _, c := range []struct {
		what          string
		said          hello
		newer, change bool
	}{
		{"one that answers nothing", hello{token{1}, 0}, false, false},
		{"one that answers what was not said", hello{token{1}, 6}, false, false},
		{"one without a pass", hello{token{}, 2}, false, false},
		{"a good one", hello{token{1}, 2}, true, true},
		{"the same again", hello{token{1}, 2}, false, false},
		{"an older one", hello{token{2}, 1}, false, false},
		{"a later one that says the same", hello{token{1}, 3}, true, false},
		{"a later one", hello{token{2}, 5}, true, true},
	} {
		if newer, change := s.believe(c.said); newer != c.newer || change != c.change {
			t.Errorf("%s: %v and %v, want %v and %v", c.what, newer, change, c.newer, c.change)
		}
	}
	if s.pass != (token{2}) {
		t.Errorf("the pass is %v", s.pass)
	}
}

func TestNumbersAreUsedOnce(t *testing.T) {
	e := exchange{sent: maxNumber - 1}
	if n, ok := e.next(); n != maxNumber || !ok {
		t.Errorf("the last number is %d, %v", n, ok)
	}
	if n, ok := e.next(); ok {
		t.Errorf("and then %d", n)
	}
	resumed := resume(41)
	if n, _ := resumed.next(); n != 42 {
		t.Errorf("who comes back gets the number %d", n)
	}
	if newer, _ := resumed.believe(hello{token{1}, 41}); newer {
		t.Error("a hello from before is believed")
	}
	if _, err := new(exchange).offer(token{1}, func() (token, error) { return token{}, errors.New("none left") }); err == nil {
		t.Error("a pass without random bytes")
	}
}

// TestExchangeProperty lets two nodes talk over a network that loses, keeps, repeats and reorders everything, and start again at any time. No
// message is taken twice; none is taken that was sealed in an earlier life than another that was taken, or for an earlier life of
// the receiver; and once the network is sound, one message and the hello suffice.
func TestExchangeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type flight struct {
			header
			toLife int
		}
		draw := drawing()
		lives := byte(200)
		life := func() token { lives++; return token{0, lives} }
		sender, receiver := &side{session: life()}, &side{session: life()}
		receiverLife := 0
		var messages []flight
		type said struct {
			hello
			to token
		}
		var hellos []said
		once := map[token]map[uint64]bool{}
		order := map[token]int{sender.session: 0}
		newest := 0
		deliver := func(f flight) bool {
			switch receiver.admit(&f.header) {
			case taken:
				if f.toLife != receiverLife {
					t.Fatalf("taken: what was sealed for life %d, in life %d", f.toLife, receiverLife)
				}
				if once[f.session] == nil {
					once[f.session] = map[uint64]bool{}
				}
				if once[f.session][f.number] {
					t.Fatal("taken twice")
				}
				once[f.session][f.number] = true
				if order[f.session] < newest {
					t.Fatal("taken: what was sealed in an earlier life of the sender, after a later one")
				}
				newest = order[f.session]
				return true
			case stranger:
				pass, _ := receiver.offer(f.session, draw)
				hellos = append(hellos, said{hello{pass, f.number}, f.session})
			}
			return false
		}
		hear := func(h said) {
			if h.to == sender.session {
				sender.believe(h.hello)
			}
		}
		send := func() flight {
			return flight{header: sender.seal(), toLife: receiverLife}
		}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1, 2:
				messages = append(messages, send())
			case 3, 4:
				if len(messages) > 0 {
					deliver(messages[rapid.IntRange(0, len(messages)-1).Draw(t, "message")])
				}
			case 5:
				if len(hellos) > 0 {
					hear(hellos[rapid.IntRange(0, len(hellos)-1).Draw(t, "hello")])
				}
			case 6:
				sender = &side{session: life()}
				order[sender.session] = len(order)
			case 7:
				receiver = &side{session: life()}
				receiverLife++
			}
		}
		if deliver(send()) {
			return
		}
		hear(hellos[len(hellos)-1])
		if !deliver(send()) {
			t.Fatal("over a sound network, the second message is not taken either")
		}
	})
}
