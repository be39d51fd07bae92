package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The control socket speaks one request and one response, each a line of JSON. The answer to "enter" comes with the
// credentials of the member's first process instead of the host's: the kernel translates the process number in them
// from the host's pid namespace to that of whoever receives them (unix(7), SCM_CREDENTIALS).

// maxControlLine bounds a line on the control socket.
const maxControlLine = 1 << 20

// controlPatience bounds how long a command may take; a graceful stop of a node is the longest.
const controlPatience = 60 * time.Second

// request asks the host for one thing.
type request struct {
	Op        string     `json:"op"`
	Member    string     `json:"member,omitempty"`
	Agent     bool       `json:"agent,omitempty"`     // the agent alone, or with Guard both
	Guard     bool       `json:"guard,omitempty"`     // the guard of the agent alone, or with Agent both
	Service   string     `json:"service,omitempty"`   // that a scenario runs on a machine, and that alone
	Argv      []string   `json:"argv,omitempty"`      // its command line, for run
	Carrier   bool       `json:"carrier,omitempty"`   // take the carrier down too
	Direction Direction  `json:"direction,omitempty"` // of the frames that are dropped, for cut; empty: both
	Interface string     `json:"interface,omitempty"` // this one alone, for cut
	Groups    [][]string `json:"groups,omitempty"`    // of members, for partition
}

// response is the host's answer.
type response struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
	UserNS bool    `json:"user_namespace,omitempty"` // enter: the member is in a user namespace
}

// socketAddress is the address of the control socket. A Unix socket address holds 107 bytes, a directory's name may
// be longer; so the socket is reached through an open descriptor of the directory, which the caller closes afterwards.
func (d Directory) socketAddress() (string, *os.File, error) {
	directory, err := os.Open(string(d))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), socketFile), directory, nil
}

// listen opens the control socket.
func (d Directory) listen() (*net.UnixListener, error) {
	address, directory, err := d.socketAddress()
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	defer directory.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // the descriptor in its name is gone by then
	return listener, nil
}

// call sends one request to the lab's host and returns its answer. pid is the process that the answer is about, as
// this process numbers it: for "enter" the member's first process, for all others the host.
func (d Directory) call(ask request) (answer response, pid int, err error) {
	if !d.alive() {
		return response{}, 0, fmt.Errorf("no lab runs in %s: start one with `holdfast lab up`, or name its --dir", d)
	}
	address, directory, err := d.socketAddress()
	if err != nil {
		return response{}, 0, fmt.Errorf("reaching the lab: %w", err)
	}
	defer directory.Close()
	connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return response{}, 0, fmt.Errorf("reaching the lab in %s (it may be starting or ending): %w", d, err)
	}
	defer connection.Close()
	if err := wantCredentials(connection); err != nil {
		return response{}, 0, fmt.Errorf("reaching the lab: %w", err)
	}
	_ = connection.SetDeadline(time.Now().Add(controlPatience))
	line, err := json.Marshal(ask)
	if err != nil {
		return response{}, 0, err
	}
	if _, err := connection.Write(append(line, '\n')); err != nil {
		return response{}, 0, fmt.Errorf("asking the lab: %w", err)
	}
	answer, pid, err = receive(connection)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, pid, err
}

// wantCredentials makes the kernel pass the sender's credentials along with what it sends.
func wantCredentials(connection *net.UnixConn) error {
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, set)
}

// receive reads one response line and the process number in the credentials that came with it.
func receive(connection *net.UnixConn) (answer response, pid int, err error) {
	var line []byte
	buffer, control := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for len(line) == 0 || line[len(line)-1] != '\n' {
		n, controlled, _, _, err := connection.ReadMsgUnix(buffer, control)
		if err != nil || n == 0 || len(line)+n > maxControlLine {
			return response{}, 0, fmt.Errorf("the lab went away before it answered (what it said is in %s): %w", logFile, errors.Join(err, syscall.ECONNRESET))
		}
		line = append(line, buffer[:n]...)
		if messages, err := unix.ParseSocketControlMessage(control[:controlled]); err == nil && len(messages) == 1 {
			if credentials, err := unix.ParseUnixCredentials(&messages[0]); err == nil {
				pid = int(credentials.Pid)
			}
		}
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return response{}, 0, errors.New("the lab's answer makes no sense: it was started by another version of holdfast; take it down and up again")
	}
	return answer, pid, nil
}

// answerOne reads one request from a connection and answers it. If serve returns a process number, the answer carries
// that process's number instead of the host's.
func answerOne(connection *net.UnixConn, serve func(request) (response, int)) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(controlPatience))
	reader := bufio.NewReaderSize(connection, 1<<16)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return
	}
	var ask request
	answer, pid := response{Error: "the request makes no sense to this lab"}, 0
	if json.Unmarshal(line, &ask) == nil {
		answer, pid = serve(ask)
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return
	}
	out = append(out, '\n')
	var about []byte
	if pid > 0 {
		about = unix.UnixCredentials(&unix.Ucred{Pid: int32(pid), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())})
	}
	n, _, err := connection.WriteMsgUnix(out, about, nil)
	if err == nil && n < len(out) {
		_, _ = connection.Write(out[n:]) // a caller that left needs no answer
	}
}
