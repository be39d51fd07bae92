package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/rules"
	"github.com/holdfast/holdfast/internal/broker/watch"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
)

// What is in a broker's directory.
const (
	linksFile = "links.json"
	rulesFile = "rules.json"
	viewsDir  = "views"
	auditDir  = "audit"
)

// Link is a fleet that is linked: how it is watched, whom to ask, and whom to believe.
type Link struct {
	watch.Link
	Fingerprint poll.Fingerprint
	Services    []fleet.Service // what gateways take that do not say it themselves
}

// DefaultServices is what a gateway takes that nobody says anything of.
var DefaultServices = []fleet.Service{{Protocol: fleet.SSH, Port: 22}}

// Bounds of a link.
const (
	maxLinksFile = 1 << 20
	leastPoll    = 10 * time.Millisecond
	mostPoll     = 10 * time.Minute
	mostAge      = 365 * 24 * time.Hour
)

// clean checks a link and returns it as it is kept. Errors say what to write instead.
func (l Link) clean() (Link, error) {
	if l.Fleet == "" || len(l.Fleet) > rules.MaxName || strings.ContainsFunc(l.Fleet, func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) {
		return l, fmt.Errorf("a fleet is called by 1 to %d letters, digits, hyphens, underscores and dots, not %.60q", rules.MaxName, l.Fleet)
	}
	if host, port, err := net.SplitHostPort(l.Address); err != nil || host == "" || port == "" || len(l.Address) > 262 {
		return l, fmt.Errorf("the central manager of fleet %s is named as HOST:PORT, such as 192.0.2.10:443, not %.80q", l.Fleet, l.Address)
	}
	if l.Mode > fleet.Strict {
		return l, fmt.Errorf("fleet %s: the mode is probe or strict", l.Fleet)
	}
	if len(l.Central) > fleet.MaxKey {
		return l, fmt.Errorf("fleet %s: the key of a central manager has at most %d characters", l.Fleet, fleet.MaxKey)
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"the time between polls", l.Poll, leastPoll, mostPoll}, {"the timeout of a poll", l.Timeout, leastPoll, mostPoll},
		{"the time between probes", l.Probe, leastPoll, mostPoll},
		{"the warning age", l.WarnAge, leastPoll, mostAge}, {"the hard limit", l.HardLimit, leastPoll, mostAge},
	} {
		if d.value != 0 && (d.value < d.least || d.value > d.most) {
			return l, fmt.Errorf("fleet %s: %s is %s, and it is %s to %s, or 0 for the default", l.Fleet, d.name, d.value, d.least, d.most)
		}
	}
	if len(l.Services) == 0 {
		l.Services = DefaultServices
	}
	if len(l.Services) > fleet.MaxServices {
		return l, fmt.Errorf("fleet %s: at most %d protocols are taken", l.Fleet, fleet.MaxServices)
	}
	l.Services = slices.Clone(l.Services)
	slices.SortFunc(l.Services, func(a, b fleet.Service) int { return strings.Compare(string(a.Protocol), string(b.Protocol)) })
	for i, s := range l.Services {
		if s.Protocol == "" || len(s.Protocol) > 32 || strings.ToLower(string(s.Protocol)) != string(s.Protocol) || s.Port == 0 || i > 0 && s.Protocol == l.Services[i-1].Protocol {
			return l, fmt.Errorf("fleet %s: a protocol is written once, in lower case, with a port, as ssh:22", l.Fleet)
		}
	}
	return l, nil
}

type wireLinks struct {
	Format int        `json:"format"`
	Fleets []wireLink `json:"fleets"`
}

type wireLink struct {
	Name        string                    `json:"name"`
	Address     string                    `json:"address"`
	Fingerprint string                    `json:"fingerprint"`
	Central     string                    `json:"central,omitempty"`
	Strict      bool                      `json:"strict,omitempty"`
	Poll        int64                     `json:"poll_ms,omitempty"`
	Timeout     int64                     `json:"timeout_ms,omitempty"`
	Probe       int64                     `json:"probe_ms,omitempty"`
	WarnAge     int64                     `json:"warn_age_ms,omitempty"`
	HardLimit   int64                     `json:"hard_limit_ms,omitempty"`
	Services    map[fleet.Protocol]uint16 `json:"services"`
}

// linksFormat is the version of the file.
const linksFormat = 1

func encodeLinks(links []Link) []byte {
	w := wireLinks{Format: linksFormat, Fleets: []wireLink{}}
	for _, l := range links {
		one := wireLink{
			Name: l.Fleet, Address: l.Address, Fingerprint: l.Fingerprint.String(), Central: l.Central, Strict: l.Mode == fleet.Strict,
			Poll: l.Poll.Milliseconds(), Timeout: l.Timeout.Milliseconds(), Probe: l.Probe.Milliseconds(),
			WarnAge: l.WarnAge.Milliseconds(), HardLimit: l.HardLimit.Milliseconds(), Services: map[fleet.Protocol]uint16{},
		}
		for _, s := range l.Services {
			one.Services[s.Protocol] = s.Port
		}
		w.Fleets = append(w.Fleets, one)
	}
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		panic("broker: links cannot be written as text: " + err.Error()) // strings and numbers always can
	}
	return append(text, '\n')
}

func decodeLinks(text []byte) ([]Link, error) {
	var w wireLinks
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // of a later version: what it means is not known
	if err := decoder.Decode(&w); err != nil {
		return nil, errors.New("it cannot be read as links of this version")
	}
	if w.Format != linksFormat || len(w.Fleets) > MaxFleets {
		return nil, fmt.Errorf("it is in format %d with %d fleets, and this version knows format %d with at most %d", w.Format, len(w.Fleets), linksFormat, MaxFleets)
	}
	var links []Link
	for _, one := range w.Fleets {
		ms := func(n int64) time.Duration {
			return time.Duration(max(0, min(n, mostAge.Milliseconds()+1))) * time.Millisecond
		}
		l := Link{Link: watch.Link{
			Fleet: one.Name, Address: one.Address, Central: one.Central, Poll: ms(one.Poll), Timeout: ms(one.Timeout), Probe: ms(one.Probe),
			WarnAge: ms(one.WarnAge), HardLimit: ms(one.HardLimit),
		}}
		if one.Strict {
			l.Mode = fleet.Strict
		}
		for protocol, port := range one.Services {
			l.Services = append(l.Services, fleet.Service{Protocol: protocol, Port: port})
		}
		var err error
		if l.Fingerprint, err = poll.ParseFingerprint(one.Fingerprint); err != nil {
			return nil, err
		}
		if l, err = l.clean(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(links, func(o Link) bool { return o.Fleet == l.Fleet }) {
			return nil, fmt.Errorf("fleet %s is there twice", l.Fleet)
		}
		links = append(links, l)
	}
	return links, nil
}

// readLinks reads the linked fleets; none if there is no file.
func readLinks(dir string) ([]Link, error) {
	path := filepath.Join(dir, linksFile)
	text, err := readBounded(path, maxLinksFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var links []Link
	if err == nil {
		links, err = decodeLinks(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the linked fleets in %s are not used: %w; put the file back as it was, or remove it and link the fleets anew", path, err)
	}
	return links, nil
}

// readBounded reads a file that may be so long.
func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), most)
	}
	return os.ReadFile(path)
}

// keepLinks writes the links. The caller has b.changing.
func (b *Broker) keepLinks(links []Link) error {
	if err := b.makeDir(); err != nil {
		return err
	}
	path := filepath.Join(b.options.Dir, linksFile)
	if err := wholefile.Replace(path, encodeLinks(links)); err != nil {
		return refused("keeping the linked fleets in %s: %v; nothing was changed", path, err)
	}
	return nil
}
