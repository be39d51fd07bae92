package lab

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// sessionsResult is what `lab run broker-1 --output json` prints, and the other scenarios about sessions.
type sessionsResult struct {
	Scenario  string         `json:"scenario"`
	Pass      bool           `json:"pass"`
	Launches  int            `json:"launches"`
	ByGateway map[string]int `json:"by_gateway"` // sessions that were really opened through it
	Refused   map[string]int `json:"refused"`    // by code: nothing was launched
	Failed    int            `json:"failed"`     // neither opened nor refused, strict rounds aside
	ToDead    int            `json:"to_dead"`    // handed a gateway that the fleet had time to know was dead, strict rounds aside
	Rounds    []sessionRound `json:"rounds"`
	Wrong     []string       `json:"wrong,omitempty"` // what was not as the contract says
}

// sessionRound is a part of the launches, between two changes of the fleet.
type sessionRound struct {
	What      string            `json:"what"`
	Strict    bool              `json:"strict,omitempty"` // the brokers that were asked are told to believe the last good view
	Launches  int               `json:"launches"`
	ByGateway map[string]int    `json:"by_gateway"`
	ByBroker  map[string]int    `json:"by_broker"`        // who answered
	Silent    map[string]int    `json:"silent,omitempty"` // brokers that were asked in vain
	BySource  map[string]int    `json:"by_source"`        // live or last-good
	OldestMS  int64             `json:"oldest_ms"`        // the oldest view that an answer rested on
	Refused   map[string]int    `json:"refused,omitempty"`
	Refusal   string            `json:"refusal,omitempty"` // the text of one
	Failed    int               `json:"failed"`
	Failure   string            `json:"failure,omitempty"` // of one that failed
	ToDead    int               `json:"to_dead"`
	LeftOut   map[string]string `json:"left_out"` // why, in the brokers' words
}

// expected is what the contract says of a round.
type expected struct {
	what    string
	strict  bool
	brokers []string // that are up
	dead    []string // gateways that are dead; nobody may be sent there, unless strict
	other   []string // gateways that nobody may be sent to for another reason
	spread  []string // gateways that all get some, if there are enough launches
	enough  int      // as many: each broker begins with the same one of equal gateways
	source  string   // "live" or "last-good"
	refusal string   // the code with which all launches are refused; empty: all are opened
}

// gatewayKey is the key of a gateway without its fleet.
func gatewayKey(gateway string) string {
	_, key, found := strings.Cut(gateway, "/")
	if !found {
		return gateway
	}
	return key
}

// handed are the gateways that a launch was handed, one after another.
func (l launched) handed() []string {
	if l.Gateway == "" || slices.Contains(l.Missed, l.Gateway) {
		return l.Missed
	}
	return append(slices.Clone(l.Missed), l.Gateway)
}

// tallyRound counts what became of the launches of a round. addresses are those of the gateways, by which the target's word for whom it was
// reached by is compared with the broker's.
func tallyRound(e expected, all []launched, addresses map[string]string) sessionRound {
	r := sessionRound{
		What: e.what, Strict: e.strict, Launches: len(all), ByGateway: map[string]int{}, ByBroker: map[string]int{}, Silent: map[string]int{},
		BySource: map[string]int{}, Refused: map[string]int{}, LeftOut: map[string]string{},
	}
	for _, l := range all {
		for _, broker := range l.Silent {
			r.Silent[broker]++
		}
		if l.Broker != "" {
			r.ByBroker[l.Broker]++
		}
		for _, gateway := range l.handed() {
			if slices.Contains(e.dead, gatewayKey(gateway)) {
				r.ToDead++
			}
		}
		for _, out := range l.LeftOut {
			r.LeftOut[gatewayKey(out.Gateway)] = out.Why
		}
		switch {
		case l.Refusal != nil:
			r.Refused[l.Refusal.Code]++
			r.Refusal = l.Refusal.Text
			continue
		case l.Host == "":
			r.Failed++
			r.Failure = firstOf(l.Error, "no broker answered")
			continue
		case addresses[gatewayKey(l.Gateway)] != l.Through:
			r.Failed++
			r.Failure = fmt.Sprintf("the broker said %s, and the target was reached from %s", l.Gateway, l.Through)
			continue
		}
		r.ByGateway[gatewayKey(l.Gateway)]++
		r.BySource[l.Source]++
		r.OldestMS = max(r.OldestMS, l.AgeMS)
	}
	return r
}

// wrong says what of a round is not as the contract has it.
func (r *sessionRound) wrong(e expected) (wrong []string) {
	say := func(format string, arguments ...any) { wrong = append(wrong, fmt.Sprintf(format, arguments...)) }
	opened := 0
	for _, gateway := range slices.Sorted(maps.Keys(r.ByGateway)) {
		opened += r.ByGateway[gateway]
		if slices.Contains(append(slices.Clone(e.dead), e.other...), gateway) {
			say("%d sessions went through %s", r.ByGateway[gateway], gateway)
		}
	}
	for _, broker := range slices.Sorted(maps.Keys(r.ByBroker)) {
		if !slices.Contains(e.brokers, broker) {
			say("%s is down and answered %d launches", broker, r.ByBroker[broker])
		}
	}
	switch {
	case e.refusal != "" && r.Refused[e.refusal] != r.Launches:
		say("%d of %d launches were refused with %s", r.Refused[e.refusal], r.Launches, e.refusal)
	case e.refusal == "" && opened != r.Launches && !e.strict:
		say("%d of %d sessions were opened (%s)", opened, r.Launches, firstOf(r.Failure, r.Refusal, "no broker answered"))
	case e.strict && len(e.dead) > 0 && r.ToDead == 0:
		say("a strict broker believes the last good view, and yet nobody was sent to %s", strings.Join(e.dead, ", "))
	}
	if !e.strict && r.ToDead > 0 {
		say("%d launches were handed a dead gateway", r.ToDead)
	}
	for source, count := range r.BySource {
		if e.source != "" && source != e.source {
			say("%d answers came from a view that is %s, not %s", count, source, e.source)
		}
	}
	for _, gateway := range e.spread {
		if r.ByGateway[gateway] == 0 && r.Launches >= e.enough {
			say("no session went through %s", gateway)
		}
	}
	return wrong
}

// add counts a round in.
func (s *sessionsResult) add(r sessionRound, e expected) (wrong []string) {
	wrong = r.wrong(e)
	for _, w := range wrong {
		s.Wrong = append(s.Wrong, r.What+": "+w)
	}
	s.Pass = s.Pass && len(wrong) == 0
	s.Launches += r.Launches
	for gateway, count := range r.ByGateway {
		s.ByGateway[gateway] += count
	}
	for code, count := range r.Refused {
		s.Refused[code] += count
	}
	if !r.Strict {
		s.Failed += r.Failed
		s.ToDead += r.ToDead
	}
	s.Rounds = append(s.Rounds, r)
	return wrong
}

// table is what the launches got, by round, and why gateways were left out.
func (s *sessionsResult) table(out *transcript, gateways []string) {
	head := append([]string{"WHEN", "LAUNCHES"}, gateways...)
	head = append(head, "REFUSED", "FAILED", "TO DEAD", "VIEW")
	var rows, reasons [][]string
	count := func(n int) string {
		if n == 0 {
			return "-"
		}
		return strconv.Itoa(n)
	}
	for _, r := range s.Rounds {
		row := []string{r.What, strconv.Itoa(r.Launches)}
		for _, gateway := range gateways {
			row = append(row, count(r.ByGateway[gateway]))
		}
		refused := 0
		for _, n := range r.Refused {
			refused += n
		}
		rows = append(rows, append(row, count(refused), count(r.Failed), count(r.ToDead), r.view()))
		what := r.What
		for _, gateway := range slices.Sorted(maps.Keys(r.LeftOut)) {
			reasons = append(reasons, []string{what, gateway, r.LeftOut[gateway]})
			what = ""
		}
	}
	out.table(head, rows)
	if len(reasons) > 0 {
		out.say("Why gateways were left out, as the brokers say:")
		out.table([]string{"WHEN", "GATEWAY", "WHY"}, reasons)
	}
}

// view is what the answers of a round rested on.
func (r *sessionRound) view() string {
	sources := slices.Sorted(maps.Keys(r.BySource))
	if len(sources) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s, %.1f s old at most", strings.Join(sources, " and "), float64(r.OldestMS)/1000)
}
