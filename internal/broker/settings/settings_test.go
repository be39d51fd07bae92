package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/broker/grants"
	"github.com/holdfast/holdfast/internal/broker/token"
)

const key1, key2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti"

const whole = `
signing-key: broker_key
token-validity-s: 60
trusted: [vault]
listen: 0.0.0.0:2223
host-key: /etc/holdfast/door_key
requesters:
  - {name: anna, keys: ["` + key1 + ` anna@laptop"]}
certificate-authorities:
  - {key: "` + key2 + `", names: ["*@company.com"]}
grants:
  - name: dba
    who: [anna]
    targets: [db1, 10.1.0.0/16]
    accounts: [postgres]
  - name: sql
    who: [anna]
    targets: [db1]
    protocols: [tcp]
    ports: [5432, 8000-8100]
    session-minutes: 30
    time-zone: Europe/Berlin
    times: [{days: mon-fri, hours: "08:00-18:00"}]
`

// TestWhole: what is written is what counts, and what is left out is the default.
func TestWhole(t *testing.T) {
	s, err := Parse("/etc/holdfast/broker.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if s.SigningKeyFile != "/etc/holdfast/broker_key" || s.Validity != time.Minute || s.Socket != DefaultSocket || len(s.Door.Requesters) != 1 || len(s.Door.Authorities) != 1 {
		t.Errorf("got %+v", s)
	}
	dba, sql := s.Grants[0], s.Grants[1]
	if dba.May != token.Shell|token.Exec|token.SCP|token.SFTP || len(dba.Subnets) != 1 || dba.Proof != token.Certificate || dba.Ports[0] != (grants.Ports{First: 22, Last: 22}) || dba.Protocols[0] != grants.SSH {
		t.Errorf("dba is %+v", dba)
	}
	if sql.Limit != 30*time.Minute || sql.Zone.String() != "Europe/Berlin" || len(sql.Windows) != 1 || sql.Ports[1] != (grants.Ports{First: 8000, Last: 8100}) {
		t.Errorf("sql is %+v", sql)
	}
}

// TestFaults: what somebody reads whose file cannot be used. Nothing that allows more, or less, than it seems is taken.
func TestFaults(t *testing.T) {
	const grant = "signing-key: k\ngrants:\n  - {name: a, who: [anna], targets: [db1], accounts: [x]"
	for text, want := range map[string]string{
		"":                                       "signing-key is missing",
		"signing-key: k\ngrant: []":              "unknown field",
		"signing-key: [k]":                       "a value of another kind belongs here",
		"signing-key: k\ntoken-validity-s: 1000": "write 1 to 900",
		"signing-key: k\nlisten: 2223\nhost-key: h":                                                               "is not host:port",
		"signing-key: k\nlisten: :2223":                                                                           "host-key is missing",
		"signing-key: k\ntrusted: ['']":                                                                           "none of them is empty",
		"signing-key: k\nrequesters: [{name: anna, keys: []}]":                                                    "1 to 16 keys",
		"signing-key: k\nrequesters: [{name: anna, keys: [secret]}]":                                              "is no public key",
		"signing-key: k\nrequesters: [{name: anna, keys: ['" + key1 + "']}, {name: bob, keys: ['" + key1 + "']}]": "whose it is would not be known",
		"signing-key: k\nrequesters: [{name: anna, keys: ['command=\"x\" " + key1 + "']}]":                        "without options",
		"signing-key: k\ncertificate-authorities: [{key: '" + key1 + "'}]":                                        "needs names that it may vouch for",
		grant + "}\n  - {name: a, who: [bob], targets: [db1], accounts: [x]}":                                     "grant a is there twice",
		grant + ", ports: [0]}":                                                                                   "is no port",
		grant + ", channels: []}":                                                                                 "channels is empty",
		grant + ", channels: [tunnel]}":                                                                           "allowed by the protocol tcp",
		grant + ", channels: [telnet]}":                                                                           "nothing that a session does",
		grant + ", protocols: [rdp]}":                                                                             "whatever else goes through a gateway is tcp",
		grant + ", protocols: [tcp]}":                                                                             "names no ports",
		grant + ", login: password}":                                                                              "certificate or forwarded-agent",
		grant + ", time-zone: Local}":                                                                             "is not known on this machine",
		grant + ", times: []}":                                                                                    "times is empty",
		grant + ", times: [{hours: x}]}":                                                                          "are no hours",
		grant + ", session-minutes: -1}":                                                                          "session-minutes is -1",
		"signing-key: k\ngrants: [{name: a, targets: [db1], accounts: [x]}]":                                      "grant a has no who",
		"signing-key: k\ngrants: [{name: a, who: [x], accounts: [x]}]":                                            "grant a has no targets",
		"signing-key: k\ngrants: [{name: a, who: [x], targets: [db1]}]":                                           "names no accounts",
		"signing-key: k\ngrants: [{who: [x], targets: ['10.*'], accounts: [x]}]":                                  "looks like addresses",
	} {
		_, err := Parse("broker.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s\ngives %v, want %q", text, err, want)
		}
	}
}

// TestRead: keys are read with the file, and one that others may read is not used.
func TestRead(t *testing.T) {
	folder := t.TempDir()
	name, key := filepath.Join(folder, "broker.yaml"), filepath.Join(folder, "k")
	if s, err := Read(name); s != nil || err != nil {
		t.Errorf("without a file: %v, %v", s, err)
	}
	if err := os.WriteFile(name, []byte("signing-key: k"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "ssh-keygen -t ed25519") {
		t.Errorf("without a key: %v", err)
	}
	if err := os.WriteFile(key, []byte("no key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "may be read by others") {
		t.Errorf("with one that others may read: %v", err)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "without a passphrase") {
		t.Errorf("with one that is none: %v", err)
	}
}

// FuzzSettings: whatever is written, what is taken allows nothing that nobody named.
func FuzzSettings(f *testing.F) {
	f.Add(whole)
	f.Add("signing-key: k\ngrants: [{name: a, who: [x], targets: ['*'], accounts: ['{who}'], channels: [jump]}]")
	f.Add("signing-key: k\nsocket: ''\ngrants: [{name: a, who: [x], targets: [::1], ports: [1-2], protocols: [tcp]}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("broker.yaml", []byte(text))
		if err != nil {
			return
		}
		for _, g := range s.Grants {
			if len(g.Who) == 0 || len(g.Targets)+len(g.Subnets) == 0 || len(g.Ports) == 0 || g.May&^token.AllChannels != 0 || g.Zone == nil {
				t.Errorf("%q gives %+v", text, g)
			}
		}
	})
}
