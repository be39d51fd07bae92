package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/pin"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

// Linked is what linking a fleet came to.
type Linked struct {
	Done        bool             // false: no fingerprint was given, and nothing was linked
	Fingerprint poll.Fingerprint // that the central manager showed
	Warnings    []string
}

// Refused is a wish that is refused because of what there is, not of how it is written.
type Refused struct{ text string }

// Error says what, and what to do.
func (r *Refused) Error() string { return r.text }

func refused(format string, arguments ...any) error {
	return &Refused{fmt.Sprintf(format, arguments...)}
}

// learnTimeout bounds the first talk with a central manager.
const learnTimeout = 5 * time.Second

// Link begins to watch a fleet, after having asked its central manager once. Without a fingerprint it only learns the one that is shown.
// One of the same name is replaced if that is wished, and a central manager that does not answer is linked only if that is.
func (b *Broker) Link(ctx context.Context, link Link, replace, evenIfDown bool) (Linked, error) {
	link, err := link.clean()
	if err != nil {
		return Linked{}, err
	}
	if link.Fingerprint == (poll.Fingerprint{}) {
		shown, err := poll.Learn(ctx, link.Address, learnTimeout)
		if err != nil {
			return Linked{}, refused("%v; with --fingerprint and --even-if-down it can be linked all the same", err)
		}
		return Linked{Fingerprint: shown}, nil
	}
	out := Linked{Done: true, Fingerprint: link.Fingerprint}
	view, failure := b.client(link).Fetch(ctx, expectedOf(link))
	switch {
	case failure != nil && failure.Kind == fleet.Untrusted:
		return out, refused("fleet %s is not linked: %s; if the central manager has a new certificate, compare the fingerprint there and give that one", link.Fleet, failure)
	case failure != nil && !evenIfDown:
		return out, refused("fleet %s is not linked, because its central manager gives no answer that can be used: %s; --even-if-down links it all the same", link.Fleet, failure)
	case failure != nil:
		out.Warnings = append(out.Warnings, "the central manager gives no answer that can be used, so nothing is known of the fleet: "+failure.Error())
	default:
		link.Central = view.Central
		if why := view.Hopeless(); why != "" {
			out.Warnings = append(out.Warnings, "no gateway of this fleet could ever take a session: "+why)
		}
		out.Warnings = append(out.Warnings, view.Remarks...)
	}
	return out, b.link(link, view, replace)
}

// link keeps a link and begins to watch.
func (b *Broker) link(link Link, view *fleet.View, replace bool) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.closed {
		return ErrClosed
	}
	old := b.linked(link.Fleet)
	links := b.links()
	switch {
	case old != nil && !replace:
		return refused("fleet %s is linked already; give --replace to take the new link, or another name", link.Fleet)
	case old == nil && len(links) >= MaxFleets:
		return refused("%d fleets are linked, and no more are taken; unlink one that is not needed", MaxFleets)
	}
	links = slices.DeleteFunc(links, func(l Link) bool { return l.Fleet == link.Fleet })
	if err := b.keepLinks(append(links, link)); err != nil {
		return err
	}
	if old != nil {
		b.end(old)
	}
	t := newTracker(b, link)
	b.begin(t, b.recall(link.Fleet))
	if view != nil {
		t.step(watch.Answered{View: view})
	}
	b.options.Event("broker.fleet-linked", link.Fleet, fmt.Sprintf("fleet %s is linked by its central manager %s", link.Fleet, link.Address), nil)
	b.exchange.wish()
	return nil
}

// links are the links, sorted by fleet.
func (b *Broker) links() []Link {
	b.mu.Lock()
	defer b.mu.Unlock()
	links := make([]Link, len(b.trackers))
	for i, t := range b.trackers {
		links[i] = t.link
		links[i].Central = t.watch.Central()
	}
	return links
}

// learned keeps which central manager counts, once the first answer has said it.
func (b *Broker) learned(t *tracker) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.closed || b.linked(t.link.Fleet) != t {
		return
	}
	if err := b.keepLinks(b.links()); err != nil {
		b.log.Warn("it is not kept which central manager counts", "fleet", t.link.Fleet, "error", err)
	}
}

// Unlink ends the watching of a fleet and forgets its last good view. It returns the rules that name it.
func (b *Broker) Unlink(name string) ([]string, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	t := b.linked(name)
	if t == nil {
		return nil, fmt.Errorf("%w %.60q; holdfast broker fleets lists them", ErrNoFleet, name)
	}
	if err := b.keepLinks(slices.DeleteFunc(b.links(), func(l Link) bool { return l.Fleet == name })); err != nil {
		return nil, err
	}
	b.end(t)
	if err := b.shelf.Forget(name); err != nil {
		b.log.Warn("a last good view stays on disk", "fleet", name, "error", err)
	}
	t.clearProblems()
	b.options.Event("broker.fleet-unlinked", name, "fleet "+name+" is not linked any more", nil)
	var naming []string
	for _, fault := range b.rules.Load().book.Dangling(func(f, _ string) (bool, bool) { return f != name, true }) {
		naming = append(naming, fault.String())
	}
	b.exchange.wish()
	return naming, nil
}

// ErrNoFleet is the error for a fleet that is not linked, ErrNoRule for a rule that is not there.
var (
	ErrNoFleet = errors.New("there is no linked fleet")
	ErrNoRule  = errors.New("no such rule")
)

func expectedOf(link Link) fleet.Expected {
	return fleet.Expected{Central: link.Central, Services: link.Services}
}

// certificateFile is in a broker's directory what proves who asks, to fleets that want to know. An operator makes it.
const certificateFile = "certificate.pem"

// client asks the central manager of a link. A broker that has a certificate shows it to fleets that ask for one.
func (b *Broker) client(link Link) *poll.Client {
	options := poll.Options{Address: link.Address, Fingerprint: link.Fingerprint, Timeout: link.Timeout}
	file := filepath.Join(b.options.Dir, certificateFile)
	certificate, _, err := pin.Load(file, file)
	switch {
	case err == nil:
		options.Certificate = &certificate
	case !errors.Is(err, fs.ErrNotExist):
		b.log.Warn("this broker does not say who it is, so that fleets that want to know may refuse it", "error", err)
	}
	return poll.New(options)
}

// knows says of fleets and gateways whether they are there, as far as this broker knows now.
func (b *Broker) knows() rules.Knows {
	views := map[string]*fleet.View{}
	b.mu.Lock()
	for _, p := range b.pictures {
		views[p.Fleet] = p.View
	}
	b.mu.Unlock()
	return func(name, gateway string) (linked, known bool) {
		view, linked := views[name]
		if !linked || view == nil {
			return linked, linked
		}
		_, known = view.Find(gateway)
		return true, known
	}
}
