package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// What this program is in members of a lab.

// servicePort is where a node serves for the idle client.
const servicePort = "2049"

// holdConnections accepts connections and keeps them, saying nothing on them.
func holdConnections([]string) error {
	listener, err := net.Listen("tcp4", "0.0.0.0:"+servicePort)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, connection) }()
	}
}

// waitIdle connects, prints its own end of the connection, and waits without sending anything; it prints how that ended.
func waitIdle(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: rivals idle ADDRESS")
	}
	connection, err := net.Dial("tcp4", net.JoinHostPort(arguments[0], servicePort))
	if err != nil {
		return err
	}
	fmt.Println(connection.LocalAddr())
	_, err = connection.Read(make([]byte, 1))
	fmt.Println("ended:", err)
	return nil
}

// endProcesses kills all processes of a daemon at once: the names that its programs begin with, then, where only some of its
// commands are meant, these. It stops all before it kills the first, so that none acts on the death of another.
func endProcesses(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("usage: rivals end NAME [COMMAND...]")
	}
	if first, err := os.ReadFile("/proc/1/cmdline"); err != nil || !bytes.Contains(first, []byte("\x00lab\x00node\x00")) {
		return errors.New("this kills processes of members of a lab only, and this is no member of a lab")
	}
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	var pids []int
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		line, gone := os.ReadFile(filepath.Join(path, "cmdline"))
		if err == nil && gone == nil && pid != os.Getpid() && isOf(line, arguments[0], arguments[1:]) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return fmt.Errorf("no process of %s runs here", arguments[0])
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("sending %v to process %d: %w", signal, pid, err)
			}
		}
	}
	return nil
}

// isOf says whether a command line, as /proc/PID/cmdline has it, is one of a program whose name begins so, with one of the
// commands as its first argument, if there are any.
func isOf(line []byte, name string, commands []string) bool {
	argv := bytes.Split(line, []byte{0})
	if !strings.HasPrefix(filepath.Base(string(argv[0])), name) {
		return false
	}
	return len(commands) == 0 || len(argv) > 1 && slices.Contains(commands, string(argv[1]))
}
