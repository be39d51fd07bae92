package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// enterScript goes to the caller's directory, if the member has it, and runs the program. The shell is in all
// namespaces of the member but the pid namespace, in which only its children are; so the program's parent cannot be
// frozen with the member and reaps it whatever happens. nsenter's own parent stops itself when the program is stopped,
// and a member with a process that nobody reaps cannot die. The program dies with the shell.
const enterScript = `cd "$0" 2>/dev/null || cd /; setpriv --pdeathsig KILL -- "$@"; exit $?`

// enterArguments is the nsenter(1) command line that runs argv in the namespaces of process pid.
func enterArguments(pid int, userNS bool, directory string, argv []string) []string {
	line := []string{"nsenter", "--target", strconv.Itoa(pid)}
	if userNS {
		line = append(line, "--user", "--preserve-credentials")
	}
	line = append(line, "--mount", "--net", "--pid", "--uts", "--ipc", "--no-fork", "--", "/bin/sh", "-c", enterScript, directory)
	return append(line, argv...)
}

// enter asks the lab for the command line that runs argv in a member as it is now.
func (d Directory) enter(member, directory string, argv []string) (program string, line []string, err error) {
	program, err = exec.LookPath("nsenter")
	if err != nil {
		return "", nil, errors.New("nsenter is not installed: install the Debian package util-linux")
	}
	answer, pid, err := d.call(request{Op: "enter", Member: member})
	if err != nil {
		return "", nil, err
	}
	return program, enterArguments(pid, answer.UserNS, directory, argv), nil
}

// Exec replaces this process by argv running in a member. It returns only if that fails.
func (d Directory) Exec(member string, argv []string) error {
	here, err := os.Getwd()
	if err != nil {
		here = "/"
	}
	program, line, err := d.enter(member, here, argv)
	if err != nil {
		return err
	}
	return syscall.Exec(program, line, memberEnvironment(os.Environ(), d, member))
}

// Command prepares argv to run in a member; it ends with ctx, and with the thread that starts it. A member that is
// killed and started again needs a new Command. The caller sets the standard streams and starts it.
func (d Directory) Command(ctx context.Context, member string, argv ...string) (*exec.Cmd, error) {
	program, line, err := d.enter(member, "/", argv)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, line[1:]...)
	command.Env = memberEnvironment(os.Environ(), d, member)
	command.WaitDelay = stopPatience // what the program left behind may hold on to its output
	return command, nil
}

// Output runs argv in a member and returns what it printed. Its error carries the last line that it complained with.
func (d Directory) Output(ctx context.Context, member string, argv ...string) ([]byte, error) {
	command, err := d.Command(ctx, member, argv...)
	if err != nil {
		return nil, err
	}
	out, err := command.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		said := strings.TrimSpace(string(failed.Stderr))
		return out, fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), member, err, said[strings.LastIndexByte(said, '\n')+1:])
	}
	return out, err
}
