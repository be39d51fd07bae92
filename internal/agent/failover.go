package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/tenure"
)

// failoverID names what came of the end of one incarnation, alike on every node and for good: its node's number and its own.
func failoverID(lnn int, over tenure.Incarnation) string {
	return strconv.Itoa(lnn) + "." + strconv.FormatUint(uint64(over), 10)
}

// parseFailover reads what failoverID wrote.
func parseFailover(id string) (lnn int, over tenure.Incarnation, ok bool) {
	node, incarnation, found := strings.Cut(id, ".")
	lnn, nodeErr := strconv.Atoi(node)
	number, numberErr := strconv.ParseUint(incarnation, 10, 64)
	return lnn, tenure.Incarnation(number), found && nodeErr == nil && numberErr == nil && lnn > 0 && number > 0
}

// Fields of the events of a failover. Times are of the wall clock.
const (
	fieldFailover    = "failover"     // on each: which
	fieldHow         = "how"          // node.found-down: in words
	fieldToldBy      = "told_by"      // who said so; none: this node found it out
	fieldHeard       = "heard"        // the last heartbeat
	fieldDeclared    = "declared"     // none had come for a span
	fieldAsked       = "asked"        // the first question to another observer
	fieldConfirmed   = "confirmed"    // the last confirmation came
	fieldConfirmedBy = "confirmed_by" // names, with commas
	fieldOwner       = "owner"        // address.owned: the node that has the address now
	fieldWithin      = "within"       // address.owned: the pool or subnet
	fieldPut         = "put"          // address.taken: it was on the interface
	fieldAnnounced   = "announced"    // its first announcement was out
	fieldArrived     = "arrived"      // address.first-packet: it came in
	fieldFrom        = "from"         // who sent it
)

// The kinds of events that a failover is told by.
const (
	kindFoundDown = "node.found-down"
	kindOwned     = "address.owned"
	kindTaken     = "address.taken"
)

// findingFields is what a finding says of how it came, in fields of its event. wall turns the agent's clock into that of the wall.
func findingFields(f tenure.Finding, name func(lnn int) string, wall func(time.Time) time.Time) map[string]string {
	fields := map[string]string{fieldFailover: failoverID(f.LNN, f.Over), fieldHow: f.How}
	if f.By != 0 {
		fields[fieldToldBy] = name(f.By)
	}
	note := func(field string, t time.Time) {
		if !t.IsZero() {
			fields[field] = timeField(wall(t))
		}
	}
	note(fieldHeard, f.Heard)
	note(fieldDeclared, f.Declared)
	note(fieldAsked, f.Asked)
	var last time.Time
	var by []string
	for _, word := range f.Words {
		if word.Confirmed.IsZero() {
			continue
		}
		by = append(by, name(word.Observer))
		if word.Came.After(last) {
			last = word.Came
		}
	}
	note(fieldConfirmed, last)
	if len(by) > 0 {
		fields[fieldConfirmedBy] = strings.Join(by, ",")
	}
	return fields
}

func timeField(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func fieldTime(fields map[string]string, name string) *timestamppb.Timestamp {
	t, err := time.Parse(time.RFC3339Nano, fields[name])
	if err != nil {
		return nil // it is not there, or another version's
	}
	return timestamppb.New(t)
}

// failoverOf puts the events of a failover together, from whichever nodes they are. Only times of one node are subtracted from each
// other.
func failoverOf(id string, config *cluster.Config, events []*holdfastv1.Event) *holdfastv1.Failover {
	lnn, over, _ := parseFailover(id)
	out := &holdfastv1.Failover{Id: id, Lnn: int32(lnn), Incarnation: uint64(over), Node: "node " + strconv.Itoa(lnn)}
	if node, known := config.Node(lnn); known {
		out.Node = node.Name
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b *holdfastv1.Event) int { return a.At.AsTime().Compare(b.At.AsTime()) })
	found := map[string]*holdfastv1.FailoverFinding{}
	taken := map[[2]string]*holdfastv1.FailoverAddress{}
	for _, e := range events {
		switch e.Kind {
		case kindFoundDown:
			if found[e.Node] == nil {
				found[e.Node] = findingOf(e)
				out.Findings = append(out.Findings, found[e.Node])
			}
		case kindOwned:
			a := addressOf(taken, e.Subject, e.Fields[fieldOwner])
			a.Within = cmp.Or(a.Within, e.Fields[fieldWithin])
			if e.Node == e.Fields[fieldOwner] && a.Recorded == nil {
				a.Recorded = e.At
			}
		case kindTaken:
			if a := addressOf(taken, e.Subject, e.Node); a.OnInterface == nil {
				a.OnInterface, a.Announced = fieldTime(e.Fields, fieldPut), fieldTime(e.Fields, fieldAnnounced)
			}
		case kindArrived:
			if a := addressOf(taken, e.Subject, e.Node); a.FirstPacket == nil {
				a.FirstPacket, a.FirstFrom = fieldTime(e.Fields, fieldArrived), e.Fields[fieldFrom]
			}
		}
	}
	for _, a := range taken {
		if f := found[a.Node]; f != nil {
			a.Found = f.Found
			a.TakeMs, a.TotalMs, a.FirstPacketMs = between(f.Found, a.Announced), between(f.Heard, a.Announced), between(f.Heard, a.FirstPacket)
		}
	}
	out.Addresses = slices.SortedFunc(maps.Values(taken), func(a, b *holdfastv1.FailoverAddress) int {
		return cmp.Or(cmp.Compare(a.Within, b.Within), compareAddresses(a.Address, b.Address), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// compareAddresses sorts addresses by value; what is none comes first.
func compareAddresses(a, b string) int {
	x, _ := netip.ParseAddr(a)
	y, _ := netip.ParseAddr(b)
	return x.Compare(y)
}

func addressOf(taken map[[2]string]*holdfastv1.FailoverAddress, address, node string) *holdfastv1.FailoverAddress {
	key := [2]string{address, node}
	if taken[key] == nil {
		taken[key] = &holdfastv1.FailoverAddress{Address: address, Node: node}
	}
	return taken[key]
}

func findingOf(e *holdfastv1.Event) *holdfastv1.FailoverFinding {
	f := &holdfastv1.FailoverFinding{
		Node: e.Node, How: e.Fields[fieldHow], ToldBy: e.Fields[fieldToldBy], Heard: fieldTime(e.Fields, fieldHeard),
		Declared: fieldTime(e.Fields, fieldDeclared), Asked: fieldTime(e.Fields, fieldAsked), Confirmed: fieldTime(e.Fields, fieldConfirmed), Found: e.At,
	}
	if by := e.Fields[fieldConfirmedBy]; by != "" {
		f.ConfirmedBy = strings.Split(by, ",")
	}
	f.DetectionMs = between(f.Heard, f.Found)
	return f
}

// between is the time from one moment to another in milliseconds; nil if one is not known.
func between(from, to *timestamppb.Timestamp) *float64 {
	if from == nil || to == nil {
		return nil
	}
	ms := float64(to.AsTime().Sub(from.AsTime()).Round(time.Microsecond).Microseconds()) / 1000
	return &ms
}

// failoverText is a failover for people.
func failoverText(f *holdfastv1.Failover) string {
	var b strings.Builder
	fmt.Fprintf(&b, "failover %s: incarnation %d of %s is over, %d addresses went to others\n", f.Id, f.Incarnation, f.Node, len(f.Addresses))
	for _, finding := range f.Findings {
		fmt.Fprintf(&b, "\n%s: %s", finding.Node, finding.How)
		if finding.ToldBy != "" {
			fmt.Fprintf(&b, ", says %s", finding.ToldBy)
		}
		b.WriteByte('\n')
		confirmed := "confirmed"
		if len(finding.ConfirmedBy) > 0 {
			confirmed += " by " + strings.Join(finding.ConfirmedBy, ", ")
		}
		writeSteps(&b, []step{{"last heartbeat heard", finding.Heard}, {"declared silent: none for a span", finding.Declared},
			{"the other observers asked", finding.Asked}, {confirmed, finding.Confirmed}, {"known to be over", finding.Found}})
	}
	for _, a := range f.Addresses {
		fmt.Fprintf(&b, "\n%s (%s) on %s", a.Address, a.Within, a.Node)
		if a.TotalMs != nil {
			fmt.Fprintf(&b, ": %.1f ms from the last heartbeat to the first announcement", *a.TotalMs)
		}
		if a.FirstPacketMs != nil {
			fmt.Fprintf(&b, ", %.1f ms to a client's first packet", *a.FirstPacketMs)
		}
		b.WriteByte('\n')
		steps := []step{{"known to be over", a.Found}, {"on the interface", a.OnInterface}, {"first announcement out", a.Announced}, {"record seen", a.Recorded},
			{"first packet of a client, " + a.FirstFrom, a.FirstPacket}}
		slices.SortStableFunc(steps, func(x, y step) int { return x.at.AsTime().Compare(y.at.AsTime()) })
		writeSteps(&b, steps)
	}
	for _, u := range f.Unanswered {
		fmt.Fprintf(&b, "\n%s %s\n", u.Node, u.Why)
	}
	fmt.Fprintf(&b, "\nTimes count on each node from the first line of its block, by its own clock. Whoever takes an address listens for the first\n"+
		"packet of a client to it, for %.0f s and to %d addresses at a time; where it is missing, none came, or more addresses came at once.\n", arrivalLimit.Seconds(), maxArrivals)
	return b.String()
}

// step is one moment of a failover on one node.
type step struct {
	what string
	at   *timestamppb.Timestamp
}

// writeSteps writes those moments that are known, each with the time since the first and since the one before.
func writeSteps(b *strings.Builder, steps []step) {
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.at == nil })
	for i, s := range steps {
		if i == 0 {
			fmt.Fprintf(b, "  %s  %s\n", s.at.AsTime().UTC().Format("15:04:05.000"), s.what)
			continue
		}
		fmt.Fprintf(b, "  %+9.1f ms  %s (%.1f ms)\n", *between(steps[0].at, s.at), s.what, *between(steps[i-1].at, s.at))
	}
}
