package address

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sentAt lists when each address was announced, relative to start.
func (n *node) sentAt(start time.Time) string {
	var lines []string
	for _, s := range n.link.Sent() {
		lines = append(lines, fmt.Sprintf("%v %v on %s", s.At.Sub(start), s.Address, s.Interface))
	}
	return strings.Join(lines, "\n")
}

// Public report 3: announced at once and repeated for several seconds.
func TestReport3Schedule(t *testing.T) {
	inBubble(t, true, func(n *node) {
		start := time.Now()
		n.set(holdings(moving("10.0.0.7", "ext0"), moving("fd00::7", "ext1")))
		n.after(250 * time.Millisecond)
		n.set(holdings(moving("10.0.0.7", "ext0"), moving("10.0.0.8", "ext0")))
		n.after(time.Hour)
		compare(t, "announcements", `
0s 10.0.0.7 on ext0
0s fd00::7 on ext1
100ms 10.0.0.7 on ext0
100ms fd00::7 on ext1
250ms 10.0.0.8 on ext0
350ms 10.0.0.8 on ext0
500ms 10.0.0.7 on ext0
750ms 10.0.0.8 on ext0
1s 10.0.0.7 on ext0
1.25s 10.0.0.8 on ext0
2s 10.0.0.7 on ext0
2.25s 10.0.0.8 on ext0`, n.sentAt(start))
	})
}

// Public report 2 (keepalived #160, MetalLB #584): the link of the owner drops and returns.
func TestReport2CarrierUp(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0"), still("10.0.0.5", "ext0"), moving("10.0.0.8", "ext1")))
		n.after(time.Minute)
		n.kernel.SetCarrier("ext0", false)
		n.after(10 * time.Second)
		n.link.Sent()
		start := time.Now()
		n.kernel.SetCarrier("ext0", true)
		n.after(time.Minute)
		compare(t, "announcements", `
0s 10.0.0.5 on ext0
0s 10.0.0.7 on ext0
100ms 10.0.0.5 on ext0
100ms 10.0.0.7 on ext0
500ms 10.0.0.5 on ext0
500ms 10.0.0.7 on ext0
1s 10.0.0.5 on ext0
1s 10.0.0.7 on ext0
2s 10.0.0.5 on ext0
2s 10.0.0.7 on ext0`, n.sentAt(start))
	})
}

// A carrier that was gone and is back before anybody looked was gone all the same: the switch has forgotten.
func TestShortCarrierLossIsAnnounced(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0")))
		n.after(time.Minute)
		n.link.Sent()
		start := time.Now()
		n.kernel.SetCarrier("ext0", false)
		n.kernel.SetCarrier("ext0", true)
		n.after(0)
		compare(t, "announcements", "0s 10.0.0.7 on ext0", n.sentAt(start))
	})
}

// Public report 1 (keepalived #166, #1528): whoever holds an address contradicts every other claim, within a second and
// not more often than once a second.
func TestReport1ForeignClaim(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0")))
		n.after(time.Minute)
		n.link.Sent()
		start := time.Now()
		for range 25 { // ten a second, for two and a half seconds
			n.link.Claim(addr("10.0.0.7"), stranger)
			n.link.Claim(addr("10.0.0.99"), stranger) // nobody's business
			n.link.Claim(addr("10.0.0.7"), ownMAC1)   // this node's own, seen on its other interface
			n.after(100 * time.Millisecond)
		}
		n.wantProblems("address.conflict 10.0.0.7")
		n.after(ConflictQuiet)
		n.wantProblems()
		compare(t, "answers", `
0s 10.0.0.7 on ext0
1s 10.0.0.7 on ext0
2s 10.0.0.7 on ext0
3s 10.0.0.7 on ext0`, n.sentAt(start))
	})
}

func TestConflictEndsWithTheAddress(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.set(holdings(moving("10.0.0.7", "ext0")))
		n.after(0)
		n.link.Claim(addr("10.0.0.7"), stranger)
		n.after(0)
		n.wantProblems("address.conflict 10.0.0.7")
		n.set(Desired{})
		n.wantProblems()
	})
}

// What could not be announced is on the board until it could.
func TestAnnouncementFails(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.link.Fail(errors.New("network is down"))
		got := n.set(holdings(moving("10.0.0.7", "ext0")))
		if addresses(got.Held) != "10.0.0.7" {
			t.Errorf("got %+v; it is held, though nobody was told", got)
		}
		n.wantProblems("address.announce-failed ext0")
		n.link.Fail(nil)
		n.after(100 * time.Millisecond)
		n.wantProblems()
		if sent := n.link.Sent(); len(sent) != 1 {
			t.Errorf("announced were %v, want the first repeat", sent)
		}
	})
}

// An interface on which claims cannot be heard is on the board until they can.
func TestWatchFails(t *testing.T) {
	inBubble(t, true, func(n *node) {
		n.link.RemoveInterface("ext0")
		n.set(holdings(still("10.0.0.7", "ext0")))
		n.after(0)
		n.wantProblems("address.announce-failed ext0", "address.not-watched ext0")
		n.link.SetInterface("ext0", ownMAC0)
		n.after(RereadInterval)
		n.wantProblems()
	})
}
