package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// sampleArguments are arguments with which each command prints a result. {} is a new directory.
var sampleArguments = map[string]string{
	"status": "", "problems list": "", "top": "-n 1", "events": "", "explain": "cluster.lab", "plan": "--down node2", "validate": "-", "diff": "-",
	"apply": "-", "get": "", "schema": "", "version": "", "node list": "", "node view": "node2", "node create": "node3 --lnn 3", "node modify": "node2 --weight 2",
	"node delete": "node2", "node drain": "node2", "node undrain": "node2", "node declare-dead": "node2 --reason fire --yes", "cluster view": "", "cluster modify": "--negative-ttl 9",
	"init": "--cluster c --node n --dir {}", "identity issue": "n2 --out {} --authority AUTHORITY",
	"network interfaces list": "", "network dns delegation": "", "network dns check": "cluster.lab",
	"network groupnets list": "", "network groupnets view": "groupnet0", "network groupnets create": "g", "network groupnets delete": "g",
	"network groupnets modify": "groupnet0 --dns-search a.b", "network subnets list": "", "network subnets view": "subnet0",
	"network subnets create": "s --cidr 10.0.0.0/24", "network subnets modify": "subnet0 --mtu 1500", "network subnets delete": "subnet0",
	"network subnets rebalance-ssips": "subnet0", "network pools list": "", "network pools view": "subnet0.pool0", "network pools create": "subnet0.p",
	"network pools modify": "subnet0.pool0 --sc-ttl 1", "network pools delete": "subnet0.pool0", "network pools status": "",
	"network pools rebalance-ips": "--all", "network pools sc-suspend-nodes": "subnet0.pool0 1", "network pools sc-resume-nodes": "subnet0.pool0 1",
	"network pools size": "--nodes 4 --addresses 12", "network pools pin": "subnet0.pool0 10.10.0.100", "network pools unpin": "subnet0.pool0 10.10.0.100",
	"network rules list": "", "network rules view": "subnet0.pool0.rule0", "network rules create": "subnet0.pool0.r --interface eth0",
	"network rules modify": "subnet0.pool0.rule0 --class x", "network rules delete": "subnet0.pool0.rule0", "network checks list": "",
	"network checks view": "subnet0.pool0.web", "network checks create": "subnet0.pool0.c --kind tcp", "network checks modify": "subnet0.pool0.web --rise 2",
	"network checks delete": "subnet0.pool0.web", "exit-codes": "", "sessions list": "--dir RECORDINGS", "sessions search": "needle --dir RECORDINGS",
	"broker link": "east cm:443 --fingerprint x", "broker unlink": "east", "broker fleets": "", "broker gateways": "east", "broker launch": "db1 --dry-run",
	"broker explain": "db1", "broker override": "default --gateway east/gw1", "broker rules list": "", "broker rules put": "lab --gateway east/gw1",
	"broker rules assign": "db1 lab", "broker rules policy": "admins east", "broker rules remove": "network lab",
}

// withoutResult are commands that print no result: files, texts and programs for a shell.
var withoutResult = map[string]bool{
	"man": true, "help": true, "sessions play": true, "broker connect": true, "ssh": true, "tunnel": true, "completion bash": true, "completion zsh": true, "completion fish": true, "completion powershell": true,
}

// TestEveryCommandHonoursOutput walks the tree of commands: each prints its result in the form that --output asks for.
func TestEveryCommandHonoursOutput(t *testing.T) {
	socket := agent(t, &fake{})
	authority := filepath.Join(t.TempDir(), "authority")
	if r := run(t, "", "", "init", "--cluster", "c", "--node", "n", "--dir", authority); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	recorded := recordedSessions(t)
	everyCommand(func(words []string, cmd *cobra.Command) {
		path := strings.Join(words, " ")
		line, known := sampleArguments[path]
		switch {
		case cmd.HasSubCommands() || withoutResult[path]:
			return
		case !known:
			t.Errorf("holdfast %s is not tried: give it arguments in sampleArguments", path)
			return
		}
		for _, form := range []string{"json", "yaml", "table"} {
			text := strings.NewReplacer("{}", filepath.Join(t.TempDir(), "new"), "AUTHORITY", filepath.Join(authority, "identity"), "RECORDINGS", recorded).Replace(line)
			r := run(t, socket, testConfig, append(append(words[:len(words):len(words)], strings.Fields(text)...), "--output", form)...)
			if r.code != 0 || r.out == "" {
				t.Errorf("holdfast %s %s -o %s: exit code %d, printed %q, said %s", path, line, form, r.code, r.out, r.err)
				continue
			}
			isJSON, isYAML := readsAs(r.out, json.NewDecoder), readsAs(r.out, yamlDecoder)
			if (form == "json" || path == "schema" && form == "table") != isJSON || form == "yaml" && !isYAML {
				t.Errorf("holdfast %s -o %s printed\n%s", path, form, r.out)
			}
		}
	})
}

func yamlDecoder(r io.Reader) *yaml.Decoder { return yaml.NewDecoder(r) }

// readsAs reports whether a text is one or several documents, each an object or a list.
func readsAs[D interface{ Decode(any) error }](text string, decoder func(io.Reader) D) bool {
	d := decoder(bytes.NewReader([]byte(text)))
	for n := 0; ; n++ {
		var value any
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) {
			return n > 0
		}
		_, object := value.(map[string]any)
		_, list := value.([]any)
		if err != nil || !object && !list {
			return false
		}
	}
}
