// Package packaging tests the Debian package by installing it into a root directory of its own, beside a systemctl that only notes what
// it is asked.
package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// program stands for holdfast where the package is made: the package wants its manual pages and its completion.
const program = `#!/bin/sh
case $1 in
man) mkdir -p "$2" && echo page >"$2/holdfast.1" ;;
completion) echo "# completion for $2" ;;
esac
`

// systemctl notes what it is asked. The files beside its notes say how units are, and how often a reload fails.
const systemctl = `#!/bin/sh
echo "$*" >>"$NOTES/asked"
case $1 in
is-active) cat "$NOTES/$2" 2>/dev/null || { echo inactive; exit 3; } ;;
reload)
	left=$(cat "$NOTES/fails" 2>/dev/null || echo 0)
	if [ "$left" -gt 0 ]; then echo $((left - 1)) >"$NOTES/fails"; exit 1; fi ;;
esac
`

// machine is a root directory with its package database.
type machine struct {
	t     *testing.T
	root  string
	notes string
	path  string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	for _, name := range []string{"dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: this is not Debian", name)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("dpkg installs as root only, also into a directory")
	}
	m := &machine{t: t, root: t.TempDir(), notes: t.TempDir(), path: t.TempDir()}
	for _, directory := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "run/systemd/system", "usr/sbin"} {
		if err := os.MkdirAll(filepath.Join(m.root, directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write(filepath.Join(m.root, "var/lib/dpkg/status"), "", 0o644)
	m.write(filepath.Join(m.path, "systemctl"), systemctl, 0o755)
	m.write(filepath.Join(m.path, "sleep"), "#!/bin/sh\n", 0o755)
	return m
}

func (m *machine) write(path, text string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// unit says how a unit is: active, activating.
func (m *machine) unit(name, state string) {
	m.t.Helper()
	m.write(filepath.Join(m.notes, name+".service"), state+"\n", 0o644)
}

// dpkg runs dpkg on the root directory and returns what systemctl was asked to do meanwhile.
func (m *machine) dpkg(arguments ...string) []string {
	m.t.Helper()
	asked := filepath.Join(m.notes, "asked")
	m.write(asked, "", 0o644)
	command := exec.Command("dpkg", append([]string{"--root=" + m.root, "--force-script-chrootless", "--log=" + filepath.Join(m.notes, "log")}, arguments...)...)
	command.Env = append(os.Environ(), "NOTES="+m.notes, "PATH="+m.path+":"+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := command.CombinedOutput(); err != nil {
		m.t.Fatalf("dpkg %q: %v\n%s", arguments, err, out)
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		m.t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "is-active") })
}

// packageOf makes a package of a version.
func packageOf(t *testing.T, version string) string {
	t.Helper()
	directory := t.TempDir()
	binary := filepath.Join(directory, "holdfast")
	if err := os.WriteFile(binary, []byte(program+"# "+version+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("../../scripts/deb", binary, version, directory)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("making the package: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: systemctl was asked %q, want %q", what, got, want)
	}
}

// TestUpgrade: an upgrade replaces the running agent; nothing stops it before, and where it cannot be replaced it is restarted.
func TestUpgrade(t *testing.T) {
	m := newMachine(t)
	first, second := packageOf(t, "v1.0.0"), packageOf(t, "v1.0.1")
	const reload, restart = "reload holdfast-agent.service", "restart holdfast-agent.service"

	expect(t, "a first installation", m.dpkg("-i", first), "daemon-reload")
	for _, file := range []string{
		"usr/bin/holdfast", "usr/lib/systemd/system/holdfast-agent.service", "usr/lib/systemd/system/holdfast-guard.service", "usr/lib/systemd/system/holdfast-gateway.service",
		"usr/libexec/holdfast/ganesha-grace", "usr/share/man/man1/holdfast.1.gz", "usr/share/bash-completion/completions/holdfast", "usr/share/doc/holdfast/copyright",
	} {
		if _, err := os.Stat(filepath.Join(m.root, file)); err != nil {
			t.Error(err)
		}
	}
	expect(t, "an upgrade where nothing runs", m.dpkg("-i", second), "daemon-reload")

	m.unit("holdfast-guard", "active")
	m.unit("holdfast-agent", "active")
	expect(t, "an upgrade", m.dpkg("-i", second), "daemon-reload", "restart holdfast-guard.service", reload)
	m.write(filepath.Join(m.notes, "fails"), "2\n", 0o644)
	expect(t, "one while the agent is busy", m.dpkg("-i", second), "daemon-reload", "restart holdfast-guard.service", reload, reload, reload)
	m.write(filepath.Join(m.notes, "fails"), "9\n", 0o644)
	expect(t, "one of an agent that cannot be replaced", m.dpkg("-i", second), "daemon-reload", "restart holdfast-guard.service", reload, reload, reload, restart)
	m.unit("holdfast-agent", "activating")
	expect(t, "one of an agent that waits for its store", m.dpkg("-i", second), "daemon-reload", "restart holdfast-guard.service", restart)
	m.write(filepath.Join(m.root, "usr/sbin/policy-rc.d"), "#!/bin/sh\nexit 101\n", 0o755)
	expect(t, "one against local policy", m.dpkg("-i", second), "daemon-reload")
}

// TestRemoval: a removal stops the agent before the guard, and what must not be lost stays.
func TestRemoval(t *testing.T) {
	m := newMachine(t)
	m.dpkg("-i", packageOf(t, "v1.0.0"))
	identity := filepath.Join(m.root, "var/lib/holdfast/identity")
	if err := os.MkdirAll(identity, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, "a removal", m.dpkg("-r", "holdfast"), "disable --now holdfast-agent.service", "disable --now holdfast-guard.service", "disable --now holdfast-gateway.service", "daemon-reload")
	expect(t, "a purge", m.dpkg("-P", "holdfast"))
	if _, err := os.Stat(identity); err != nil {
		t.Errorf("the identity is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(m.root, "usr/bin/holdfast")); err == nil {
		t.Error("the program is still there")
	}
}

// TestVersions: what git calls a commit becomes a version that dpkg takes, and sorts before every release.
func TestVersions(t *testing.T) {
	newMachine(t)
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-gabc123-dirty": "1.2.3.4.gabc123.dirty", "4559d2e": "0~", "development": "0~"} {
		name := filepath.Base(packageOf(t, version))
		if !strings.HasPrefix(name, "holdfast_"+want) {
			t.Errorf("%s became %s, want %s", version, name, want)
		}
		if err := exec.Command("dpkg", "--validate-version", strings.Split(name, "_")[1]).Run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if fmt.Sprint(exec.Command("dpkg", "--compare-versions", "0~20261105.abc", "lt", "0.1").Run()) != "<nil>" {
		t.Error("a commit sorts behind a release")
	}
}
