package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// sessionsPatience bounds one scenario.
const sessionsPatience = 2 * time.Minute

// playSessions plays a scenario about sessions in its short form and returns what it says of itself.
func playSessions(t *testing.T, scenario string, more ...string) (result sessionsResult) {
	t.Helper()
	need(t, "sshd:openssh-server", "ssh:openssh-client")
	ctx, cancel := context.WithTimeout(t.Context(), sessionsPatience)
	defer cancel()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	command := exec.CommandContext(ctx, holdfast, append([]string{"lab", "run", scenario, "--output", "json"}, more...)...)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if decoded := json.Unmarshal(out, &result); decoded != nil {
		t.Fatalf("lab run %s: %v, %v\n%s%s", scenario, err, decoded, out, said.String())
	}
	if err != nil || !result.Pass || result.Failed > 0 || result.ToDead > 0 {
		t.Errorf("lab run %s: %v\n%s%s", scenario, err, out, said.String())
	}
	return result
}

// sessionsResult is what these scenarios print.
type sessionsResult struct {
	Pass      bool           `json:"pass"`
	Launches  int            `json:"launches"`
	ByGateway map[string]int `json:"by_gateway"`
	Refused   map[string]int `json:"refused"`
	Failed    int            `json:"failed"`
	ToDead    int            `json:"to_dead"`
}

// sessions are the launches that led somewhere.
func (r sessionsResult) sessions() (n int) {
	for _, count := range r.ByGateway {
		n += count
	}
	return n
}

func TestSessionsAllUp(t *testing.T) {
	if r := playSessions(t, "broker-1", "--launches", "24"); r.Launches != 24 || r.sessions() != 24 || len(r.ByGateway) != 4 {
		t.Errorf("24 sessions through four gateways: %+v", r)
	}
}

// TestReportB1ADeadGatewayInARealFleet: Safeguard before 6.0 handed a dead gateway out for ever.
func TestReportB1ADeadGatewayInARealFleet(t *testing.T) {
	if r := playSessions(t, "broker-2", "--launches", "72"); r.sessions() != 72 || len(r.Refused) > 0 {
		t.Errorf("72 sessions while hosts are down and return: %+v", r)
	}
}

// TestReportB2AHostDiesAfterTheCentralManager: the vendor's case 3, in each of the modes and with an override made on another broker (the
// vendor's code 60418, "primary only", report 18).
func TestReportB2AHostDiesAfterTheCentralManager(t *testing.T) {
	playSessions(t, "broker-3", "--launches", "60")
}

func TestSessionsNothingUp(t *testing.T) {
	if r := playSessions(t, "broker-4", "--launches", "18"); r.Refused["ALL_NODES_DOWN"] != 6 || r.sessions() != 12 {
		t.Errorf("six launches while nothing is up, and twelve when something is back: %+v", r)
	}
}

// TestReportB12BrokersAreDownOrCutOff: teleport#19720, some brokers do not know what others know.
func TestReportB12BrokersAreDownOrCutOff(t *testing.T) {
	if r := playSessions(t, "broker-5", "--launches", "30"); r.sessions() != 30 {
		t.Errorf("30 sessions while brokers are down: %+v", r)
	}
}

// TestReportB3OnlyASearchPrimaryInARealFleet: Safeguard documentation, "linking".
func TestReportB3OnlyASearchPrimaryInARealFleet(t *testing.T) {
	if r := playSessions(t, "broker-6", "--launches", "6"); r.Refused["NO_SESSION_CAPABLE_NODE"] != 6 {
		t.Errorf("six launches at a fleet that takes none: %+v", r)
	}
}

// TestReportB10EverythingIsRestartedDuringAnOutage: teleport#11163 and #17024, a restart loses what was known; #66061, it waits for the
// first answer.
func TestReportB10EverythingIsRestartedDuringAnOutage(t *testing.T) {
	if r := playSessions(t, "broker-restart", "--launches", "18"); r.sessions() != 18 {
		t.Errorf("18 sessions before and after: %+v", r)
	}
}

// TestReportB7AShellOutlivesBrokersAndCentralManager: boundary#1724, sessions end with what only launches them.
func TestReportB7AShellOutlivesBrokersAndCentralManager(t *testing.T) {
	playSessions(t, "broker")
}
