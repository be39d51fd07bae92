// Package hooks tries the hooks that Holdfast ships with the programs that they are for.
package hooks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds what runs in the namespace.
const patience = 90 * time.Second

// busConfig is a message bus of the kind "system" that lets everybody do everything; it is reached in this namespace only.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
`

const ganeshaConfig = `NFS_CORE_PARAM { Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFSv4 { Lease_Lifetime = 5; Grace_Period = 5; RecoveryBackend = fs; }
EXPORT { Export_Id = 1; Path = /export; Pseudo = /export; Access_Type = RO; SecType = sys; Protocols = 4; FSAL { Name = MEM; } }
LOG { Default_Log_Level = EVENT; }
`

// story runs in namespaces of its own: the hook without a bus, with a bus and no Ganesha, and with Ganesha; in the end with a
// Ganesha that is frozen. Each run is named, and its code follows.
const story = `
hook=$1 dir=$2
run() { echo "== $1"; shift; "$@" 2>&1; echo "code $?"; }
call() { HOLDFAST_PHASE=$1 HOLDFAST_ADDRESS=$2 "$hook"; }
until_ready() { n=0; until "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 300 ] || { echo "gave up on $*"; exit 3; }; sleep 0.1; done; }
owned() { call release 192.0.2.1 | grep -v 'no grace period'; }
mount --make-rprivate / && mount -t tmpfs run /run && mount -t tmpfs lib /var/lib/nfs && ip link set lo up || exit 4
mkdir -p /run/ganesha /run/dbus /var/lib/nfs/ganesha
run no-bus call take 10.0.0.7
dbus-daemon --config-file="$dir/bus.conf" --nofork --nopidfile 2>"$dir/bus.log" &
until_ready test -S /run/dbus/system_bus_socket
run no-ganesha call take 10.0.0.7
run other-phase call prepare 10.0.0.7
run no-address call take ""
ganesha.nfsd -F -f "$dir/ganesha.conf" -L "$dir/ganesha.log" -p /run/ganesha.pid >/dev/null 2>&1 &
ganesha=$!
until_ready owned
run take call take 10.0.0.7
run take6 call take fd00::7
run release call release 10.0.0.8
kill -STOP $ganesha
GANESHA_GRACE_SECONDS=1; export GANESHA_GRACE_SECONDS
run frozen call take 10.0.0.9
kill -KILL $ganesha
`

// TestGaneshaGrace runs the hook for NFS-Ganesha with the real one, on a message bus of its own.
func TestGaneshaGrace(t *testing.T) {
	for program, packageName := range map[string]string{"ganesha.nfsd": "nfs-ganesha", "dbus-daemon": "dbus-daemon", "dbus-send": "dbus-bin", "ip": "iproute2"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian package %s)", program, packageName)
		}
	}
	if found, _ := filepath.Glob("/usr/lib/*/ganesha/libfsalmem.so"); len(found) == 0 {
		t.Skip("NFS-Ganesha has no file system in memory (Debian package nfs-ganesha-mem)")
	}
	if os.Getuid() != 0 {
		t.Skip("Ganesha and its directories need root")
	}
	hook, err := filepath.Abs("../../packaging/hooks/ganesha-grace")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/bus.conf", []byte(busConfig), 0o644), os.WriteFile(dir+"/ganesha.conf", []byte(ganeshaConfig), 0o644)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", story, "story", hook, dir)
	// The first process of the namespace: when it is gone, so is everything that it started.
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = 5 * time.Second
	out, err := command.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || command.ProcessState != nil && command.ProcessState.ExitCode() == 4 {
		t.Skipf("this machine does not permit namespaces: %v: %s", err, out)
	}
	log, _ := os.ReadFile(dir + "/ganesha.log")
	if err != nil {
		t.Fatalf("%v\n%s\nGanesha:\n%s", err, out, log)
	}
	check(t, string(out), map[string][]string{
		"no-bus":      {"no grace period for 10.0.0.7: the system's D-Bus does not answer", "code 0"},
		"no-ganesha":  {"no grace period for 10.0.0.7: NFS-Ganesha is not on the system's D-Bus", "code 0"},
		"other-phase": {"nothing to do in the phase 'prepare'", "code 0"},
		"no-address":  {"HOLDFAST_ADDRESS is not set", "code 2"},
		"take":        {"10.0.0.7: grace period opened", "Started grace period", "code 0"},
		"take6":       {"fd00::7: grace period opened", "code 0"},
		"release":     {"10.0.0.8: state of its clients released", "code 0"},
		"frozen":      {"did not answer within 1 s, for 10.0.0.9", "code 1"},
	})
	// By Ganesha's own word: which event, for which address, and that it is in its grace period.
	for _, want := range []string{"recovery event 5 nodeid -1 ip 10.0.0.7", "recovery event 5 nodeid -1 ip fd00::7", "recovery event 2 nodeid -1 ip 10.0.0.8", "IN GRACE"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("Ganesha's log does not say %q:\n%s", want, log)
		}
	}
}

// check looks for what each run has to say.
func check(t *testing.T, out string, want map[string][]string) {
	t.Helper()
	runs := map[string]string{}
	for _, part := range strings.Split(out, "== ")[1:] {
		name, said, _ := strings.Cut(part, "\n")
		runs[name] = said
	}
	for name, phrases := range want {
		for _, phrase := range phrases {
			if !strings.Contains(runs[name], phrase) {
				t.Errorf("%s does not say %q: %s", name, phrase, fmt.Sprintf("%q", runs[name]))
			}
		}
	}
}
