package lab

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		answered []uint32
		lost     int
	}{
		"nothing was answered yet":           {nil, 0},
		"all":                                {[]uint32{5, 6, 7}, 0},
		"from before the reset":              {[]uint32{3, 4}, 0},
		"two in the middle":                  {[]uint32{5, 8}, 2},
		"the first":                          {[]uint32{6}, 1},
		"one was late":                       {[]uint32{5, 7, 6}, 0},
		"one was late, another is lost":      {[]uint32{5, 8, 6}, 1},
		"twice":                              {[]uint32{5, 5, 6}, 0},
		"those on their way are not counted": {[]uint32{5}, 0},
	} {
		one := tally{next: 5}
		for _, number := range c.answered {
			one.answered(number)
		}
		if got := len(one.lost); got != c.lost {
			t.Errorf("%s: %d lost, want %d", name, got, c.lost)
		}
	}
	wrapped := tally{next: 0xffffffff}
	wrapped.answered(1)
	if got := len(wrapped.lost); got != 2 {
		t.Errorf("where the numbers begin again: %d lost, want 2", got)
	}
	wrapped.answered(1 << 30)
	if got := len(wrapped.lost); got != maxLost {
		t.Errorf("after a very long silence %d are kept, want %d", got, maxLost)
	}
}

func TestSilence(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := silence{last: start}
	for _, ms := range []int{1, 2, 40, 39, 41} {
		s.answered(at(ms))
	}
	if got := s.until(at(42)); got != 38*time.Millisecond {
		t.Errorf("the longest silence is %v, want 38ms", got)
	}
	if got := s.until(at(100)); got != 59*time.Millisecond {
		t.Errorf("with the one that goes on it is %v, want 59ms", got)
	}
}

func TestProbePackets(t *testing.T) {
	if number, ok := numberOf(datagramOf(70000)); !ok || number != 70000 {
		t.Errorf("a datagram's number: %d, %v", number, ok)
	}
	if _, ok := numberOf([]byte("something else")); ok {
		t.Error("a stranger's datagram has a number")
	}
	reply := append([]byte{0x45, 19: 0}, echoRequest(7)...)
	if isEchoReply(reply) {
		t.Error("a request is a reply")
	}
	reply[20] = 0 // the type of a reply
	if !isEchoReply(reply) {
		t.Errorf("the reply to process %d is none", os.Getpid())
	}
	for n := range reply {
		if isEchoReply(reply[:n]) {
			t.Errorf("%d bytes of a reply are one", n)
		}
	}
	reply[24]++
	if isEchoReply(reply) {
		t.Error("the reply to another process is ours")
	}
}

// The kernel's time of arrival counts where it can be right.
func TestArrival(t *testing.T) {
	now := time.Now()
	stamped := func(at time.Time) []byte {
		data := make([]byte, 16)
		binary.NativeEndian.PutUint64(data, uint64(at.Unix()))
		binary.NativeEndian.PutUint64(data[8:], uint64(at.Nanosecond()))
		message := make([]byte, unix.CmsgLen(0), unix.CmsgLen(len(data)))
		binary.NativeEndian.PutUint64(message, uint64(unix.CmsgLen(len(data))))
		binary.NativeEndian.PutUint32(message[8:], unix.SOL_SOCKET)
		binary.NativeEndian.PutUint32(message[12:], unix.SCM_TIMESTAMPNS)
		return append(message, data...)
	}
	for what, c := range map[string]struct{ early, want time.Duration }{
		"a moment ago":             {3 * time.Millisecond, 3 * time.Millisecond},
		"in the future":            {-time.Second, 0},
		"before the clock was set": {time.Hour, 0},
	} {
		if got := now.Sub(arrival(stamped(now.Add(-c.early)), now)); got != c.want {
			t.Errorf("%s: %v before now, want %v", what, got, c.want)
		}
	}
	if got := arrival(nil, now); !got.Equal(now) {
		t.Errorf("without a time of arrival: %v, want %v", got, now)
	}
}
