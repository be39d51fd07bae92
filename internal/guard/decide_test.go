package guard

import (
	"strings"
	"testing"
)

// TestDecide is the whole of what the guard does when. The time is 1000.
func TestDecide(t *testing.T) {
	const now = 1000
	for _, c := range []struct {
		name   string
		facts  Facts
		verb   Verb
		reason string
		next   int64
	}{
		{"nobody has come", Facts{Agent: AgentNone}, Stay, "", 0},
		{"nobody has come since a silence", Facts{Agent: AgentNone, Silenced: true}, Stay, "", 0},
		{"an agent without a right holds nothing", Facts{Agent: AgentAlive}, Stay, "", 0},
		{"a right that lies in the future", Facts{Agent: AgentAlive, Handed: true, Deadline: 1500}, Stay, "", 1500},
		{"a right without an end", Facts{Agent: AgentAlive, Handed: true, Deadline: Forever}, Stay, "", 0},
		{"a right of one nanosecond", Facts{Agent: AgentAlive, Handed: true, Deadline: 1001}, Stay, "", 1001},
		{"at the deadline it is over", Facts{Agent: AgentAlive, Handed: true, Deadline: 1000}, Silence, "ran out", 0},
		{"a frozen agent", Facts{Agent: AgentAlive, Handed: true, Deadline: 900}, Silence, "ran out", 0},
		{"the agent says that it has lapsed", Facts{Agent: AgentAlive, Handed: true, Deadline: 0}, Silence, "is gone", 0},
		{"what is silenced is not silenced again", Facts{Agent: AgentAlive, Silenced: true, Deadline: 900}, Stay, "", 0},
		{"the agent died with a right", Facts{Agent: AgentDead, Handed: true, Deadline: 1500}, Silence, "died", 0},
		{"the agent died with a right without an end", Facts{Agent: AgentDead, Handed: true, Deadline: Forever}, Silence, "died", 0},
		{"the agent died after its deadline", Facts{Agent: AgentDead, Handed: true, Deadline: 900}, Silence, "died", 0},
		{"the agent died before it had a right", Facts{Agent: AgentDead}, Stay, "", 0},
		{"the agent's death has been dealt with", Facts{Agent: AgentDead, Silenced: true, Deadline: 1500}, Stay, "", 0},
		{"a goodbye", Facts{Agent: AgentGoodbye}, Stay, "", 0},
		{"a goodbye of one that was silenced", Facts{Agent: AgentGoodbye, Silenced: true}, Stay, "", 0},
		{"the right is back", Facts{Agent: AgentAlive, Handed: true, Deadline: 1500, Silenced: true}, Lift, "", 1500},
		{"a right without an end is back", Facts{Agent: AgentAlive, Handed: true, Deadline: Forever, Silenced: true}, Lift, "", 0},
		{"a new agent has no right yet", Facts{Agent: AgentAlive, Silenced: true}, Stay, "", 0},
		{"a right that came too late does not lift", Facts{Agent: AgentAlive, Handed: true, Deadline: 1000, Silenced: true}, Silence, "ran out", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(c.facts, now)
			if got.Verb != c.verb || !strings.Contains(got.Reason, c.reason) || got.Next != c.next || (got.Reason == "") != (got.Verb != Silence) {
				t.Errorf("got %+v, want %s for a reason with %q and next %d", got, c.verb, c.reason, c.next)
			}
		})
	}
}
