package dns

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// library is a C library whose resolver clients use without a resolver of their own on their machine.
type library struct {
	name     string
	compiler []string
	debian   string
	version  []string
}

var libraries = []library{
	{name: "glibc", compiler: []string{"gcc"}, debian: "gcc and libc6-dev", version: []string{"ldd", "--version"}},
	{name: "musl", compiler: []string{"musl-gcc", "-static"}, debian: "musl-tools", version: []string{"sh", "-c", "$(ls /lib/ld-musl-*.so.1 | head -n 1) 2>&1"}},
}

// stub is a client made with a C library.
type stub struct {
	t       *testing.T
	program string
}

// TestStubResolvers asks with getaddrinfo of each C library, through the site's DNS and directly at the service addresses.
func TestStubResolvers(t *testing.T) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			for _, needed := range []struct{ program, debian string }{{l.compiler[0], l.debian}, {"named", "bind9"}, {"unshare", "util-linux"}} {
				if _, err := exec.LookPath(needed.program); err != nil {
					t.Skipf("%s is not installed (Debian package %s)", needed.program, needed.debian)
				}
			}
			t.Parallel() // in a network of its own
			s := stub{t, filepath.Join(t.TempDir(), "stub")}
			words := slices.Concat(l.compiler[1:], []string{"-Wall", "-Wextra", "-Werror", "-pthread", "-o", s.program, "testdata/stub.c"})
			if out, err := exec.CommandContext(t.Context(), l.compiler[0], words...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", l.compiler[0], err, out)
			}
			inNamespace(t, steeredLink, func(t *testing.T) {
				zones := allSteered()
				h := startHolders(t, zones)
				front{name: "the site's BIND", program: "named", at: siteAddress, arguments: siteBIND(siteAddress, "")}.start(t, zones)
				zones = slices.DeleteFunc(zones, func(z *steered) bool { return z.path == forwarded && z.count == 1 })
				conducts := newConducts(zones)
				for _, z := range zones {
					s.rightAnswers(z)
					conducts[z.path].note(z, s.keeps(z))
				}
				failures(t, h, slices.DeleteFunc(zones, func(z *steered) bool { return z.kind() == "1-ipv6" || z.kind() == "3-ipv6" }), conducts, s.load)
				for _, row := range rows(l.name+" "+release(t, l.version[0], l.version[1:]...), conducts) {
					t.Log("\n" + row)
					documented(t, row)
				}
			})
		})
	}
}

// command runs the client with a resolv.conf: it leads to the site's DNS for zones that this has delegated, else to the zone's
// first three service addresses. Clients that are alone with those have to be told to wait for less than 5 s.
func (s stub) command(z *steered, family string, count, pause int) *exec.Cmd {
	servers := "nameserver " + siteAddress.String() + "\n"
	if z.path == forwarded {
		servers = "options timeout:1 attempts:3\n"
		for _, held := range z.services {
			servers += "nameserver " + held[0].String() + "\n"
		}
	}
	dir := s.t.TempDir()
	resolv := write(s.t, dir, "resolv.conf", servers)
	order := write(s.t, dir, "nsswitch.conf", "hosts: dns\n")
	script := `mount --bind "$1" /etc/resolv.conf && if [ -e /etc/nsswitch.conf ]; then mount --bind "$2" /etc/nsswitch.conf; fi && shift 2 && exec "$@"`
	return exec.CommandContext(s.t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", resolv, order,
		s.program, z.name(), family, strconv.Itoa(count), strconv.Itoa(pause))
}

// outcome is what came of one call of getaddrinfo.
type outcome struct {
	took      time.Duration
	fault     string
	addresses []string
}

func parseOutcomes(t *testing.T, out []byte) (all []outcome) {
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		took, err := strconv.Atoi(words[0])
		if err != nil || len(words) < 3 {
			t.Fatalf("the client says %q", lines.Text())
		}
		one := outcome{took: time.Duration(took) * time.Millisecond}
		if words[1] == "0" {
			one.addresses = words[2:]
		} else {
			one.fault = strings.Join(words[2:], " ")
		}
		all = append(all, one)
	}
	return all
}

func (s stub) ask(z *steered, family string, count int) []outcome {
	command := s.command(z, family, count, 0)
	var faults bytes.Buffer
	command.Stderr = &faults
	out, err := command.Output()
	if err != nil {
		s.t.Fatalf("the client: %v: %s%s", err, out, faults.String())
	}
	return parseOutcomes(s.t, out)
}

// rightAnswers: a client that asks for both families gets what there is, whichever is missing, and a client that asks for
// the missing one learns that there is none, without harm to the other (public report: Alpine's ping, nebula PR 1668).
func (s stub) rightAnswers(z *steered) {
	for range 2 {
		for family, want := range map[string]int{"ipv4": btoi(z.has4()), "ipv6": btoi(z.has6()), "any": btoi(z.has4()) + btoi(z.has6())} {
			if got := s.ask(z, family, 1); len(got) != 1 || len(got[0].addresses) != want {
				s.t.Errorf("%v, %s: %+v, want %d addresses", z, family, got, want)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s stub) keeps(z *steered) kept {
	nodes := map[string]bool{}
	for _, one := range s.ask(z, "any", 20) {
		if one.fault != "" {
			s.t.Errorf("%v: %s", z, one.fault)
			continue
		}
		nodes[strings.TrimRight(one.addresses[0], "12")] = true
	}
	return kept{nodes: len(nodes)}
}

// load is as the function load, with a client program for each zone.
func (s stub) load(zones []*steered, clients int, events map[int]func()) map[*steered]tally {
	outputs := make([]bytes.Buffer, len(zones))
	var running sync.WaitGroup
	for i, z := range zones {
		command := s.command(z, "any", clients, int(loadPause/time.Millisecond))
		command.Stdout, command.Stderr = &outputs[i], os.Stderr
		if err := command.Start(); err != nil {
			s.t.Errorf("the client: %v", err)
			return nil
		}
		running.Go(func() {
			if err := command.Wait(); err != nil {
				s.t.Errorf("the client: %v", err)
			}
		})
	}
	pace := time.NewTicker(loadPause)
	defer pace.Stop()
	for i := range clients {
		if event := events[i]; event != nil {
			event()
		}
		<-pace.C
	}
	running.Wait()
	tallies := map[*steered]tally{}
	for i, z := range zones {
		for _, one := range parseOutcomes(s.t, outputs[i].Bytes()) {
			client := tally{asked: 1, longest: one.took}
			switch {
			case one.fault != "":
				client = tally{asked: 1, failed: 1, fault: one.fault}
			case one.took > clientLate:
				client.late = 1
			}
			tallies[z] = tallies[z].add(client)
		}
		if tallies[z].asked != clients {
			s.t.Errorf("%v: %d of %d clients said what came of it", z, tallies[z].asked, clients)
		}
	}
	return tallies
}
