package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/token"
	"github.com/holdfast/holdfast/internal/problem"
)

// auditLost is the problem of an audit that cannot be written. Launches go on: what the broker is for is that they do.
var auditLost = problem.Define(problem.Kind{
	Code: "broker.audit-lost", Severity: problem.Error,
	Meaning: "Launches are not written to the audit of this broker: its file cannot be written, or they come faster than the disk takes them.",
	Remedy:  "Free space on the disk, or repair it, as the detail says. holdfast_broker_audit_lost_total counts what is missing.",
})

// Entry is one line of the audit.
type Entry struct {
	At       time.Time `json:"at"`
	Launch   string    `json:"launch"`
	Event    string    `json:"event"` // chosen, refused, denied, reached or missed
	Broker   string    `json:"broker"`
	Who      string    `json:"who,omitempty"`
	Caller   string    `json:"caller,omitempty"`
	Target   string    `json:"target,omitempty"`
	Address  string    `json:"address,omitempty"`
	Protocol string    `json:"protocol"`
	Policy   string    `json:"policy,omitempty"`
	Account  string    `json:"account,omitempty"`
	Port     uint16    `json:"port,omitempty"`  // of the target, where a token was asked for
	Grant    string    `json:"grant,omitempty"` // that allowed it
	Channels []string  `json:"channels,omitempty"`
	Token    string    `json:"token_id,omitempty"` // names the token in the gateway's audit; it is not the token
	Gateway  string    `json:"gateway,omitempty"`
	Tried    []string  `json:"tried,omitempty"`
	Network  string    `json:"network,omitempty"`
	By       string    `json:"by,omitempty"`
	Subnet   string    `json:"subnet,omitempty"`
	Override bool      `json:"overridden,omitempty"`
	FellBack bool      `json:"fell_back,omitempty"`
	Fitness  *float64  `json:"fitness,omitempty"`
	Source   string    `json:"source,omitempty"`
	AgeMS    *int64    `json:"age_ms,omitempty"`
	AtLeast  bool      `json:"at_least,omitempty"`
	Code     string    `json:"code,omitempty"`
	Says     string    `json:"says,omitempty"` // a refusal's text, or what came of a try
}

// Bounds of the audit.
const (
	maxAuditFile  = 64 << 20
	auditFiles    = 4 // the present one, and older ones with .1 to .3
	maxUnwritten  = 8 << 20
	auditPause    = 10 * time.Millisecond // so that lines that come together are written together
	auditName     = "launches.jsonl"
	maxToldSecond = 20 // launches in the stream of events each second; the audit has all
)

// trail writes lines to a file. Whoever adds one does not wait for the disk.
type trail struct {
	dir     string
	board   *problem.Board
	now     func() time.Time
	measure *measures

	mu      sync.Mutex
	pending []byte
	lost    int // since the last writing
	wake    chan struct{}

	file   *os.File // the writer's
	size   int64
	cutOff bool // the file's last line is not whole
	told   allowance
}

func newTrail(dir string, board *problem.Board, now func() time.Time, m *measures) *trail {
	return &trail{dir: dir, board: board, now: now, measure: m, wake: make(chan struct{}, 1)}
}

func (a *trail) add(e *Entry) {
	line, err := json.Marshal(e)
	if err != nil {
		panic("broker: an entry of the audit cannot be written as text: " + err.Error()) // strings and finite numbers always can
	}
	a.mu.Lock()
	if len(a.pending)+len(line) < maxUnwritten {
		a.pending = append(append(a.pending, line...), '\n')
	} else {
		a.lost++
	}
	first := len(a.pending) == len(line)+1
	a.mu.Unlock()
	if first {
		signal(a.wake)
	}
}

// run writes until the context ends.
func (a *trail) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		pause(ctx, auditPause)
		a.flush()
	}
}

// flush writes what there is.
func (a *trail) flush() {
	a.mu.Lock()
	written, lost := a.pending, a.lost
	a.pending, a.lost = nil, 0
	a.mu.Unlock()
	if len(written) == 0 {
		return
	}
	err := a.write(written)
	if err != nil {
		lost += bytes.Count(written, []byte{'\n'})
	} else if lost > 0 {
		err = errors.New("launches came faster than the disk took them")
	}
	a.measure.auditLost.Add(float64(lost))
	a.board.Is(err != nil, auditLost, a.dir, text(err), a.now())
}

func (a *trail) write(text []byte) error {
	path := filepath.Join(a.dir, auditName)
	if err := a.open(path); err != nil {
		return err
	}
	if a.size > 0 && a.size+int64(len(text)) > maxAuditFile {
		if err := errors.Join(a.turn(path), a.open(path)); err != nil {
			return err
		}
	}
	if a.cutOff {
		text = append([]byte{'\n'}, text...)
	}
	n, err := a.file.Write(text)
	a.size += int64(n)
	if err != nil { // what is there of these lines is counted as lost
		return errors.Join(err, a.file.Truncate(a.size-int64(n)), a.shut())
	}
	a.cutOff = false
	return nil
}

// open opens the present file, or makes it.
func (a *trail) open(path string) error {
	if a.file != nil {
		return nil
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	a.file, a.size, a.cutOff = file, info.Size(), audit.EndsCutOff(file)
	return nil
}

// turn makes the present file an older one.
func (a *trail) turn(path string) error {
	if err := a.shut(); err != nil {
		return err
	}
	for i := auditFiles - 1; i > 0; i-- {
		from := path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", path, i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (a *trail) shut() error {
	file := a.file
	a.file, a.size = nil, 0
	return file.Close()
}

// close writes what there is and closes the file.
func (a *trail) close() error {
	a.flush()
	if a.file == nil {
		return nil
	}
	return errors.Join(a.file.Sync(), a.shut())
}

// allowance bounds how many launches are told as events in each second.
type allowance struct {
	mu     sync.Mutex
	second time.Time
	told   int
	held   int
}

// take reports whether one more is told, and how many were not before it.
func (w *allowance) take(now time.Time) (ok bool, held int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.second) >= time.Second || now.Before(w.second) {
		w.second, w.told = now, 0
	}
	if w.told >= maxToldSecond {
		w.held++
		return false, 0
	}
	w.told++
	held, w.held = w.held, 0
	return true, held
}

// entry begins an entry with what a request says.
func (b *Broker) entry(r *Request, launch, event string) Entry {
	e := Entry{
		At: time.Now().UTC(), Launch: launch, Event: event, Broker: b.options.Name, Who: r.Who, Caller: r.Caller, Target: r.Target, Protocol: string(r.Protocol),
		Policy: r.Policy,
	}
	if r.Address.IsValid() {
		e.Address = r.Address.String()
	}
	for _, ref := range r.Tried {
		e.Tried = append(e.Tried, ref.String())
	}
	if p := r.Permit; p != nil {
		e.Account, e.Port, e.Grant, e.Channels = p.Account, p.Target.Port, p.Grant, p.May.Names()
	}
	return e
}

// chosen writes down what was chosen, or why nobody was.
func (b *Broker) chosen(r *Request, result *Result) {
	e := b.entry(r, result.Launch, "chosen")
	match := &result.Answer.Rule
	if refusal := result.Refusal; refusal != nil {
		match = &refusal.Rule
		e.Event, e.Code, e.Says = "refused", string(refusal.Code), refusal.Text
		b.measure.refusals.WithLabelValues(string(refusal.Code)).Inc()
	} else {
		a := &result.Answer
		age := a.Age.Milliseconds()
		e.Gateway, e.Source, e.AgeMS, e.AtLeast, e.FellBack = a.Ref().String(), a.Source.String(), &age, a.AtLeast, a.FellBack
		if a.Known {
			e.Fitness = &a.Fitness
		}
		b.measure.chosen.WithLabelValues(a.Fleet, a.Source.String()).Inc()
	}
	if result.token != (token.ID{}) {
		e.Token = result.token.String()
	}
	if match.Network != "" {
		e.Network, e.By, e.Override = match.Network, match.By.String(), match.Override != nil
	}
	if match.Subnet.IsValid() {
		e.Subnet = match.Subnet.String()
	}
	b.audit.add(&e)
	b.told(&e)
}

// ended writes down whether a gateway took a session.
func (b *Broker) ended(r *Request, gateway fleet.Ref, reached bool, evidence string) {
	e := b.entry(r, r.Launch, "missed")
	if reached {
		e.Event = "reached"
	}
	e.Gateway, e.Says = gateway.String(), evidence
	b.measure.outcomes.WithLabelValues(e.Event).Inc()
	b.audit.add(&e)
	b.told(&e)
}

// told tells of a launch in the stream of events, which has a bound: of many at once some are left out, and counted.
func (b *Broker) told(e *Entry) {
	ok, held := b.audit.told.take(b.now())
	if !ok {
		return
	}
	fields := map[string]string{"launch": e.Launch, "protocol": e.Protocol}
	for name, value := range map[string]string{
		"who": e.Who, "caller": e.Caller, "target": e.Target, "address": e.Address, "policy": e.Policy, "gateway": e.Gateway, "network": e.Network,
		"account": e.Account, "grant": e.Grant, "source": e.Source, "code": e.Code,
	} {
		if value != "" {
			fields[name] = value
		}
	}
	if e.AgeMS != nil {
		fields["age_ms"] = fmt.Sprint(*e.AgeMS)
	}
	if e.Fitness != nil {
		fields["fitness"] = fmt.Sprintf("%.4g", *e.Fitness)
	}
	if held > 0 {
		fields["not_told"] = fmt.Sprint(held)
	}
	target := e.Target
	if target == "" {
		target = e.Address
	}
	message := map[string]string{
		"chosen": "session to " + target + " goes through " + e.Gateway, "refused": "session to " + target + " is refused: " + e.Code + ": " + e.Says,
		"reached": "gateway " + e.Gateway + " took the session to " + target, "missed": "gateway " + e.Gateway + " did not take the session to " + target + ": " + e.Says,
		"denied": "session to " + target + " is denied: " + e.Says,
	}[e.Event]
	b.options.Event("broker.launch-"+e.Event, target, message, fields)
}
