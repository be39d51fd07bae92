package tenure

import "time"

func (s *storm) kill(x *seat) {
	s.log("node %d dies", x.lnn)
	x.peer, x.frozen, x.lapsed, x.wake, x.nervous = nil, false, -1, time.Time{}, false
	x.life++
}

func (s *storm) restart(x *seat) {
	if x.peer != nil && !x.frozen {
		s.kill(x)
		s.start(x)
	}
}

func (s *storm) freeze(x *seat) {
	s.log("node %d freezes", x.lnn)
	x.frozen = true
}

// thaw has a node go on. What arrived meanwhile is read in some order: it lay in several sockets.
func (s *storm) thaw(x *seat) {
	s.log("node %d goes on", x.lnn)
	x.frozen = false
	waiting := x.waiting
	x.waiting = nil
	s.random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	for _, f := range waiting {
		s.step(x, &f.received)
		s.land(f)
	}
	x.wake = time.Time{}
	s.step(x, &Due{})
	s.read(x)
}

// stall freezes a node for a time that it survives, or nearly.
func (s *storm) stall(x *seat) {
	s.freeze(x)
	life := x.life
	s.after(time.Duration(s.random.Int64N(int64(2*x.timing.Span()))), func() {
		if x.life == life && x.frozen {
			s.thaw(x)
		}
	})
}

// fault is one thing that goes wrong, or stops going wrong. X is any node that runs, y any at all; weight is how often it comes.
type fault struct {
	name   string
	weight int
	play   func(s *storm, x, y *seat)
}

var faults = []fault{
	{"a death", 4, (*storm).dies},
	{"a start", 8, (*storm).starts},
	{"a freeze", 3, func(s *storm, x, _ *seat) { s.freeze(x) }},
	{"a stall", 4, func(s *storm, x, _ *seat) { s.stall(x) }},
	{"the end of a freeze", 8, (*storm).thaws},
	{"a restart", 1, func(s *storm, x, _ *seat) { s.restart(x) }},
	{"a restart just after the next confirmation", 2, func(_ *storm, x, _ *seat) { x.nervous = true }},
	{"one way cut", 4, func(s *storm, x, y *seat) { s.cut[[2]int{x.lnn, y.lnn}] = 1 }},
	{"loss in one way", 3, func(s *storm, x, y *seat) { s.cut[[2]int{x.lnn, y.lnn}] = 0.3 + s.random.Float64()/2 }},
	{"one node cut off", 4, (*storm).isolates},
	{"one node deaf, or dumb", 2, (*storm).deafens},
	{"two sides", 2, (*storm).parts},
	{"healing", 8, func(s *storm, _, _ *seat) { clear(s.cut) }},
	{"loss everywhere", 4, func(s *storm, _, _ *seat) { s.loss = []float64{0, 0, 0.05, 0.3}[s.random.IntN(4)] }},
	{"a burst of reordering", 2, func(s *storm, _, _ *seat) { s.burst = s.now + s.milliseconds(800) }},
	{"old datagrams come again", 3, (*storm).repeats},
	{"the store stops or starts answering", 4, func(s *storm, _, _ *seat) { s.store = !s.store }},
	{"the store is stale for one reader", 3, func(s *storm, x, _ *seat) { x.blind = s.now + s.milliseconds(4000) }},
	{"another span", 4, (*storm).respans},
	{"the sender stalls after a heartbeat that is late", 3, (*storm).dawdles},
	{"another membership", 3, (*storm).joins},
	{"other observers while the network parts", 6, (*storm).shifts},
	{"an operator's word that a node is dead, which is", 4, (*storm).buries},
}

var faultWeights = func() (sum int) {
	for _, f := range faults {
		sum += f.weight
	}
	return sum
}()

// blow is one random fault, or its end.
func (s *storm) blow() {
	at := s.random.IntN(faultWeights)
	for _, f := range faults {
		if at -= f.weight; at >= 0 {
			continue
		}
		x, y := s.seats[s.random.IntN(len(s.seats))], s.seats[s.random.IntN(len(s.seats))]
		for tries := 0; tries < 3 && (x.peer == nil || x.frozen); tries++ {
			x = s.seats[s.random.IntN(len(s.seats))]
		}
		if x.peer != nil && !x.frozen {
			s.log("%s: node %d, node %d", f.name, x.lnn, y.lnn)
			f.play(s, x, y)
		} else if x.peer == nil {
			s.start(x)
		} else {
			s.thaw(x)
		}
		return
	}
}

func (s *storm) dies(x, _ *seat) { s.kill(x) }

func (s *storm) starts(_, _ *seat) {
	for _, x := range s.seats {
		if x.peer == nil {
			s.start(x)
			return
		}
	}
}

func (s *storm) thaws(_, _ *seat) {
	for _, x := range s.seats {
		if x.frozen {
			s.thaw(x)
			return
		}
	}
}

func (s *storm) isolates(x, _ *seat) {
	for _, z := range s.seats {
		s.cut[[2]int{x.lnn, z.lnn}], s.cut[[2]int{z.lnn, x.lnn}] = 1, 1
	}
}

func (s *storm) deafens(x, _ *seat) {
	dumb := s.random.IntN(2) == 0
	for _, z := range s.seats {
		if dumb {
			s.cut[[2]int{x.lnn, z.lnn}] = 1
		} else {
			s.cut[[2]int{z.lnn, x.lnn}] = 1
		}
	}
}

func (s *storm) parts(_, _ *seat) {
	side := s.random.Uint32()
	for _, x := range s.seats {
		for _, y := range s.seats {
			if side>>x.lnn&1 != side>>y.lnn&1 {
				s.cut[[2]int{x.lnn, y.lnn}] = 1
			}
		}
	}
}

// repeats has up to eight datagrams come again that may be seconds old.
func (s *storm) repeats(_, _ *seat) {
	for range min(8, len(s.old)) {
		f := s.old[s.random.IntN(len(s.old))]
		if f.received.Arrived.IsZero() {
			continue // it is still under way
		}
		again := s.flightTo(f.to, f.received.From, f.received.Network, &f.message)
		s.turn++
		s.due.push(happening{at: s.now + s.milliseconds(500), turn: s.turn, flight: again})
	}
}

func (s *storm) respans(x, _ *seat) {
	x.timing = Timing{Interval: time.Duration(10+s.random.IntN(90)) * time.Millisecond, Multiplier: 2 + s.random.IntN(3)}
	s.log("node %d has another span: %s", x.lnn, x.timing.Span())
	s.configure(x)
}

// dawdles has a heartbeat of a node come late, and its sender stall meanwhile.
func (s *storm) dawdles(x, _ *seat) {
	for i := range s.due {
		if f := s.due[i].flight; f != nil && f.received.From == x.lnn && f.message.Kind == Heartbeat {
			late := s.flightTo(f.to, x.lnn, f.received.Network, &f.message)
			s.turn++
			s.due.push(happening{at: s.now + time.Duration(s.random.Int64N(int64(2*x.timing.Span()))), turn: s.turn, flight: late})
			break
		}
	}
	s.stall(x)
}

// joins has nodes leave the configuration or come back, one or many. Who left is stopped some time later, or goes on for good.
func (s *storm) joins(x, _ *seat) {
	many := s.random.IntN(4) == 0
	for i := range s.members {
		if i == x.lnn-1 || many && s.random.IntN(3) == 0 {
			s.members[i] = !s.members[i]
		}
	}
	left := 0
	for _, is := range s.members {
		if is {
			left++
		}
	}
	if left == 0 {
		s.members[x.lnn-1] = true
	}
	s.log("the configuration names %v", s.members)
	for _, y := range s.seats {
		peer := y.peer
		if peer == nil {
			continue
		}
		s.after(s.milliseconds(400), func() {
			if y.peer == peer && !y.frozen {
				s.configure(y)
			}
		})
		if !s.members[y.lnn-1] && s.random.IntN(2) == 0 {
			s.after(s.milliseconds(2000), func() {
				if y.peer == peer && !s.members[y.lnn-1] {
					s.kill(y)
				}
			})
		}
	}
}

// shifts has a node leave the configuration or come back, of which one reader of the store hears late, and cuts x off from some of the others
// about when its observers change.
func (s *storm) shifts(x, y *seat) {
	if x == y {
		return
	}
	s.members[y.lnn-1] = !s.members[y.lnn-1]
	late := s.seats[s.random.IntN(len(s.seats))]
	if late != x {
		late.blind = s.now + s.milliseconds(3000)
	}
	for _, z := range s.seats {
		if z.peer != nil && !z.frozen {
			s.configure(z)
		}
	}
	s.after(s.milliseconds(1000), func() {
		healing := s.milliseconds(1500)
		for _, z := range s.seats {
			if s.random.IntN(2) == 0 {
				continue
			}
			for _, pair := range [][2]int{{x.lnn, z.lnn}, {z.lnn, x.lnn}} {
				s.cut[pair] = 1
				s.after(healing, func() { delete(s.cut, pair) })
			}
		}
	})
}

// settle ends all faults but departures, and starts what is off.
func (s *storm) settle() {
	s.log("=== calm")
	s.calm, s.loss, s.store, s.burst = true, 0, true, 0
	clear(s.cut)
	for _, x := range s.seats {
		x.nervous, x.blind = false, 0
		switch {
		case x.peer == nil:
			if s.members[x.lnn-1] {
				s.start(x)
			}
			continue
		case x.frozen:
			s.thaw(x)
		}
		s.configure(x)
		s.read(x)
	}
}
