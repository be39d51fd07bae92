package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t testing.TB, address string) *Socket {
	t.Helper()
	s, err := Listen(netip.MustParseAddrPort(address))
	return opened(t, s, err)
}

// opened is a socket that is closed with the test, which is skipped where the address cannot be had.
func opened(t testing.TB, s *Socket, err error) *Socket {
	t.Helper()
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Skipf("this machine has no such address: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func to(t testing.TB, s *Socket) Destination {
	t.Helper()
	d, err := To(s.Local())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Many datagrams go with one call and come with one call, in order, each with its length and the kernel's time.
func TestBatches(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			a, b := listen(t, address), listen(t, address)
			sender, receiver := NewSender(8, 32), NewReceiver(8, 32)
			before := time.Now()
			for i := range 8 {
				if sender.Full() {
					t.Fatalf("full after %d", i)
				}
				copy(sender.Add(to(t, b), i), "abcdefgh")
			}
			if !sender.Full() || sender.Waiting() != 8 {
				t.Error("eight do not fill a sender of eight")
			}
			if n, err := sender.Send(a); n != 8 || err != nil || sender.Waiting() != 0 {
				t.Fatalf("sent %d, %v", n, err)
			}
			n, err := receiver.Receive(b)
			after := time.Now()
			if n != 8 || err != nil {
				t.Fatalf("received %d, %v", n, err)
			}
			for i := range n {
				if got := receiver.Datagram(i); string(got) != "abcdefgh"[:i] {
					t.Errorf("%d is %q", i, got)
				}
				if arrived, lost := receiver.Beside(i); lost != 0 || b.Timestamps() && (arrived.Before(before.Round(0)) || arrived.After(after.Round(0))) {
					t.Errorf("%d arrived at %s, not between %s and %s; %d lost", i, arrived, before, after, lost)
				}
			}
			if n, err := receiver.Receive(b); n != 0 || err != nil {
				t.Errorf("then %d, %v", n, err)
			}
		})
	}
}

// A datagram that is too long is told from one that fits, and what cannot be sent does not keep back the rest.
func TestWhatDoesNotFit(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	sender, receiver := NewSender(8, 32), NewReceiver(8, 16)
	elsewhere, err := To(netip.MustParseAddrPort("[::1]:9"))
	if err != nil {
		t.Fatal(err)
	}
	sender.Add(to(t, b), 17)
	sender.Add(elsewhere, 4)
	sender.Add(elsewhere, 4)
	copy(sender.Add(to(t, b), 4), "last")
	if n, err := sender.Send(a); n != 2 || err == nil {
		t.Errorf("sent %d of an IPv4 socket, %v", n, err)
	}
	if n, err := receiver.Receive(b); n != 2 || err != nil {
		t.Fatalf("received %d, %v", n, err)
	}
	if receiver.Datagram(0) != nil || !bytes.Equal(receiver.Datagram(1), []byte("last")) {
		t.Errorf("got %q and %q", receiver.Datagram(0), receiver.Datagram(1))
	}
}

// What the buffer of a socket could not hold is counted beside a later datagram.
func TestLostDatagramsAreCounted(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	if err := unix.SetsockoptInt(b.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	sender, receiver := NewSender(64, 32), NewReceiver(64, 32)
	for range 64 {
		sender.Add(to(t, b), 32)
	}
	_, _ = sender.Send(a)
	first, _ := receiver.Receive(b)
	sender.Add(to(t, b), 1)
	_, _ = sender.Send(a)
	if n, err := receiver.Receive(b); n != 1 || err != nil {
		t.Fatalf("received %d, %v", n, err)
	}
	if _, lost := receiver.Beside(0); int(lost) != 64-first || lost == 0 {
		t.Errorf("%d of 64 came, and %d are said to be lost", first, lost)
	}
}

func TestWaiter(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	w, err := NewWaiter(b)
	if err != nil {
		t.Fatal(err)
	}
	var boot unix.Timespec
	shows := func() int64 {
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
			t.Fatal(err)
		}
		return boot.Nano()
	}
	wait := func() {
		t.Helper()
		if err := w.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(nanoseconds int64) {
		t.Helper()
		if err := w.WakeAt(nanoseconds); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time, it has to be set anew
		soon := shows() + int64(5*time.Millisecond)
		for at(soon); shows() < soon; {
			wait()
		}
	}
	for _, past := range []int64{-5, -5, 1, 1} { // what is past is at once, as often as it is asked for
		at(past)
		wait()
	}
	at(0)
	for range 300 {
		w.Wake()
		w.Wake()
		wait()
	}
	go w.Wake()
	wait()
	sender, receiver := NewSender(1, 1), NewReceiver(1, 1)
	sender.Add(to(t, b), 1)
	if _, err := sender.Send(a); err != nil {
		t.Fatal(err)
	}
	wait()
	wait() // a datagram that is left there goes on waking
	if n, _ := receiver.Receive(b); n != 1 {
		t.Error("woken without a datagram")
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	w.Wake()
}

// TestNothingIsAllocated covers everything that happens for each datagram, or each time around.
func TestNothingIsAllocated(t *testing.T) {
	a, b := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	w, err := NewWaiter(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	sender, receiver, there := NewSender(4, 32), NewReceiver(4, 32), to(t, b)
	at := int64(0)
	allocated := testing.AllocsPerRun(100, func() {
		for range 4 {
			sender.Add(there, 32)
		}
		_, _ = sender.Send(a)
		w.Wake()
		at++
		_ = w.WakeAt(at)
		_ = w.Wait()
		n, _ := receiver.Receive(b)
		for i := range n {
			_ = receiver.Datagram(i)
			_, _ = receiver.Beside(i)
		}
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("[::ffff:10.0.0.1]:5"), netip.MustParseAddrPort("[fe80::1%no-such-device]:5")} {
		if d, err := To(bad); err == nil || d.IsValid() {
			t.Errorf("%s is taken", bad)
		}
		if _, err := Listen(bad); err == nil {
			t.Errorf("listening at %s", bad)
		}
	}
	if _, err := Listen(netip.MustParseAddrPort("192.0.2.1:0")); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("listening at an address of nobody: %v", err)
	}
	d, err := To(netip.MustParseAddrPort("[fe80::1%7]:5"))
	var name [unix.SizeofSockaddrInet6]byte
	if n := d.write(&name); err != nil || n != unix.SizeofSockaddrInet6 || binary.NativeEndian.Uint32(name[24:]) != 7 || name[8] != 0xfe {
		t.Errorf("the address of a link is %x, %v", name, err)
	}
}

func TestRealTime(t *testing.T) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: what is left of the scheduling dies with the thread
		done <- func() error {
			back, err := RunInRealTime(2)
			if err != nil {
				return err
			}
			during, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				return err
			}
			if err := back(); err != nil {
				return err
			}
			after, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				return err
			}
			if during.Policy != unix.SCHED_RR || during.Priority != 2 || during.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 || after.Policy != unix.SCHED_NORMAL {
				return fmt.Errorf("it ran with %+v and then %+v", during, after)
			}
			return nil
		}()
	}()
	if err := <-done; errors.Is(err, ErrNotPermitted) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// FuzzControl: whatever lies beside a datagram, it is read without going beyond it.
func FuzzControl(f *testing.F) {
	time := make([]byte, 32)
	binary.NativeEndian.PutUint64(time, 32)
	binary.NativeEndian.PutUint32(time[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(time[12:], unix.SO_TIMESTAMPNS_NEW)
	f.Add(time)
	f.Add(time[:20])
	f.Add(bytes.Repeat([]byte{16, 0, 0, 0, 0, 0, 0, 0}, 8))
	f.Add(bytes.Repeat([]byte{255}, 64))
	f.Fuzz(func(t *testing.T, b []byte) { parseControl(b) })
}
