package broker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/internal/broker/choice"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/token"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

// Request asks for the gateway of one session.
type Request struct {
	Launch   string // what an earlier answer called this launch; empty: it is a new one
	Target   string // as the user named it; may be an address
	Address  netip.Addr
	Protocol fleet.Protocol // empty: fleet.SSH
	Policy   string
	Who      string      // for whom; for the audit
	Caller   string      // who asked, as the machine vouches for it; for the audit
	Tried    []fleet.Ref // at most MaxTried
	DryRun   bool
	Permit   *Permit // what a grant allows; nil: no token is asked for
	Stranger bool    // what the caller says of a gateway is looked into, and does not count for others by itself

	MaxAlternates int
	MaxLeftOut    int
}

// Result is what a Request came to: an answer, or a refusal.
type Result struct {
	Launch  string // empty for a dry run
	Token   string // for the gateway of the answer; empty where none was asked for, for a dry run, and for gateways that take none
	Answer  choice.Answer
	Refusal *choice.Refusal
	At      time.Time // by the broker's clock
	token   token.ID
}

// Bounds of a Request.
const (
	MaxTried  = 64
	maxPolicy = rules.MaxName
	maxWho    = 256
	maxProto  = 32
	maxLaunch = 64
	maxSays   = 512 // of evidence; what is longer is cut
)

// clean checks a request and fills in what follows from the rest.
func (r *Request) clean() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"target", r.Target, rules.MaxTarget}, {"policy", r.Policy, maxPolicy}, {"user", r.Who, maxWho},
		{"protocol", string(r.Protocol), maxProto}, {"name of a launch", r.Launch, maxLaunch},
	} {
		if len(f.value) > f.most || !plain(f.value) {
			return fmt.Errorf("the %s %.60q is not taken: it has at most %d characters, all of them printable", f.name, f.value, f.most)
		}
	}
	if r.Target == "" && !r.Address.IsValid() {
		return fmt.Errorf("neither a target nor its address is named; name one")
	}
	if len(r.Tried) > MaxTried {
		return fmt.Errorf("%d gateways have been tried for this launch, and after %d it is not tried any further", len(r.Tried), MaxTried)
	}
	if !r.Address.IsValid() {
		if address, err := netip.ParseAddr(r.Target); err == nil {
			r.Address = address
		}
	}
	if r.Protocol == "" {
		r.Protocol = fleet.SSH
	}
	return nil
}

// plain reports whether a text can be written into a log.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// Launch chooses a gateway. Unless it is a dry run, the choice is counted in the same step, and audited. It waits for nobody.
func (b *Broker) Launch(r Request) (Result, error) {
	if err := r.clean(); err != nil {
		return Result{}, err
	}
	result := b.choose(&r)
	if !r.DryRun {
		if result.Launch = r.Launch; result.Launch == "" {
			result.Launch = b.launches.next()
		}
		var err error
		if r.Permit != nil && result.Refusal == nil {
			err = b.sign(&r, &result)
		}
		b.chosen(&r, &result)
		if err != nil {
			return Result{}, err
		}
	} else {
		b.measure.dryRuns.Inc()
	}
	return result, nil
}

// choose is the choice, and its being counted.
func (b *Broker) choose(r *Request) Result {
	request := choice.Request{
		Target: r.Target, Address: r.Address, Protocol: r.Protocol, Policy: r.Policy, Tried: r.Tried, Wall: time.Now(),
		MaxAlternates: r.MaxAlternates, MaxLeftOut: r.MaxLeftOut,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	request.Now = b.now()
	world := b.world()
	result := Result{At: request.Now}
	if result.Answer, result.Refusal = choice.Choose(&world, &request); result.Refusal == nil && !r.DryRun {
		b.tracker(result.Answer.Fleet).watch.Step(watch.Launched{Gateway: result.Answer.Gateway.Key, Outcome: watch.Chosen}, request.Now)
	}
	return result
}

// Outcome says whether a gateway took the session. If it did not, it is not chosen for anybody until it has been reached again (but
// under strict), and the result is the next best; under strict, by an old view, it is the refusal. The broker keeps no launches: the
// request is the one that was asked, with those that were tried before.
func (b *Broker) Outcome(r Request, gateway fleet.Ref, reached bool, evidence string) (Result, error) {
	if err := r.clean(); err != nil {
		return Result{}, err
	}
	if evidence = strings.ToValidUTF8(evidence[:min(len(evidence), maxSays)], ""); !plain(evidence) {
		evidence = strconv.Quote(evidence)
	}
	event := watch.Launched{Gateway: gateway.Gateway, Outcome: watch.Missed, Evidence: evidence}
	if reached {
		event.Outcome = watch.Reached
	}
	b.mu.Lock()
	t := b.tracker(gateway.Fleet)
	var seen fleet.Picture
	var picked *fleet.Gateway
	now := b.now()
	if t != nil {
		if !r.Stranger {
			t.stepLocked(event)
		}
		seen = *t.watch.Picture()
		if i, found := position(seen.View, gateway.Gateway); found {
			picked = &seen.View.Gateways[i]
			if r.Stranger && !reached {
				t.lookLocked(picked)
			}
		}
	}
	b.mu.Unlock()
	if t == nil || picked == nil {
		return Result{}, fmt.Errorf("%w that has the gateway %.120s", ErrNoFleet, gateway)
	}
	b.ended(&r, gateway, reached, evidence)
	if reached {
		return Result{Launch: r.Launch, At: now}, nil
	}
	if seen.Mode == fleet.Strict && seen.Source == fleet.LastGood {
		answer := choice.Answer{
			Pick: choice.Pick{Fleet: gateway.Fleet, Gateway: picked}, Source: seen.Source, Age: seen.Age(now), At: now,
			Rule: b.rules.Load().table.Find(r.Target, r.Address, time.Now()),
		}
		result := Result{Launch: r.Launch, At: now, Refusal: choice.Failed(&answer, evidence, now)}
		b.chosen(&r, &result)
		return result, nil
	}
	r.Tried = append(r.Tried[:len(r.Tried):len(r.Tried)], gateway)
	return b.Launch(r)
}

func position(v *fleet.View, key string) (int, bool) {
	if v == nil {
		return 0, false
	}
	return v.Find(key)
}

// launchNames gives each launch a name of its own.
type launchNames struct {
	start string
	count *atomic.Uint64
}

func newLaunchNames() launchNames {
	var b [5]byte
	_, _ = rand.Read(b[:]) // it never fails
	return launchNames{hex.EncodeToString(b[:]), new(atomic.Uint64)}
}

func (n launchNames) next() string { return n.start + "-" + strconv.FormatUint(n.count.Add(1), 36) }
