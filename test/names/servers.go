package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed testdata/responder.c
var responderSource string

// server is one that is measured. Several may be one process under different names.
type server struct {
	name    string
	port    int
	prefix  string                                                   // of the names that it is asked for
	of      string                                                   // the server whose process answers; empty: its own
	swapped bool                                                     // it binds itself to the first processor, whatever it is told
	argv    func(dir string, workers int) (argv []string, err error) // writes its files
	version []string
}

// allServers are all that are known, in the order in which they are asked.
var allServers = []server{
	{name: "bare C responder", port: 5320, prefix: "w", argv: responder},
	{name: "holdfast", port: 5300, prefix: "w", argv: holdfast},
	{name: "holdfast weighted", port: 5300, prefix: "r", of: "holdfast"},
	{name: "gdnsd", port: 5301, prefix: "w", argv: gdnsd, version: []string{"gdnsd", "version"}},
	{name: "gdnsd weighted", port: 5301, prefix: "r", of: "gdnsd"},
	{name: "knot", port: 5302, prefix: "w", argv: knot, swapped: true, version: []string{"knotd", "--version"}},
	{name: "nsd", port: 5303, prefix: "w", argv: nsd, version: []string{"nsd", "-v"}},
	{name: "bind", port: 5304, prefix: "w", argv: bind, version: []string{"named", "-v"}},
	{name: "powerdns", port: 5305, prefix: "w", argv: powerdns, version: []string{"pdns_server", "--version"}},
	{name: "powerdns lua", port: 5305, prefix: "r", of: "powerdns"},
	{name: "coredns", port: 5309, prefix: "w", argv: coredns, version: []string{"coredns", "-version"}},
}

// checkedPort is where the targets of gdnsd's checks listen.
const checkedPort = 5399

// zoneFile is example.test, with plain addresses, and further lines that a server understands.
func zoneFile(more func(name string) string) string {
	var out strings.Builder
	out.WriteString("$ORIGIN example.test.\n$TTL 60\n@ IN SOA ns1 hostmaster 1 3600 600 86400 60\n@ IN NS ns1\nns1 IN A 192.0.2.53\n")
	for i := range namesAsked {
		for _, lengths := range []bool{false, true} {
			fmt.Fprintf(&out, "%s. IN A 192.0.2.%d\n", asked("w", i, lengths), i+1)
			if more != nil {
				out.WriteString(more(asked("r", i, lengths)+".") + "\n")
			}
		}
	}
	return out.String()
}

// write writes a file of a server, with its directory.
func write(dir, name, text string) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o644)
}

// program finds a server's program, also where ordinary users do not look.
func program(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		if path := filepath.Join(dir, name); dir != "" {
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// command is a program with its arguments, once its files are written.
func command(err error, name string, arguments ...string) ([]string, error) {
	if err != nil {
		return nil, err
	}
	path, err := program(name)
	return append([]string{path}, arguments...), err
}

func responder(dir string, workers int) ([]string, error) {
	source, out := filepath.Join(dir, "responder.c"), filepath.Join(dir, "responder")
	if err := write(dir, "responder.c", responderSource); err != nil {
		return nil, err
	}
	compiler, err := program("cc")
	if err != nil {
		return nil, err
	}
	if said, err := exec.Command(compiler, "-O2", "-pthread", "-o", out, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling it: %w: %s", err, said)
	}
	return []string{out, "5320", fmt.Sprint(workers)}, nil
}

func holdfast(_ string, workers int) ([]string, error) {
	self, err := os.Executable()
	return []string{self, "serve", "-port", "5300", "-sockets", fmt.Sprint(workers)}, err
}

func gdnsd(dir string, workers int) ([]string, error) {
	err := write(dir, "config", fmt.Sprintf(`options => { listen => 127.0.0.1:5301, udp_threads => %d, tcp_threads => 1, run_dir => DIR/run, state_dir => DIR/state }
service_types => { tc => { plugin => tcp_connect, port => %d, interval => 2, timeout => 1, up_thresh => 2, ok_thresh => 2, down_thresh => 2 } }
plugins => { weighted => { svc => { service_types => [ tc ], up_thresh => 0.3, a => [ 127.0.0.2, 10 ], b => [ 127.0.0.3, 20 ], c => [ 127.0.0.4, 30 ] } } }
`, workers, checkedPort))
	if err == nil {
		err = write(dir, "zones/example.test", zoneFile(func(name string) string { return name + " 60 DYNA weighted!svc" }))
	}
	for _, sub := range []string{"run", "state"} {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, sub), 0o755)
		}
	}
	return command(err, "gdnsd", "-c", dir, "start")
}

func knot(dir string, workers int) ([]string, error) {
	err := write(dir, "zone", zoneFile(nil))
	if err == nil {
		err = write(dir, "knot.conf", fmt.Sprintf(`server:
    rundir: DIR
    listen: 127.0.0.1@5302
    udp-workers: %d
    tcp-workers: 1
    background-workers: 1
database:
    storage: DIR
log:
  - target: stderr
    any: warning
zone:
  - domain: example.test
    file: DIR/zone
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
`, workers))
	}
	return command(err, "knotd", "-c", filepath.Join(dir, "knot.conf"))
}

func nsd(dir string, workers int) ([]string, error) {
	err := write(dir, "zone", zoneFile(nil))
	if err == nil {
		err = write(dir, "nsd.conf", fmt.Sprintf(`server:
  rrl-ratelimit: 0
  ip-address: 127.0.0.1@5303
  server-count: %d
  reuseport: %s
  username: ""
  chroot: ""
  zonesdir: DIR
  pidfile: DIR/nsd.pid
  xfrdfile: DIR/xfrd.state
  xfrdir: DIR
  zonelistfile: DIR/zone.list
  database: ""
  do-ip6: no
remote-control:
  control-enable: no
zone:
  name: example.test
  zonefile: zone
`, workers, map[bool]string{true: "yes", false: "no"}[workers > 1]))
	}
	return command(err, "nsd", "-d", "-c", filepath.Join(dir, "nsd.conf"))
}

func bind(dir string, workers int) ([]string, error) {
	err := write(dir, "zone", zoneFile(nil))
	if err == nil {
		err = write(dir, "named.conf", `options {
  directory "DIR"; pid-file "DIR/named.pid"; session-keyfile "DIR/session.key";
  listen-on port 5304 { 127.0.0.1; }; listen-on-v6 { none; };
  recursion no; minimal-responses yes; dnssec-validation no; rate-limit { responses-per-second 0; };
};
controls { };
zone "example.test" { type primary; file "DIR/zone"; };
`)
	}
	return command(err, "named", "-g", "-n", fmt.Sprint(workers), "-c", filepath.Join(dir, "named.conf"))
}

func powerdns(dir string, workers int) ([]string, error) {
	err := write(dir, "zone", zoneFile(func(name string) string {
		return name + ` 60 IN LUA A "pickwrandom({{10,'127.0.0.2'},{20,'127.0.0.3'},{30,'127.0.0.4'}})"`
	}))
	if err == nil {
		err = write(dir, "named.conf", `zone "example.test" { type master; file "DIR/zone"; };`)
	}
	if err == nil {
		err = write(dir, "pdns.conf", fmt.Sprintf(`launch=bind
bind-config=DIR/named.conf
local-address=127.0.0.1
local-port=5305
socket-dir=DIR
enable-lua-records=shared
receiver-threads=%d
reuseport=%s
distributor-threads=1
daemon=no
guardian=no
webserver=no
loglevel=3
`, workers, map[bool]string{true: "yes", false: "no"}[workers > 1]))
	}
	return command(err, "pdns_server", "--config-dir="+dir)
}

func coredns(dir string, _ int) ([]string, error) {
	err := write(dir, "zone", zoneFile(nil))
	if err == nil {
		err = write(dir, "Corefile", "example.test:5309 {\n  bind 127.0.0.1\n  loadbalance round_robin\n  file DIR/zone\n}\n")
	}
	return command(err, "coredns", "-conf", filepath.Join(dir, "Corefile"))
}
