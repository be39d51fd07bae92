// Package settings reads broker.yaml: by which key a broker signs session tokens, whom it knows, and what it grants them.
//
// It guarantees that what is used is whole: a file with one fault is not used at all, and all its faults are said. Files that it names are read with
// it; names are taken from its own folder. Everything is bounded. A Settings is never changed once it is made, and safe for concurrent use.
//
// It decides nothing: who may do what is package grants.
package settings

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/grants"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// DefaultFile is where the file is unless it is said otherwise.
const DefaultFile = "/etc/holdfast/broker.yaml"

// Settings are a file that was read and makes sense.
type Settings struct {
	SigningKeyFile string
	SigningKey     ed25519.PrivateKey // nil for text that was only checked
	Validity       time.Duration      // of tokens
	Grants         []grants.Grant
	Trusted        []string // names of callers who may ask for others

	Socket string // where this machine's users ask; empty: nowhere
	Door   Door
}

// Door is where requesters of other machines ask, over SSH.
type Door struct {
	Listen      string // host:port; empty: nowhere
	HostKeyFile string
	HostKey     ssh.Signer // nil for text that was only checked
	Requesters  []Requester
	Authorities []Authority
}

// Requester is somebody who is known by keys.
type Requester struct {
	Name string
	Keys []ssh.PublicKey
}

// Authority is a key whose certificates make requesters known, by the names in them.
type Authority struct {
	Key   ssh.PublicKey
	Names []grants.Pattern // that it may vouch for
}

// fileYAML is the file.
type fileYAML struct {
	SigningKey string   `yaml:"signing-key"`
	ValidityS  int      `yaml:"token-validity-s"`
	Trusted    []string `yaml:"trusted"`
	Socket     *string  `yaml:"socket"`
	Listen     string   `yaml:"listen"`
	HostKey    string   `yaml:"host-key"`
	Requesters []struct {
		Name string   `yaml:"name"`
		Keys []string `yaml:"keys"`
	} `yaml:"requesters"`
	Authorities []struct {
		Key   string   `yaml:"key"`
		Names []string `yaml:"names"`
	} `yaml:"certificate-authorities"`
	Grants []grantYAML `yaml:"grants"`
}

// Bounds of the file.
const (
	maxFile       = 4 << 20
	maxRequesters = 10_000
	maxKeys       = 16 // of a requester
	maxTrusted    = 100
)

// DefaultSocket is where users of the machine ask. Everybody may connect there; grants say what comes of it.
const DefaultSocket = "/run/holdfast/broker.sock"

const defaultValidity = 2 * time.Minute

// goType is how the YAML library speaks of our types.
var goType = regexp.MustCompile(`cannot unmarshal .* into Go .*`)

// Check tells what is wrong with the text of a file. It looks at no other file.
func Check(name string, data []byte) error {
	_, err := Parse(name, data)
	return err
}

// Parse reads the text of a file. Keys that it names by files are not read.
func Parse(name string, data []byte) (*Settings, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	var y fileYAML
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&y); err != nil && !errors.Is(err, io.EOF) {
		said := goType.ReplaceAllString(yaml.FormatError(err, false, true), "a value of another kind belongs here")
		return nil, fmt.Errorf("%s is not a broker's configuration: %s", name, strings.TrimSpace(said))
	}
	r := &reading{folder: filepath.Dir(name)}
	s := r.settings(&y)
	if err := errors.Join(r.faults...); err != nil {
		return nil, fmt.Errorf("%s cannot be used:\n%w", name, err)
	}
	return s, nil
}

// reading collects what is wrong.
type reading struct {
	folder string
	faults []error
}

// maxFaults bounds what is said of one file.
const maxFaults = 50

func (r *reading) fault(format string, arguments ...any) {
	if len(r.faults) < maxFaults {
		r.faults = append(r.faults, fmt.Errorf(format, arguments...))
	}
}

func (r *reading) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.folder, name)
}

func (r *reading) settings(y *fileYAML) *Settings {
	s := &Settings{SigningKeyFile: r.path(y.SigningKey), Validity: time.Duration(y.ValidityS) * time.Second, Trusted: y.Trusted, Socket: DefaultSocket}
	if y.SigningKey == "" {
		r.fault("signing-key is missing: the file with the key by which this broker signs tokens")
	}
	if s.Validity == 0 {
		s.Validity = defaultValidity
	}
	if s.Validity < time.Second || s.Validity > token.MaxValidity {
		r.fault("token-validity-s is %d: write 1 to %d", y.ValidityS, int(token.MaxValidity.Seconds()))
	}
	if len(y.Trusted) > maxTrusted || slices.Contains(y.Trusted, "") {
		r.fault("trusted has at most %d names, and none of them is empty", maxTrusted)
	}
	if y.Socket != nil {
		s.Socket = r.path(*y.Socket)
	}
	r.door(y, &s.Door)
	if len(y.Grants) > grants.MaxGrants {
		r.fault("there are %d grants, at most %d are taken", len(y.Grants), grants.MaxGrants)
		return s
	}
	for i := range y.Grants {
		s.Grants = append(s.Grants, r.grant(i, &y.Grants[i]))
		if slices.ContainsFunc(s.Grants[:i], func(g grants.Grant) bool { return g.Name == s.Grants[i].Name }) {
			r.fault("grant %s is there twice", s.Grants[i].Name)
		}
	}
	return s
}

// door reads whom the broker knows by keys, and where they come.
func (r *reading) door(y *fileYAML, d *Door) {
	d.Listen, d.HostKeyFile = y.Listen, r.path(y.HostKey)
	if d.Listen != "" {
		if _, _, err := net.SplitHostPort(d.Listen); err != nil {
			r.fault("listen: %.80q is not host:port", d.Listen)
		}
		if d.HostKeyFile == "" {
			r.fault("host-key is missing: by it the broker proves itself to those who come to %s", d.Listen)
		}
	}
	if len(y.Requesters) > maxRequesters || len(y.Authorities) > maxKeys {
		r.fault("there are %d requesters and %d certificate-authorities, at most %d and %d are taken", len(y.Requesters), len(y.Authorities), maxRequesters, maxKeys)
		return
	}
	names, keys := map[string]bool{}, map[string]string{}
	for i, one := range y.Requesters {
		if one.Name == "" || len(one.Name) > token.MaxName || names[one.Name] || len(one.Keys) == 0 || len(one.Keys) > maxKeys {
			r.fault("requester %d (%.60q) needs a name of its own with at most %d bytes, and 1 to %d keys", i+1, one.Name, token.MaxName, maxKeys)
			continue
		}
		names[one.Name] = true
		known := Requester{Name: one.Name}
		for _, text := range one.Keys {
			key := r.key("requester "+one.Name, text)
			if key == nil {
				continue
			}
			if other := keys[string(key.Marshal())]; other != "" {
				r.fault("requester %s has a key that %s has, too: whose it is would not be known", one.Name, other)
			}
			keys[string(key.Marshal())] = one.Name
			known.Keys = append(known.Keys, key)
		}
		d.Requesters = append(d.Requesters, known)
	}
	for i, one := range y.Authorities {
		a := Authority{Key: r.key(fmt.Sprintf("certificate authority %d", i+1), one.Key)}
		if a.Names = r.patterns(fmt.Sprintf("certificate authority %d: names", i+1), one.Names); len(a.Names) == 0 {
			r.fault(`certificate authority %d needs names that it may vouch for: write ["*"] for all`, i+1)
		}
		d.Authorities = append(d.Authorities, a)
	}
}

func (r *reading) key(whose, text string) ssh.PublicKey {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if _, certified := key.(*ssh.Certificate); err != nil || certified || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		r.fault("%s: %.40q is no public key: write it as ssh-keygen does (ssh-ed25519 AAAA... name), without options", whose, text)
		return nil
	}
	return key
}

func (r *reading) patterns(what string, texts []string) (list []grants.Pattern) {
	if len(texts) > grants.MaxPatterns {
		r.fault("%s: there are %d, at most %d are taken", what, len(texts), grants.MaxPatterns)
		return nil
	}
	for _, text := range texts {
		pattern, err := grants.ParsePattern(text)
		if err != nil {
			r.fault("%s: %w", what, err)
			continue
		}
		list = append(list, pattern)
	}
	return list
}
