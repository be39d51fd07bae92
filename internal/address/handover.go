package address

import "net/netip"

// Standstill is a Reconciler that stands still: it touches neither the kernel nor the wire until Resume. Lifetimes run on meanwhile.
type Standstill struct {
	reconciler *Reconciler
	Desired    Desired
	Held       []Holding
	Proven     []netip.Addr // probed already, without an answer
}

// Hold stops the Reconciler, and says what another process has to know to go on in its place. It waits for a Set that is under way, and
// for nothing else that takes long. Either Resume or Retire has to follow.
func (r *Reconciler) Hold() *Standstill {
	r.setting.Lock()
	r.mu.Lock()
	s := &Standstill{reconciler: r, Desired: r.desired, Held: r.holdings()}
	for a := range r.proven {
		s.Proven = append(s.Proven, a)
	}
	return s
}

// Resume lets the Reconciler go on.
func (s *Standstill) Resume() { s.let(false) }

// Retire ends the Reconciler where it stands: another process goes on in its place. Whatever it is asked for from now on, it does nothing.
func (s *Standstill) Retire() { s.let(true) }

func (s *Standstill) let(retired bool) {
	r := s.reconciler
	if retired {
		r.retired = true
		r.desired, r.schedule = Desired{}, schedule{}
		clear(r.held)
		clear(r.mine)
		clear(r.contests)
	}
	r.mu.Unlock()
	r.setting.Unlock()
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
