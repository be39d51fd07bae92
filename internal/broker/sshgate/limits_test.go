package sshgate

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/audit"
	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// refusedFor counts connections that were refused for a reason.
func (b *bench) refusedFor(reason string) float64 {
	return valueOf(b.gate.counts.connectionsRefused.WithLabelValues(reason))
}

func valueOf(counter prometheus.Counter) float64 {
	var m dto.Metric
	if err := counter.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// closed waits until the other side closes a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the connection stays open")
	}
}

// TestStartingIsBounded: connections that do not come to the point are few, are closed in time, and make room again.
func TestStartingIsBounded(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) {
		o.Limits.Starting, o.Limits.Handshake = 3, 300*time.Millisecond
	})
	var waiting []net.Conn
	for range 4 {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		waiting = append(waiting, conn)
	}
	closed(t, waiting[3]) // at once, since the others are within their time
	if got := b.refusedFor("starting"); got != 1 {
		t.Errorf("%v connections were refused for the number of those that start, want 1", got)
	}
	for _, conn := range waiting[:3] {
		closed(t, conn)
	}
	if got := b.ssh("", b.token(token.Exec), "true"); got.code != 0 {
		t.Errorf("after them: %+v", got)
	}
	if got := b.refusedFor("handshake"); got != 3 {
		t.Errorf("%v handshakes failed, want 3", got)
	}
}

// TestEarlyDrop: from a number of starting connections on some are closed by chance, more of them the more there are (sshd_config(5), MaxStartups).
func TestEarlyDrop(t *testing.T) {
	limits := Limits{Starting: 100, StartingDropFrom: 10, StartingDropRate: 30}.withDefaults()
	for starting, want := range map[int]int{0: 0, 9: 0, 10: 30, 55: 65, 99: 99, 100: 100, 200: 100} {
		if got := limits.earlyDrop(starting); got != want {
			t.Errorf("with %d starting, %d of a hundred are closed, want %d", starting, got, want)
		}
	}
	if d := (Limits{}).withDefaults(); d.earlyDrop(31) != 0 || d.earlyDrop(32) != 30 || d.earlyDrop(63) != 97 {
		t.Errorf("by default from %d on", d.StartingDropFrom)
	}
	if none := (Limits{Starting: 4, StartingDropFrom: 4}).withDefaults(); none.earlyDrop(3) != 0 || none.earlyDrop(4) != 100 {
		t.Error("it cannot be switched off")
	}
	b := start(t, service(t, counting), func(o *Options) {
		o.Limits.Starting, o.Limits.StartingDropFrom = 10, 1
		o.Chance = func(int) int { return 0 }
	})
	var last net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		last = conn
	}
	closed(t, last)
	if got := b.refusedFor("starting_early"); got != 1 {
		t.Errorf("%v were refused, want 1", got)
	}
}

// TestStartingFromOneAddress: one address does not take all the places.
func TestStartingFromOneAddress(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.StartingPerAddress = 2 })
	var last net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		last = conn
	}
	closed(t, last)
	if got := b.refusedFor("starting_per_address"); got != 1 {
		t.Errorf("%v were refused, want 1", got)
	}
}

func TestPlace(t *testing.T) {
	for address, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::", "[::ffff:192.0.2.1]:5": "192.0.2.1", "pipe": "invalid IP"} {
		if got := place(named(address)).String(); got != want {
			t.Errorf("%s is counted as %s, want %s", address, got, want)
		}
	}
}

type named string

func (n named) Network() string { return "tcp" }
func (n named) String() string  { return string(n) }

// TestSessionsAreBounded: one session more than allowed is refused with a reason, and its token stays good.
func TestSessionsAreBounded(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.Sessions = 1 })
	first := b.mustDial(b.token(token.Exec))
	tk := b.token(token.Exec)
	if got := b.ssh("", tk, "true"); got.code != 255 || !strings.Contains(got.errs, "has 1 sessions, which is as many as it takes") {
		t.Errorf("got %+v", got)
	}
	first.Close()
	b.records(audit.Started, audit.Refused, audit.Ended)
	if got := b.ssh("", tk, "true"); got.code != 0 {
		t.Errorf("afterwards: %+v", got)
	}
}

// TestChannelsAreBounded: so are the channels of one session.
func TestChannelsAreBounded(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.Channels = 2 })
	client := b.mustDial(b.token(token.Exec))
	for range 2 {
		b.mustSession(client)
	}
	var refused *ssh.OpenChannelError
	if _, err := client.NewSession(); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage || !strings.Contains(refused.Message, "at most 2 channels") {
		t.Errorf("got %v", err)
	}
}

// TestUnreadIsBounded: what the channels of one session may hold that nobody takes is bounded by what the library keeps of each: two windows of a session or a
// forwarded port, one of a tunnel, whose other side the kernel keeps.
func TestUnreadIsBounded(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.Unread = 8 << 20 })
	client := b.mustDial(b.token(token.Exec))
	for range 2 {
		b.mustSession(client)
	}
	var refused *ssh.OpenChannelError
	if _, err := client.NewSession(); !errors.As(err, &refused) || refused.Reason != ssh.ResourceShortage || !strings.Contains(refused.Message, "hold at most 8 MiB unread, and this one may hold 4 MiB more") {
		t.Errorf("got %v", err)
	}
	b = start(t, service(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }), func(o *Options) { o.Limits.Unread = 8 << 20 })
	client = b.mustDial(b.sign(b.tunnel()))
	for range 4 {
		if _, err := client.Dial("tcp", b.service()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Dial("tcp", b.service()); !errors.As(err, &refused) || !strings.Contains(refused.Message, "2 MiB more") {
		t.Errorf("got %v", err)
	}
}

// TestTimesEndSessions: too long, and too long without a byte; the user is told, and the audit record says so.
func TestTimesEndSessions(t *testing.T) {
	behind := startTarget(t)
	for want, limits := range map[string]Limits{"it has lasted 1s": {Total: time.Second}, "nothing was sent or received for 1s": {Idle: time.Second}} {
		b := start(t, behind, func(o *Options) { limits.Drain = time.Millisecond; o.Limits = limits })
		got := b.run("", "ssh", append(b.options("-p"), b.token(token.Exec)+"@127.0.0.1", "sleep 60")...)
		if got.code != 255 || !strings.Contains(got.errs, want) {
			t.Errorf("got %+v, want %q", got, want)
		}
		if outcome := b.records(audit.Started, audit.Ended)[1].Outcome; !strings.HasPrefix(outcome, want) {
			t.Errorf("audited as %q", outcome)
		}
	}
}

// TestTokenLimitsSession: the token may allow less time than the gateway.
func TestTokenLimitsSession(t *testing.T) {
	b := start(t, startTarget(t), nil)
	g := b.grant(token.Exec)
	g.SessionLimit = time.Second
	if got := b.ssh("", b.sign(g), "sleep 60"); got.code != 255 || !strings.Contains(got.errs, "it has lasted 1s") {
		t.Errorf("got %+v", got)
	}
}

// TestSilentClient: a client that is gone without a word is noticed, and its session ended.
func TestSilentClient(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.KeepAlive = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Nobody takes the client's requests, so the gateway's questions are not answered.
	if _, _, _, err := ssh.NewClientConn(conn, b.address, &ssh.ClientConfig{User: b.token(token.Exec), HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err != nil {
		t.Fatal(err)
	}
	if outcome := b.records(audit.Started, audit.Ended)[1].Outcome; outcome != "the client no longer answers" {
		t.Errorf("audited as %q", outcome)
	}
}

// TestFullDisk: with too little space no session begins, its token stays good, and a session that runs is recorded to its end.
func TestFullDisk(t *testing.T) {
	free := make(chan uint64, 1)
	free <- 1 << 40
	b := start(t, startTarget(t), func(o *Options) {
		store, err := recording.NewStore(recording.Options{Directory: filepath.Join(t.TempDir(), "r"), MinFree: 1 << 30, Free: func(string) (uint64, error) {
			now := <-free
			free <- now
			return now, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		o.Recorder = store
	})
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("cat"); err != nil {
		t.Fatal(err)
	}
	<-free
	free <- 1 << 20
	tk := b.token(token.Exec)
	if got := b.ssh("", tk, "true"); got.code != 255 || !strings.Contains(got.errs, "the disk for recordings is nearly full: 1 MiB are free") {
		t.Errorf("got %+v", got)
	}
	if got := b.refusedFor("disk_full"); got != 1 {
		t.Errorf("%v were refused for the disk, want 1", got)
	}
	fmt.Fprintln(in, "still here")
	in.Close()
	if err := s.Wait(); err != nil {
		t.Errorf("the running session: %v", err)
	}
	<-free
	free <- 1 << 40
	if got := b.ssh("", tk, "echo in"); got.out != "in\n" {
		t.Errorf("with space again: %+v", got)
	}
}

// TestRecordingFails: nothing is shown that is not recorded, and the session ends with a reason.
func TestRecordingFails(t *testing.T) {
	b := start(t, startTarget(t), nil)
	// Of an existing file of that name nothing is overwritten, so that the recording cannot begin.
	day := filepath.Join(b.folder, "recordings", time.Now().UTC().Format("2006-01-02"))
	if err := os.MkdirAll(filepath.Dir(day), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, day, "a file in the way")
	if got := b.ssh("", b.token(token.Exec), "echo shown"); got.code != 255 || got.out != "" || !strings.Contains(got.errs, "the session cannot be recorded, so it does not begin") {
		t.Errorf("got %+v", got)
	}
	if got := valueOf(b.gate.counts.recordingsFailed); got != 1 {
		t.Errorf("%v recordings failed, want 1", got)
	}
}

// TestRecordingsAreBounded: a session whose recordings are as large as they may be is ended, and the user reads why; what was recorded until then is whole.
func TestRecordingsAreBounded(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.Limits.Recorded = 1 << 20 })
	const want = "its recordings have 1 MiB, which is as much as those of one session may have"
	if got := b.ssh("", b.token(token.Exec), "-tt", "yes | head -c 5000000"); got.code != 255 || !strings.Contains(got.errs, want) {
		t.Errorf("exit code %d, %s", got.code, got.errs)
	}
	record := b.records(audit.Started, audit.Ended)[1]
	if record.Outcome != want {
		t.Errorf("audited as %q", record.Outcome)
	}
	b.text(record, 0)
	if full, failed := valueOf(b.gate.counts.recordingsFull), valueOf(b.gate.counts.recordingsFailed); full != 1 || failed != 0 {
		t.Errorf("%v recordings count as full and %v as failed, want one that is full", full, failed)
	}
}

// TestAuditFails: what cannot be audited does not begin, and its token stays good for when it can be.
func TestAuditFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	b := start(t, startTarget(t), func(o *Options) { o.Auditor = audit.New(filepath.Join(missing, "audit")) })
	tk := b.token(token.Exec)
	if got := b.ssh("", tk, "true"); got.code != 255 || !strings.Contains(got.errs, "cannot audit it") || !strings.Contains(got.errs, "The token stays good") {
		t.Errorf("got %+v", got)
	}
	b.gate.lock.Lock()
	left := len(b.gate.sessions)
	b.gate.lock.Unlock()
	if left != 0 {
		t.Error("a session is left over")
	}
	if got := valueOf(b.gate.counts.auditFailed); got != 2 { // the beginning, and the refusal
		t.Errorf("%v records were lost, want 2", got)
	}
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := b.ssh("", tk, "true"); got.code != 0 {
		t.Errorf("when it can be audited: %+v", got)
	}
	if got := b.ssh("", tk, "true"); got.code != 255 || !strings.Contains(got.errs, "was used before") {
		t.Errorf("once more: %+v", got)
	}
}

// TestTargetGone: who connects reads that the target cannot be reached; who is connected, that it is lost.
func TestTargetGone(t *testing.T) {
	behind := startTarget(t)
	b := start(t, behind, nil)
	g := b.grant(token.Exec)
	g.Target.Port = freePort(t)
	write(t, filepath.Join(b.folder, "targets"), fmt.Sprintf("[127.0.0.1]:%d %s[127.0.0.1]:%d %s", behind.port, authorized(behind.hostKey), g.Target.Port, authorized(behind.hostKey)))
	if got := b.ssh("", b.sign(g), "true"); got.code != 255 || !strings.Contains(got.errs, "cannot be reached from the gateway gw1") {
		t.Errorf("an address where nobody is: %+v", got)
	}
	g = b.grant(token.Exec)
	g.Account = "nobody-of-that-name"
	if got := b.ssh("", b.sign(g), "true"); got.code != 255 || !strings.Contains(got.errs, "does not let the account nobody-of-that-name in") || !strings.Contains(got.errs, "TrustedUserCAKeys") {
		t.Errorf("an account that is not there: %+v", got)
	}
	if got := b.ssh("", b.token(token.Exec), "kill -9 $PPID; sleep 60"); got.code != 255 || !strings.Contains(got.errs, "the connection to the target is lost") {
		t.Errorf("lost: %+v", got)
	}
}

// TestReport7SessionsOutliveBrokers: a session that runs needs neither its broker nor its token (boundary#1724 and its kin: established sessions
// are not touched by the loss of who launched them).
func TestReport7SessionsOutliveBrokers(t *testing.T) {
	var gone atomic.Bool
	b := start(t, startTarget(t), func(o *Options) {
		known := o.Brokers
		o.Brokers = func() []ed25519.PublicKey {
			if gone.Load() {
				return nil // nobody's token counts any more
			}
			return known()
		}
		o.Now = func() time.Time {
			if gone.Load() {
				return time.Now().Add(time.Hour) // and all have expired
			}
			return time.Now()
		}
	})
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("cat"); err != nil {
		t.Fatal(err)
	}
	gone.Store(true)
	if got := b.ssh("", b.token(token.Exec), "true"); got.code != 255 {
		t.Errorf("a new session: %+v", got)
	}
	fmt.Fprintln(in, "still here")
	heard := make([]byte, 11)
	if _, err := io.ReadFull(out, heard); err != nil || string(heard) != "still here\n" {
		t.Errorf("%q %v", heard, err)
	}
}

// TestStop: a gateway that stops lets sessions end, then ends them and says so.
func TestStop(t *testing.T) {
	b := start(t, startTarget(t), nil)
	s := b.mustSession(b.mustDial(b.token(token.Exec)))
	var errs lockedBuffer
	s.Stderr = &errs
	if err := s.Start("sleep 60"); err != nil {
		t.Fatal(err)
	}
	b.stop()
	_ = s.Wait()
	contains(t, "what the user reads", errs.String(), "the gateway is stopping")
	record := b.records(audit.Started, audit.Ended)[1]
	if record.Outcome != "the gateway is stopping" {
		t.Errorf("audited as %q", record.Outcome)
	}
	b.text(record, 0)
}

// TestStopWhereNobodyReads: a client that reads nothing cannot be told why it is ended, and does not keep the gateway from stopping.
func TestStopWhereNobodyReads(t *testing.T) {
	b := start(t, startTarget(t), nil)
	client := b.mustDial(b.token(token.Exec))
	s := b.mustSession(client)
	if _, err := s.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	const window = 2 << 20 // of the library
	if err := s.Start(fmt.Sprintf("head -c %d /dev/zero; sleep 60", window+1<<20)); err != nil {
		t.Fatal(err)
	}
	b.gate.lock.Lock()
	var c *connection
	for c = range b.gate.sessions {
	}
	b.gate.lock.Unlock()
	for deadline := time.Now().Add(20 * time.Second); c.out.Load() < window; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the window does not fill")
		}
	}
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Error("the gateway does not stop")
		client.Close()
	}
	if outcome := b.records(audit.Started, audit.Ended)[1].Outcome; outcome != "the gateway is stopping" {
		t.Errorf("audited as %q", outcome)
	}
}

// TestRekey: keys are exchanged anew in the middle, and nothing is lost.
func TestRekey(t *testing.T) {
	b := start(t, startTarget(t), func(o *Options) { o.RekeyBytes = 1 << 20 })
	got := b.ssh(strings.Repeat("0123456789", 1<<19), b.token(token.Exec), "-o", "RekeyLimit=2M", "cat")
	if len(got.out) != 5<<20 || got.code != 0 {
		t.Errorf("%d bytes, %s", len(got.out), got.errs)
	}
}
