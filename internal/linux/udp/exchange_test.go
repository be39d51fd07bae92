package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func listenService(t testing.TB, address string) *Socket {
	t.Helper()
	s, err := ListenService(netip.MustParseAddrPort(address), 1<<20)
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("a service needs no address to be there: %v", err)
	}
	return opened(t, s, err)
}

// ask sends texts to a service from one socket.
func ask(t testing.TB, from, service *Socket, texts ...string) {
	t.Helper()
	sender := NewSender(len(texts), 2000)
	for _, text := range texts {
		copy(sender.Add(to(t, service), len(text)), text)
	}
	if n, err := sender.Send(from); n != len(texts) || err != nil {
		t.Fatalf("sent %d of %d, %v", n, len(texts), err)
	}
}

// heard are the datagrams that wait at a socket.
func heard(t testing.TB, s *Socket) (out []string) {
	t.Helper()
	receiver := NewReceiver(64, 2000)
	for {
		n, err := receiver.Receive(s)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return out
		}
		for i := range n {
			out = append(out, string(receiver.Datagram(i)))
		}
	}
}

// Answers go back to where each datagram came from, in order, whatever their sizes and however the askers alternate; some get none.
func TestExchange(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			service, one, other := listenService(t, address), listen(t, address), listen(t, address)
			x := NewExchange(32, 1500)
			want := map[*Socket][]string{}
			asked := 0
			for round, from := range []*Socket{one, one, other, one, other, other, other, one} {
				for i := range 3 {
					text := fmt.Sprint(round, "-", i, string(bytes.Repeat([]byte{'x'}, i*round)))
					ask(t, from, service, text)
					asked++
					if asked%5 != 0 {
						want[from] = append(want[from], "to "+text)
					}
				}
			}
			n, err := x.Receive(service)
			if n != asked || err != nil || x.Full() {
				t.Fatalf("received %d of %d, %v, full %v", n, asked, err, x.Full())
			}
			for i := range n {
				in := x.Datagram(i)
				if from := x.From(i); from != one.Local().Addr() {
					t.Errorf("%d is from %v", i, from)
				}
				if (i+1)%5 == 0 {
					continue
				}
				text := "to " + string(in)
				x.Answer(i, copy(in[:cap(in)], text))
			}
			if lost, err := x.Send(service); lost != 0 || err != nil {
				t.Fatalf("%d answers are lost: %v", lost, err)
			}
			for from, texts := range want {
				if got := heard(t, from); fmt.Sprint(got) != fmt.Sprint(texts) {
					t.Errorf("heard %q\nwant  %q", got, texts)
				}
			}
			if n, err := x.Receive(service); n != 0 || err != nil {
				t.Errorf("then %d, %v", n, err)
			}
		})
	}
}

// Answers of one size to one asker go as segments of one message, the last of which may be shorter; no other does.
func TestSegments(t *testing.T) {
	service, one, other := listenService(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	for _, c := range []struct {
		why      string
		from     []*Socket
		sizes    []int
		messages int
	}{
		{"one size", []*Socket{one, one, one, one}, []int{100, 100, 100, 100}, 1},
		{"a shorter one is the last", []*Socket{one, one, one, one}, []int{100, 100, 50, 50}, 2},
		{"a longer one begins anew", []*Socket{one, one, one}, []int{100, 101, 101}, 2},
		{"another asker", []*Socket{one, other, one}, []int{100, 100, 100}, 3},
		{"nothing is no segment", []*Socket{one, one, one, one}, []int{100, 0, 0, 100}, 4},
		{"as many as the kernel takes", slices.Repeat([]*Socket{one}, 65), slices.Repeat([]int{10}, 65), 2},
		{"as long as the kernel takes", slices.Repeat([]*Socket{one}, 51), slices.Repeat([]int{1200}, 51), 2},
		{"too long for a link", []*Socket{one, one}, []int{1300, 1300}, 2},
	} {
		t.Run(c.why, func(t *testing.T) {
			for _, refused := range []bool{false, true} {
				x := NewExchange(80, 1500)
				for _, from := range c.from {
					ask(t, from, service, "?")
				}
				n, err := x.Receive(service)
				if n != len(c.from) || err != nil {
					t.Fatalf("received %d, %v", n, err)
				}
				want := map[*Socket][]string{}
				for i, size := range c.sizes {
					in := x.Datagram(i)
					text := bytes.Repeat([]byte{byte('a' + i)}, size)
					x.Answer(i, copy(in[:cap(in)], text))
					want[c.from[i]] = append(want[c.from[i]], string(text))
				}
				if x.messagesTo != c.messages {
					t.Errorf("%d messages, want %d", x.messagesTo, c.messages)
				}
				value := 0
				if refused {
					value = 1 // without checksums the kernel refuses segments
				}
				if err := unix.SetsockoptInt(service.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, value); err != nil {
					t.Fatal(err)
				}
				if lost, err := x.Send(service); lost != 0 || err != nil {
					t.Fatalf("%d are lost: %v", lost, err)
				}
				if refused && c.messages < len(c.sizes) && x.segmented {
					t.Error("segments were refused, and would be tried again")
				}
				for from, texts := range want {
					if got := heard(t, from); fmt.Sprint(got) != fmt.Sprint(texts) {
						t.Errorf("heard %q\nwant  %q", got, texts)
					}
				}
			}
		})
	}
}

// What the kernel refuses to send is counted and does not keep back the rest, and what is longer than there is room is cut.
func TestExchangeLoses(t *testing.T) {
	service, one := listenService(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	x := NewExchange(4, 8)
	ask(t, one, service, "first", "0123456789", "third")
	if n, err := x.Receive(service); n != 3 || err != nil {
		t.Fatalf("received %d, %v", n, err)
	}
	if got := x.Datagram(1); string(got) != "01234567" {
		t.Errorf("the long one is %q", got)
	}
	x.names[1][0], x.names[1][1] = 0xff, 0xff // nowhere
	for i := range 3 {
		x.Answer(i, len(x.Datagram(i)))
	}
	lost, err := x.Send(service)
	if lost != 1 || err == nil {
		t.Errorf("%d lost, %v", lost, err)
	}
	if got := heard(t, one); fmt.Sprint(got) != "[first third]" {
		t.Errorf("heard %q", got)
	}
}

// Several sockets share an address that the host need not have, and one that another program has alone is refused.
func TestServiceSockets(t *testing.T) {
	for address, omit := range map[string]struct{ level, option, value int }{
		"192.0.2.4:0":     {unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT},
		"[2001:db8::4]:0": {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT},
	} {
		t.Run(address, func(t *testing.T) {
			first := listenService(t, address)
			if second := listenService(t, first.Local().String()); second.Local() != first.Local() {
				t.Errorf("%v beside %v", second.Local(), first.Local())
			}
			if got, err := unix.GetsockoptInt(first.fd, omit.level, omit.option); got != omit.value || err != nil {
				t.Errorf("path MTU discovery is %d, %v: what strangers say would count", got, err)
			}
		})
	}
	alone := listen(t, "127.0.0.1:0")
	if s, err := ListenService(alone.Local(), 1<<16); err == nil || !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("an address that is taken: %v, %v", s, err)
	}
}

// A full exchange says so, and nothing is allocated for a datagram and its answer.
func TestExchangeAllocatesNothing(t *testing.T) {
	service, one := listenService(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	x, sender, receiver := NewExchange(8, 64), NewSender(8, 64), NewReceiver(8, 64)
	destination := to(t, service)
	exchanged := 0
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			copy(sender.Add(destination, 4), "what")
		}
		_, _ = sender.Send(one)
		n, _ := x.Receive(service)
		for i := range n {
			x.Answer(i, len(x.Datagram(i)))
		}
		_, _ = x.Send(service)
		if _, _ = receiver.Receive(one); x.Full() {
			exchanged++
		}
	}); n != 0 || exchanged == 0 {
		t.Errorf("%v allocations, %d full exchanges", n, exchanged)
	}
}
