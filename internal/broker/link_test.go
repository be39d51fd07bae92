package broker

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/poll"
	"github.com/holdfast/holdfast/internal/broker/watch"
)

func sampleLink() Link {
	return Link{
		Fingerprint: poll.Fingerprint{1, 2, 3}, Services: []fleet.Service{{Protocol: "rdp", Port: 3389}, {Protocol: "ssh", Port: 22}},
		Link: watch.Link{
			Fleet: "east", Address: "cm.company.com:443", Central: "cm", Mode: fleet.Strict, Poll: time.Second, Timeout: 2 * time.Second, Probe: 3 * time.Second,
			WarnAge: 5 * time.Minute, HardLimit: 6 * time.Hour,
		},
	}
}

// What is kept of links is what they were.
func TestLinksAreReadAsTheyWereWritten(t *testing.T) {
	west := sampleLink()
	west.Fleet, west.Link.Central, west.Mode, west.HardLimit = "west", "", fleet.Probe, 0
	want := []Link{sampleLink(), west}
	got, err := decodeLinks(encodeLinks(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("read otherwise (-want +got):\n%s", diff)
	}
	if none, err := decodeLinks(encodeLinks(nil)); err != nil || len(none) != 0 {
		t.Errorf("no links: %v, %v", none, err)
	}
}

func TestLinksAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Link){
		"letters, digits":                  func(l *Link) { l.Fleet = "east/1" },
		"a fleet is called by 1 to 50":     func(l *Link) { l.Fleet = "" },
		"HOST:PORT":                        func(l *Link) { l.Address = "cm" },
		"the time between polls":           func(l *Link) { l.Poll = time.Hour },
		"the timeout of a poll":            func(l *Link) { l.Timeout = -time.Second },
		"the hard limit":                   func(l *Link) { l.HardLimit = 1 },
		"a protocol is written once":       func(l *Link) { l.Services[0].Protocol = "ssh" },
		"in lower case, with a port":       func(l *Link) { l.Services[0].Protocol = "RDP" },
		"at most 16 protocols":             func(l *Link) { l.Services = make([]fleet.Service, 17) },
		"the key of a central manager has": func(l *Link) { l.Central = strings.Repeat("x", 129) },
		"probe or strict":                  func(l *Link) { l.Mode = 7 },
	} {
		l := sampleLink()
		change(&l)
		if cleaned, err := l.clean(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %+v, %v", want, cleaned, err)
		}
	}
	bare := sampleLink()
	bare.Services = nil
	if l, err := bare.clean(); err != nil || len(l.Services) != 1 || l.Services[0].Port != 22 {
		t.Errorf("without protocols: %+v, %v", l.Services, err)
	}
}

// FuzzDecodeLinks: whatever is in the file, what is read of it is written and read as the same.
func FuzzDecodeLinks(f *testing.F) {
	f.Add(encodeLinks(nil))
	f.Add(encodeLinks([]Link{sampleLink()}))
	f.Add([]byte(`{"format":1,"fleets":[{"name":"a","address":"b:1","fingerprint":"x"}]}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		links, err := decodeLinks(text)
		if err != nil {
			return
		}
		if len(links) > MaxFleets {
			t.Fatalf("%d links were read", len(links))
		}
		again := encodeLinks(links)
		second, err := decodeLinks(again)
		if err != nil || !bytes.Equal(encodeLinks(second), again) {
			t.Fatalf("%s is read as something else: %v", again, err)
		}
	})
}
