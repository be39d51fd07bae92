package member

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/broker/pin"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// Readers are who may ask about the fleet. The zero Readers are nobody.
type Readers struct {
	Any    bool // whoever asks, as the vendor's gateways have it
	Listed map[pin.Fingerprint]bool
}

func (r Readers) may(who pin.Fingerprint, shown bool) bool { return r.Any || shown && r.Listed[who] }

// Central is where a member reports.
type Central struct {
	Address     string          // host:port
	Fingerprint pin.Fingerprint // of its certificate
}

// Options are what a Station is made of. All are needed but where it is said.
type Options struct {
	Key         string
	Itself      Description
	Health      func() Health // asked for each beat and each answer
	Certificate tls.Certificate
	Readers     Readers
	Central     Central       // of a member; not of a central manager
	Members     []Member      // of a central manager
	Manages     bool          // it is the central manager
	Interval    time.Duration // of beats, as a central manager tells members; default DefaultInterval
	Remember    string        // file of a central manager; empty: it remembers nothing
	Logger      *slog.Logger
	Now         func() time.Time // default time.Now
}

// Station is a gateway as one of a fleet: it reports, or is reported to, and answers. Make it with New.
type Station struct {
	options Options
	hurry   chan struct{} // a beat is wished now
	dirty   chan struct{} // something is to be remembered

	lock    sync.Mutex
	readers Readers
	roster  *Roster // nil: it does not manage
}

// New makes a station and takes up what it has remembered. A file that cannot be read is no error: what is in it comes again with the first beats.
func New(o Options) (*Station, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Station{options: o, readers: o.Readers, hurry: make(chan struct{}, 1), dirty: make(chan struct{}, 1)}
	if err := errors.Join(CheckKey(o.Key), o.Itself.Check()); err != nil {
		return nil, fmt.Errorf("this gateway cannot be a member of a fleet: %w", err)
	}
	if !o.Manages {
		return s, nil
	}
	if err := CheckMembers(o.Key, o.Members); err != nil {
		return nil, err
	}
	s.roster = NewRoster(o.Key, o.Itself, o.Members, o.Interval, o.Now())
	if o.Remember == "" {
		return s, nil
	}
	if err := s.recall(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.Logger.Warn("what is known of members is not taken up; each says it anew", "file", o.Remember, "error", err)
	}
	return s, nil
}

func (s *Station) recall() error {
	info, err := os.Stat(s.options.Remember)
	if err != nil {
		return err
	}
	if info.Size() > MaxRemembered {
		return fmt.Errorf("it has more than %d bytes", MaxRemembered)
	}
	text, err := os.ReadFile(s.options.Remember)
	if err != nil {
		return err
	}
	return s.roster.Recall(text)
}

// Set makes others those who are listened to and those who may read, while the station runs. With an error everything stays.
func (s *Station) Set(members []Member, readers Readers) error {
	if s.roster != nil {
		if err := CheckMembers(s.options.Key, members); err != nil {
			return err
		}
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.readers = readers
	if s.roster != nil {
		s.roster.SetMembers(members, s.options.Now())
		signal(s.dirty)
	}
	return nil
}

// Hurry has a beat sent now, as when the gateway begins to stop.
func (s *Station) Hurry() { signal(s.hurry) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run answers on the listener, and reports or remembers, until the context ends. It returns an error if the listener fails.
func (s *Station) Run(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	if s.roster != nil {
		all.Go(func() { s.keep(ctx) })
	} else {
		all.Go(func() { s.report(ctx) })
	}
	err := s.serve(ctx, listener)
	cancel()
	all.Wait()
	return err
}

// leastPause is between two writings of what is remembered, so that a fleet that joins costs no thousands of them.
const leastPause = 200 * time.Millisecond

// keep writes down what members are, soon after they have said it, and tells the log who is lost and who is back.
func (s *Station) keep(ctx context.Context) {
	look := time.NewTicker(s.roster.Interval())
	defer look.Stop()
	before := map[string]Standing{}
	var later <-chan time.Time // when the pause after a writing is over; nil: it is
	for {
		select {
		case <-ctx.Done():
			s.remember()
			return
		case <-look.C:
		case <-later:
			later = nil
		case <-s.dirty:
		}
		before = s.tell(before)
		if later == nil && s.remember() {
			later = time.After(leastPause)
		}
	}
}

func (s *Station) tell(before map[string]Standing) map[string]Standing {
	s.lock.Lock()
	standings := s.roster.Standings(s.options.Now())
	s.lock.Unlock()
	for key, standing := range standings {
		switch was := before[key]; {
		case standing == Up && was != Up:
			s.options.Logger.Info("a member of the fleet reports", "key", key)
		case standing == Down && was != Down:
			s.options.Logger.Warn("a member of the fleet is down: it has not reported for three beats", "key", key)
		}
	}
	return standings
}

// remember writes down what has changed, if anything has, and says whether it did.
func (s *Station) remember() bool {
	if s.options.Remember == "" {
		return false
	}
	s.lock.Lock()
	text, changed := s.roster.Remember()
	s.lock.Unlock()
	if !changed {
		return false
	}
	if err := wholefile.Replace(s.options.Remember, text); err != nil {
		s.lock.Lock()
		s.roster.Unkept()
		s.lock.Unlock()
		s.options.Logger.Warn("what members are is not remembered; after a start of this central manager each has to report before it is listed with its roles", "error", err)
		return false // the next look tries again
	}
	return true
}
