package agent

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/cluster"
	"github.com/holdfast/holdfast/internal/placement"
	"github.com/holdfast/holdfast/internal/problem"
	"github.com/holdfast/holdfast/internal/steering"
)

// stamp is a time for the API; the zero time is left out.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func faultMessages(faults cluster.Faults) []*holdfastv1.Fault {
	var out []*holdfastv1.Fault
	for _, f := range faults {
		out = append(out, &holdfastv1.Fault{Path: f.Path, Line: int32(f.Line), Column: int32(f.Column), Message: f.Message, Excerpt: f.Excerpt, Unreadable: f.Unreadable})
	}
	return out
}

func moveMessages(w *steering.World, id cluster.PoolID, moves []placement.Move) []*holdfastv1.Move {
	var out []*holdfastv1.Move
	for _, m := range moves {
		out = append(out, moveMessage(w, id.String(), m))
	}
	return out
}

func serviceMoveMessages(w *steering.World, moves []steering.ServiceMove) []*holdfastv1.Move {
	var out []*holdfastv1.Move
	for _, m := range moves {
		out = append(out, moveMessage(w, m.Subnet.String(), m.Move))
	}
	return out
}

func moveMessage(w *steering.World, within string, m placement.Move) *holdfastv1.Move {
	return &holdfastv1.Move{
		Address: m.Address.String(), From: namedMember(w, m.From), To: namedMember(w, m.To), Reason: m.Reason, Pool: within,
		FromNode: nameOf(w, m.From.LNN), ToNode: nameOf(w, m.To.LNN),
	}
}

func namedMember(w *steering.World, m cluster.Member) string {
	if m.IsZero() {
		return "nobody"
	}
	return nameOf(w, m.LNN) + " " + m.String()
}

func decisionMessages(decisions []placement.Decision) []*holdfastv1.Decision {
	var out []*holdfastv1.Decision
	for _, d := range decisions {
		message := &holdfastv1.Decision{Subject: d.Subject, Chosen: d.Chosen, Reason: d.Reason, DataAgeMs: d.DataAge.Milliseconds(), At: stamp(d.At)}
		for _, c := range d.Among {
			message.Among = append(message.Among, &holdfastv1.Considered{Name: c.Name, Weight: int32(c.Weight), Score: c.Score, Note: c.Note})
		}
		for _, e := range d.LeftOut {
			message.LeftOut = append(message.LeftOut, &holdfastv1.Excluded{Name: e.Name, Reason: e.Reason})
		}
		out = append(out, message)
	}
	return out
}

var severities = map[problem.Severity]holdfastv1.Problem_Severity{
	problem.Info: holdfastv1.Problem_info, problem.Warning: holdfastv1.Problem_warning,
	problem.Error: holdfastv1.Problem_error, problem.Critical: holdfastv1.Problem_critical,
}

func problemMessages(node string, active []problem.Active) []*holdfastv1.Problem {
	var out []*holdfastv1.Problem
	for _, p := range active {
		out = append(out, &holdfastv1.Problem{
			Code: p.Kind.Code, Severity: severities[p.Kind.Severity], Subject: p.Subject, Detail: p.Detail,
			Meaning: p.Kind.Meaning, Remedy: p.Kind.Remedy, Since: stamp(p.Since), Node: node,
		})
	}
	return out
}

func eventMessage(e event) *holdfastv1.Event {
	return &holdfastv1.Event{Id: e.ID, At: stamp(e.At), Node: e.Node, Kind: e.Kind, Subject: e.Subject, Message: e.Message, Fields: e.Fields}
}

func loadMessage(l placement.Load, bytesPerSecond float64) *holdfastv1.Load {
	return &holdfastv1.Load{
		Known: l.Known, Connections: int32(l.Connections), Throughput: l.Throughput, Cpu: l.CPU,
		AgeMs: l.Age.Milliseconds(), Stale: l.Stale, BytesPerSecond: bytesPerSecond,
	}
}
