package address

import "net/netip"

// Standstill is a Reconciler that stands still: it takes nothing, and drops nothing but for a Silence. It renews lifetimes, and announces, up
// to Freeze.
type Standstill struct {
	reconciler *Reconciler
	silences   uint64
	frozen     bool
	Desired    Desired
	Held       []Holding
	Proven     []netip.Addr // probed already, without an answer
}

// Hold stops the Reconciler, and says what another process has to know to go on in its place. It waits for a Set that is under way, and
// for nothing else that takes long. Either Resume or Retire has to follow.
func (r *Reconciler) Hold() *Standstill {
	r.setting.Lock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.still = true
	s := &Standstill{reconciler: r, silences: r.silences.Load(), Desired: r.desired, Held: r.holdings()}
	for a := range r.proven {
		s.Proven = append(s.Proven, a)
	}
	return s
}

// Freeze stops what is left: nothing is done any more, and a Silence waits. It is to be followed by Resume or Retire within
// milliseconds. With an error the node was silenced meanwhile, so that what Hold said is not true any more, and nothing is frozen.
func (s *Standstill) Freeze() error {
	s.reconciler.mu.Lock()
	if s.reconciler.silences.Load() != s.silences {
		s.reconciler.mu.Unlock()
		return ErrSilenced
	}
	s.frozen = true
	return nil
}

// Resume lets the Reconciler go on.
func (s *Standstill) Resume() { s.let(false) }

// Retire ends the Reconciler where it stands: another process goes on in its place. Whatever it is asked for from now on, it does nothing.
func (s *Standstill) Retire() { s.let(true) }

func (s *Standstill) let(retired bool) {
	r := s.reconciler
	if !s.frozen {
		r.mu.Lock()
	}
	if r.still = retired; retired {
		r.desired, r.schedule = Desired{}, schedule{}
		clear(r.held)
		clear(r.mine)
		clear(r.contests)
	}
	r.mu.Unlock()
	r.setting.Unlock()
	notify(r.wake)
	notify(r.reread)
}

// Adopt goes on from where another process's Reconciler was retired: what it held counts as held, and nothing is announced. It must
// come before Run and Set.
func (r *Reconciler) Adopt(desired Desired, held []Holding, proven []netip.Addr) {
	r.setting.Lock()
	defer r.setting.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.desired = desired
	for _, h := range held {
		r.held[h.Address], r.mine[h.Address] = h, h.Interface
	}
	for _, a := range proven {
		r.proven[a] = true
	}
	r.metrics.held.Set(float64(len(r.held)))
	r.log.Info("went on with the addresses of the agent before", "addresses", len(r.held))
}
