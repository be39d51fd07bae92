package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// The bounds of a lab. One machine runs it, and one /24 holds it.
const (
	maxNodes   = 64
	maxClients = 32
	maxRouters = 8

	maxMachines = 16
)

// File is a lab file. The zero File is not useful; DefaultFile and ParseFile give complete ones.
type File struct {
	Nodes    int      // cluster nodes, 1 to 64; default 3
	Clients  int      // machines without an agent, 0 to 32; default 1
	Routers  int      // forwarding machines, 0 to 8; default 0
	Machines []string // names of machines that a scenario gives something to run, at most 16; none in a file
	Resolver Resolver
	Links    map[string]Link // by member name; a member that is not named has a plain veth
	Cluster  string          // the cluster's own YAML; empty: the default cluster
}

// Resolver is the recursive DNS server that stands between the clients and the cluster.
type Resolver string

// The resolvers that a lab can run. BIND is the default.
const (
	ResolverBIND    Resolver = "bind"
	ResolverUnbound Resolver = "unbound"
	ResolverDnsmasq Resolver = "dnsmasq"
	ResolverKnot    Resolver = "knot"
	ResolverNone    Resolver = "none"
)

// Link says what the link between a member and the switch does to frames. Such a link runs in user space.
type Link struct {
	Seed uint64 `json:"seed"` // the same seed makes the same choices for the same sequence of frames
	Out  Faults `json:"out"`  // from the member to the switch
	In   Faults `json:"in"`   // from the switch to the member
}

// DefaultFile is the lab that an empty lab file means.
func DefaultFile() File {
	return File{Nodes: 3, Clients: 1, Resolver: ResolverBIND}
}

// fileYAML is the form of a lab file in YAML.
type fileYAML struct {
	Lab struct {
		Nodes    *int      `yaml:"nodes"`
		Clients  *int      `yaml:"clients"`
		Routers  *int      `yaml:"routers"`
		Resolver *Resolver `yaml:"resolver"`
	} `yaml:"lab"`
	Links   map[string]linkYAML `yaml:"links"`
	Cluster any                 `yaml:"cluster"`
}

type linkYAML struct {
	Seed uint64     `yaml:"seed"`
	Out  faultsYAML `yaml:"out"`
	In   faultsYAML `yaml:"in"`
}

type faultsYAML struct {
	Loss        any    `yaml:"loss"`
	Delay       string `yaml:"delay"`
	Jitter      string `yaml:"jitter"`
	Duplication any    `yaml:"duplication"`
	Reordering  any    `yaml:"reordering"`
}

// ReadFile reads and parses the lab file at path.
func ReadFile(path string) (File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("reading the lab file: %w", err)
	}
	return ParseFile(path, data)
}

// ParseFile parses a lab file strictly: an unknown key is an error. All faults that are found are in the error; name
// stands for the file in it. The cluster's own YAML is only cut out here; BuildPlan parses it.
func ParseFile(name string, data []byte) (File, error) {
	var raw fileYAML
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&raw); err != nil && !errors.Is(err, io.EOF) {
		return File{}, fmt.Errorf("%s is not a lab file: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	file := DefaultFile()
	override(&file.Nodes, raw.Lab.Nodes)
	override(&file.Clients, raw.Lab.Clients)
	override(&file.Routers, raw.Lab.Routers)
	override(&file.Resolver, raw.Lab.Resolver)
	var faults []error
	file.Links = make(map[string]Link, len(raw.Links))
	for member, link := range raw.Links {
		parsed, err := link.parse()
		if err != nil {
			faults = append(faults, fmt.Errorf("links: %s: %w", member, err))
		}
		file.Links[member] = parsed
	}
	if text, ok := raw.Cluster.(string); ok {
		file.Cluster = text
	} else if raw.Cluster != nil {
		file.Cluster = topLevelBlock(string(data), "cluster")
		if strings.TrimSpace(file.Cluster) == "" { // written in one line, or in a way that cannot be cut out
			out, err := yaml.Marshal(raw.Cluster)
			faults = append(faults, err)
			file.Cluster = string(out)
		}
	}
	faults = append(faults, file.check())
	if err := errors.Join(faults...); err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

func override[T any](value *T, given *T) {
	if given != nil {
		*value = *given
	}
}

// check reports everything that is wrong with the numbers of f.
func (f File) check() error {
	var faults []error
	bound := func(what string, value, low, high int) {
		if value < low || value > high {
			faults = append(faults, fmt.Errorf("lab: %s: %d is outside %d to %d", what, value, low, high))
		}
	}
	bound("nodes", f.Nodes, 1, maxNodes)
	bound("clients", f.Clients, 0, maxClients)
	bound("routers", f.Routers, 0, maxRouters)
	bound("machines", len(f.Machines), 0, maxMachines)
	switch f.Resolver {
	case ResolverBIND, ResolverUnbound, ResolverDnsmasq, ResolverKnot, ResolverNone:
	default:
		faults = append(faults, fmt.Errorf("lab: resolver: %q is none of bind, unbound, dnsmasq, knot, none", f.Resolver))
	}
	return errors.Join(faults...)
}

func (l linkYAML) parse() (Link, error) {
	out, errOut := l.Out.parse()
	in, errIn := l.In.parse()
	if errOut != nil {
		errOut = fmt.Errorf("out: %w", errOut)
	}
	if errIn != nil {
		errIn = fmt.Errorf("in: %w", errIn)
	}
	return Link{Seed: l.Seed, Out: out, In: in}, errors.Join(errOut, errIn)
}

func (f faultsYAML) parse() (Faults, error) {
	var parsed Faults
	var faults []error
	share := func(name string, value any, into *float64) {
		var err error
		if *into, err = parseShare(value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	duration := func(name, value string, into *time.Duration) {
		if value == "" {
			return
		}
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > maxLinkDelay {
			faults = append(faults, fmt.Errorf("%s: %q is not a duration from 0s to %v, such as 5ms", name, value, maxLinkDelay))
		}
		*into = d
	}
	share("loss", f.Loss, &parsed.Loss)
	share("duplication", f.Duplication, &parsed.Duplication)
	share("reordering", f.Reordering, &parsed.Reordering)
	duration("delay", f.Delay, &parsed.Delay)
	duration("jitter", f.Jitter, &parsed.Jitter)
	return parsed, errors.Join(faults...)
}

// parseShare reads a share of frames: "1.5%", or a number from 0 to 1.
func parseShare(value any) (float64, error) {
	if value == nil {
		return 0, nil
	}
	text := fmt.Sprint(value)
	scale := 1.0
	if cut, percent := strings.CutSuffix(text, "%"); percent {
		text, scale = cut, 100
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(number >= 0 && number <= scale) {
		return 0, fmt.Errorf("%q is not a share of frames, such as 1%% or 0.01", fmt.Sprint(value))
	}
	return number / scale, nil
}

// topLevelBlock cuts the indented block under a top-level key out of a YAML text, with the indentation removed. It
// leaves an empty line for every line before it, so that line numbers in messages about the block are those of the
// whole file. It returns "" when the block is not indented under the key.
func topLevelBlock(text, key string) string {
	var out strings.Builder
	indent, inside := -1, false
	for line := range strings.Lines(text) {
		body := strings.TrimLeft(line, " ")
		blank := strings.TrimSpace(body) == "" || strings.HasPrefix(body, "#")
		switch {
		case !blank && body == line: // a top-level key
			inside = strings.HasPrefix(line, key+":")
			if inside && strings.TrimSpace(strings.SplitN(line[len(key)+1:], "#", 2)[0]) != "" {
				return ""
			}
			out.WriteByte('\n')
		case inside && !blank:
			if indent < 0 {
				indent = len(line) - len(body)
			}
			if len(line)-len(body) < indent {
				return ""
			}
			out.WriteString(line[indent:])
		default:
			out.WriteByte('\n')
		}
	}
	if indent < 0 {
		return ""
	}
	return out.String()
}
