package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// hosted is a program that a scenario runs on a member, as a service of it: it is started again with the member.
type hosted struct {
	name string
	argv []string // the first is the path of a file
}

// maxHosted bounds the services of one member.
const maxHosted = 4

func (m *machine) hostedNames() []string {
	var names []string
	for _, h := range m.hosted {
		names = append(names, h.name)
	}
	return names
}

// run starts a program as a service of the member, whose log is NAME.log in the member's directory. One of that name that has ended is
// started with the new command line.
func (m *machine) run(program hosted) error {
	i := slices.IndexFunc(m.hosted, func(h hosted) bool { return h.name == program.name })
	switch {
	case m.Kind != KindMachine:
		return fmt.Errorf("%s is a %s: only a machine is told what to run", m.Name, m.Kind)
	case !m.on:
		return fmt.Errorf("%s is off", m.Name)
	case program.name == "" || len(program.argv) == 0 || !filepath.IsAbs(program.argv[0]):
		return errors.New("a service has a name, and a command line that begins with the path of its program")
	case i < 0 && len(m.hosted) >= maxHosted:
		return fmt.Errorf("%s runs %d services, and no more than that", m.Name, maxHosted)
	}
	if err := m.start(program); err != nil {
		return err
	}
	if i >= 0 {
		m.hosted[i] = program
	} else {
		m.hosted = append(m.hosted, program)
	}
	return nil
}

func (m *machine) start(program hosted) error {
	return m.line.run(program.name, program.argv, memberEnvironment(os.Environ(), m.host.Dir, m.Name), m.host.Dir.node(m.Name))
}

// startHosted starts what the member ran when it was turned off.
func (m *machine) startHosted() error {
	for _, program := range m.hosted {
		if err := m.start(program); err != nil {
			return err
		}
	}
	return nil
}

// hostedCommand does something to one service that a scenario runs here.
func (m *machine) hostedCommand(op, name string) error {
	i := slices.IndexFunc(m.hosted, func(h hosted) bool { return h.name == name })
	switch {
	case i < 0:
		return fmt.Errorf("%s runs no %s", m.Name, name)
	case !m.on:
		return fmt.Errorf("%s is off", m.Name)
	}
	switch op {
	case "start":
		return m.start(m.hosted[i])
	case "kill":
		return m.line.end(name, syscall.SIGKILL)
	case "stop":
		return m.line.end(name, syscall.SIGTERM)
	}
	return fmt.Errorf("this lab cannot %q the %s alone", op, name)
}

// The account of a machine besides root. Servers run as it: in a user namespace that an ordinary user made there is one user only, and
// what is root there may not become another, as some servers do.
const (
	machineAccount = "ops"
	machineID      = 1000
)

// machineFiles are what a machine has of its own below /etc. ssh refuses a configuration that is not root's, and in a user namespace of an
// ordinary user root's files are nobody's.
var machineFiles = []string{"passwd", "group", "ssh/ssh_config"}

// writeMachine writes what a machine has below /etc: its accounts, and an empty configuration of ssh. The home of both accounts is the member's directory.
func writeMachine(directory string) error {
	passwd := fmt.Sprintf("root:x:0:0::%s:/bin/sh\n%s:x:%d:%d::%s:/bin/sh\n", directory, machineAccount, machineID, machineID, directory)
	group := fmt.Sprintf("root:x:0:\n%s:x:%d:\n", machineAccount, machineID)
	return errors.Join(
		os.MkdirAll(filepath.Join(directory, "ssh"), 0o755),
		os.WriteFile(filepath.Join(directory, "ssh/ssh_config"), nil, 0o644),
		os.WriteFile(filepath.Join(directory, "passwd"), []byte(passwd), 0o644),
		os.WriteFile(filepath.Join(directory, "group"), []byte(group), 0o644),
	)
}

// asAccount begins the command line of a program that runs as the account of a machine. A user namespace gives it that number whoever
// runs the lab.
func asAccount() []string {
	return []string{"unshare", "--user", fmt.Sprintf("--map-user=%d", machineID), fmt.Sprintf("--map-group=%d", machineID), "--"}
}
