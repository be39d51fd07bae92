package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/address"
	"github.com/holdfast/holdfast/internal/linux/boottime"
	"github.com/holdfast/holdfast/internal/steering"
	"github.com/holdfast/holdfast/internal/tenure"
	"github.com/holdfast/holdfast/internal/tenure/datagram"
)

// A new agent takes the place of a running one over a Unix socket of the running one (docs/decisions/0019-agent-replace.md):
//
//	new      hello
//	running  welcome, with the sockets that both may have open; or why not
//	new      prepared: it has all that it can have beside the running one
//	running  rooms: it decides nothing, touches no interface and reads no query any more
//	new      ready
//	running  right: its heartbeats stand still
//	new      taken
//
// Up to "taken" the new one does nothing, and after it the running one. If "taken" does not come in time, the running one shuts its side for
// receiving: what the new one says later fails, so exactly one of the two goes on.

// handoverFormat is of what is handed over. Agents of different formats do not replace each other: the running one is drained.
const handoverFormat = 1

// How long each side waits.
const (
	prepareLimit = 10 * time.Second       // for all that can be done beforehand
	standLimit   = 3 * time.Second        // for the running agent to stand still, and the new one to read what it is told
	takeLimit    = 500 * time.Millisecond // for the new one to take over; and never more than half of what is left of the right
	leastTake    = 20 * time.Millisecond
	goneLimit    = 20 * time.Second // for the process of the one that was replaced to end
)

// maxHandover bounds one message: 256 nodes and 4,096 addresses take about a megabyte.
const maxHandover = 16 << 20

// handoverSuffix is what the name of the socket for a handover has behind that of the local API.
const handoverSuffix = ".replace"

// handoverHello is how the new agent begins.
type handoverHello struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
}

// handoverWelcome is the answer. The descriptors that come with it are, in this order, of the listeners for the other nodes, for the local API
// and for handovers, and of the sockets for heartbeats.
type handoverWelcome struct {
	Refused  string `json:"refused,omitempty"`
	Drain    bool   `json:"drain,omitempty"` // these two agents can never do it
	Guarded  bool   `json:"guarded"`         // the guard knows of the new one and has to know it before it takes over
	Notify   string `json:"notify,omitempty"`
	Watchdog string `json:"watchdog,omitempty"`
}

// handoverWord is a message without more to say.
type handoverWord struct {
	Word string `json:"word"`
}

const (
	wordPrepared = "prepared"
	wordReady    = "ready"
	wordMore     = "more" // descriptors
)

// byteTaken is how the new agent takes over: one byte, which is there or is not.
const byteTaken = 'T'

// handoverRooms is what the rooms know, when they stand still. Two descriptors come with it for each address of DNS, UDP first; behind these
// the further ones of UDP, address by address. What one message cannot carry comes with the next ones (wordMore).
type handoverRooms struct {
	Failed    string                          `json:"failed,omitempty"` // why they do not
	Holdings  []address.Holding               `json:"holdings"`
	Routes    []address.SubnetRoute           `json:"routes"`
	Held      []address.Holding               `json:"held"`
	Proven    []netip.Addr                    `json:"proven"`
	Carried   []steering.Holding              `json:"carried"`
	Known     []netip.Addr                    `json:"known"`
	Given     map[netip.Addr]steering.Release `json:"given"`
	Releases  map[netip.Addr]steering.Release `json:"releases"`
	Renounced []netip.Addr                    `json:"renounced"`
	Revision  int64                           `json:"revision"` // of the store: nothing is decided by an older view
	Member    memberRecord                    `json:"member"`
	Outage    time.Duration                   `json:"outage"`
	HoldDown  time.Duration                   `json:"hold-down"`
	DNS       []netip.Addr                    `json:"dns"`
	// How many UDP sockets each address has beside the first. An agent of before there were several says and knows nothing of it.
	DNSFurther []int `json:"dns-further,omitempty"`
}

// handoverRight is the right to hold, and all that belongs to it.
type handoverRight struct {
	Peer tenure.Memory   `json:"peer"`
	Link datagram.Memory `json:"link"`
}

// sendHandover sends one message, with descriptors, which stay the caller's.
func sendHandover(conn *net.UnixConn, message any, fds ...int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	// The whole goes in one call as a rule: a short message is there entirely or not at all.
	data = append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(data, rights, nil)
	if err == nil && n < len(data) {
		_, err = conn.Write(data[n:])
	}
	return err
}

// maxHandoverFiles is what the kernel passes with one message (SCM_MAX_FD of unix(7)).
const maxHandoverFiles = 253

// receiveHandover reads one message, and the descriptors that came with it, which are the caller's from then on.
func receiveHandover(conn *net.UnixConn, message any) ([]int, error) {
	var header [4]byte
	control := make([]byte, unix.CmsgSpace(maxHandoverFiles*4))
	n, controlled, _, _, err := conn.ReadMsgUnix(header[:], control)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	fds, err := rightsOf(control[:controlled])
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, header[n:]); err != nil {
		return fds, err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > maxHandover {
		return fds, fmt.Errorf("a message of %d bytes is too long", length)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(conn, data); err != nil {
		return fds, err
	}
	return fds, json.Unmarshal(data, message)
}

func rightsOf(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		list, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // of another kind
		}
		fds = append(fds, list...)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds, nil
}

func closeDescriptors(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// processAt is who is at the other end of a Unix socket. Only root and this process's own user are let in.
func processAt(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var who *unix.Ucred
	var fault error
	err = raw.Control(func(fd uintptr) { who, fault = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	switch {
	case errors.Join(err, fault) != nil:
		return 0, errors.Join(err, fault)
	case who.Uid != 0 && int(who.Uid) != os.Getuid():
		return 0, fmt.Errorf("user %d may not replace this agent: it is for root and the agent's own user", who.Uid)
	}
	return int(who.Pid), nil
}

// listenerOf makes a listener of a descriptor, and closes the descriptor.
func listenerOf(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

// moment turns back what boottime.Nanoseconds made of a time in another process.
func moment(nanoseconds int64) time.Time {
	now := boottime.Now()
	return now.Add(time.Duration(nanoseconds - boottime.Nanoseconds(now)))
}

// stills lets a goroutine stand still at a point where it is between two things.
type stills chan *stand

// stand is one standstill.
type stand struct {
	over chan struct{}
	once sync.Once
}

func newStills() stills { return make(stills) }

// hold has the goroutine stand still. The function that it returns lets it go on; a second call of it does nothing.
func (s stills) hold(limit time.Duration) (goOn func(), err error) {
	one := &stand{over: make(chan struct{})}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case s <- one:
		return func() { one.once.Do(func() { close(one.over) }) }, nil
	case <-timer.C:
		return nil, fmt.Errorf("it did not come to a stop within %v", limit)
	}
}

// still is what the goroutine does when it has been asked to stand still.
func (s *stand) still(done <-chan struct{}) {
	select {
	case <-s.over:
	case <-done:
	}
}
