package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How the generator asks.
const (
	alike  = "alike"  // names of one length, 32 queries in one segmented datagram: the most that can be asked
	unlike = "unlike" // names of several lengths, so that neither side can put datagrams together
	paced  = "paced"  // one query every 100 µs, each with its latency
)

const (
	flows      = 4   // sockets
	window     = 256 // queries under way on each
	burst      = 32
	patience   = 20 * time.Millisecond // until what is under way counts as lost
	pacedEvery = 100 * time.Microsecond
)

// heard is what the generator says.
type heard struct {
	PerSecond float64 `json:"per_second"`
	Answers   int     `json:"answers"`
	Lost      int     `json:"lost"`
	Empty     int     `json:"empty"` // responses without an answer
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// askCommand asks one server for a while, in a closed loop.
func askCommand(arguments []string) error {
	flags := flag.NewFlagSet("ask", flag.ExitOnError)
	port := flags.Uint("port", 5300, "port on 127.0.0.1")
	prefix := flags.String("prefix", "w", "first letter of the names")
	seconds := flags.Float64("seconds", 1, "how long")
	how := flags.String("how", alike, "alike, unlike or paced")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	runtime.LockOSThread()
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(*port))
	length := time.Duration(min(*seconds, 10) * float64(time.Second))
	var h heard
	var err error
	switch *how {
	case alike, unlike:
		h, err = askFast(to, queriesFor(*prefix, *how == alike), *how == alike, length)
	case paced:
		h, err = askPaced(to, queriesFor(*prefix, true)[0], length)
	default:
		err = fmt.Errorf("no such way to ask: %q", *how)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(h)
}

// queriesFor are queries for A of names in turn.
func queriesFor(prefix string, oneLength bool) (out [][]byte) {
	for i := range burst {
		name := asked(prefix, i*3%namesAsked, !oneLength)
		m := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		for label := range strings.SplitSeq(name, ".") {
			m = append(append(m, byte(len(label))), label...)
		}
		out = append(out, append(m, 0, 0, 1, 0, 1))
	}
	return out
}

// message is struct mmsghdr of recvmmsg(2).
type message struct {
	header unix.Msghdr
	length uint32
}

// flow is one socket of the generator.
type flow struct {
	fd       int
	underWay int
	last     time.Time
	id       uint16

	queries []message // one for each, or the first with all as segments
	vectors []unix.Iovec
	control [24]byte
	all     unix.Msghdr
	answers []message
	into    []unix.Iovec
	memory  [][600]byte
}

func newFlow(to netip.AddrPort, queries [][]byte, segmented bool) (*flow, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 4<<20)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	f := &flow{fd: fd, last: time.Now(), queries: make([]message, len(queries)), vectors: make([]unix.Iovec, len(queries)),
		answers: make([]message, 2*burst), into: make([]unix.Iovec, 2*burst), memory: make([][600]byte, 2*burst)}
	for i := range queries {
		q := slices.Clone(queries[i])
		f.vectors[i].Base = &q[0]
		f.vectors[i].SetLen(len(q))
		f.queries[i].header.Iov = &f.vectors[i]
		f.queries[i].header.SetIovlen(1)
	}
	for i := range f.answers {
		f.into[i].Base = &f.memory[i][0]
		f.into[i].SetLen(len(f.memory[i]))
		f.answers[i].header.Iov = &f.into[i]
		f.answers[i].header.SetIovlen(1)
	}
	if segmented {
		header := (*unix.Cmsghdr)(unsafe.Pointer(&f.control))
		header.Level, header.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		header.SetLen(unix.SizeofCmsghdr + 2)
		binary.NativeEndian.PutUint16(f.control[unix.SizeofCmsghdr:], uint16(len(queries[0])))
		f.all = unix.Msghdr{Iov: &f.vectors[0], Control: &f.control[0]}
		f.all.SetIovlen(len(queries))
		f.all.SetControllen(len(f.control))
	}
	return f, nil
}

// send sends a burst.
func (f *flow) send() error {
	for i := range f.vectors {
		f.id++
		*(*[2]byte)(unsafe.Pointer(f.vectors[i].Base)) = [2]byte{byte(f.id >> 8), byte(f.id)}
	}
	if f.all.Iov != nil {
		_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.all)), unix.MSG_DONTWAIT)
		if errno == 0 {
			f.underWay += len(f.queries)
		}
		return passing(errno)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.queries[0])), uintptr(len(f.queries)), unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		f.underWay += int(n)
	}
	return passing(errno)
}

// passing is nil for what may be over at the next try: a full buffer, and a server that is not up.
func passing(errno unix.Errno) error {
	if errno == 0 || errno == unix.EAGAIN || errno == unix.ECONNREFUSED {
		return nil
	}
	return errno
}

// receive takes what has come.
func (f *flow) receive() int {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.answers[0])), uintptr(len(f.answers)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// askFast keeps a number of queries under way on each of several sockets.
func askFast(to netip.AddrPort, queries [][]byte, segmented bool, length time.Duration) (h heard, err error) {
	var all []*flow
	for range flows {
		f, err := newFlow(to, queries, segmented)
		if err != nil {
			return h, err
		}
		defer unix.Close(f.fd)
		all = append(all, f)
	}
	began := time.Now()
	now := began
	for ; now.Sub(began) < length; now = time.Now() {
		for _, f := range all {
			if f.underWay+burst <= window {
				if err := f.send(); err != nil {
					return h, fmt.Errorf("asking %v: %w", to, err)
				}
			}
			n := f.receive()
			for i := range n {
				if m := &f.memory[i]; m[6] == 0 && m[7] == 0 {
					h.Empty++
				}
			}
			h.Answers += n
			switch {
			case n > 0:
				f.underWay, f.last = max(f.underWay-n, 0), now
			case f.underWay > 0 && now.Sub(f.last) > patience:
				h.Lost += f.underWay
				f.underWay, f.last = 0, now
			}
		}
	}
	h.PerSecond = float64(h.Answers) / now.Sub(began).Seconds()
	return h, nil
}

// askPaced asks at a steady rate and says how long answers took.
func askPaced(to netip.AddrPort, query []byte, length time.Duration) (h heard, err error) {
	f, err := newFlow(to, [][]byte{query}, false)
	if err != nil {
		return h, err
	}
	defer unix.Close(f.fd)
	sent := make([]time.Time, 1<<16)
	var took []time.Duration
	began := time.Now()
	due := began
	for now := began; now.Sub(began) < length; now = time.Now() {
		if !now.Before(due) {
			due = due.Add(pacedEvery)
			if err := f.send(); err != nil {
				return h, err
			}
			sent[f.id] = now
		}
		n := f.receive()
		now = time.Now()
		for i := range n {
			if at := sent[binary.BigEndian.Uint16(f.memory[i][:])]; !at.IsZero() {
				took = append(took, now.Sub(at))
			}
		}
	}
	if len(took) == 0 {
		return h, fmt.Errorf("%v does not answer", to)
	}
	slices.Sort(took)
	micros := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))].Nanoseconds()) / 1e3
	}
	return heard{PerSecond: float64(len(took)) / length.Seconds(), Answers: len(took), P50: micros(0.5), P99: micros(0.99)}, nil
}
