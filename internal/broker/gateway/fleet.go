package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/member"
	"github.com/holdfast/holdfast/internal/broker/pin"
)

// fleetYAML is the gateway as a member of a fleet of Holdfast's own.
type fleetYAML struct {
	Roles          []string     `yaml:"roles"`
	Key            string       `yaml:"key"`
	Address        string       `yaml:"address"`
	Listen         string       `yaml:"listen"`
	Certificate    string       `yaml:"certificate"`
	PrivateKey     string       `yaml:"private-key"`
	CentralManager string       `yaml:"central-manager"`
	Fingerprint    string       `yaml:"fingerprint"`
	Members        []memberYAML `yaml:"members"`
	Readers        []string     `yaml:"readers"`
	BeatMS         uint32       `yaml:"beat-interval-ms"`
}

type memberYAML struct {
	Key         string `yaml:"key"`
	Fingerprint string `yaml:"fingerprint"`
}

// fleetConfig is what of it makes sense.
type fleetConfig struct {
	fleetYAML
	roles   fleet.Roles
	address string // an IP address; empty if the gateway is known by name
	name    string
	central member.Central
	members []member.Member
	readers member.Readers
	beat    time.Duration
}

// DefaultCertificate is where a gateway's certificate is, in the folder of its configuration.
const DefaultCertificate = "gateway_fleet.pem"

// maxReaders bounds the certificates of brokers.
const maxReaders = 1024

// setFleet reads the block `fleet`, if there is one.
func (c *config) setFleet(folder string) []error {
	if c.Fleet == nil {
		return nil
	}
	f := &fleetConfig{fleetYAML: *c.Fleet}
	if f.Key == "" {
		f.Key = c.Name
	}
	if f.Certificate == "" {
		f.Certificate = DefaultCertificate
	}
	f.Certificate = from(folder, f.Certificate)
	if f.PrivateKey = from(folder, f.PrivateKey); f.PrivateKey == "" {
		f.PrivateKey = f.Certificate
	}
	var err error
	if f.roles, err = member.CheckRoles(f.Roles); err != nil {
		err = fmt.Errorf("roles: %w", err)
	}
	faults := []error{err}
	if err := member.CheckKey(f.Key); err != nil {
		faults = append(faults, fmt.Errorf("key (without it the gateway's name): %w", err))
	}
	faults = append(faults, f.setAddresses(), f.setReaders())
	if f.roles.Has(fleet.CentralManagement) {
		faults = append(faults, f.setManaging()...)
	} else {
		faults = append(faults, f.setManaged()...)
	}
	c.fleet = f
	var named []error
	for _, fault := range faults {
		if fault != nil {
			named = append(named, fmt.Errorf("fleet.%w", fault))
		}
	}
	return named
}

func (f *fleetConfig) setAddresses() error {
	if host, port, err := net.SplitHostPort(f.Listen); err != nil || port == "" || host != "" && !isAddress(host) {
		return fmt.Errorf("listen is %.80q: write where members and brokers reach this gateway, as 0.0.0.0:8443", f.Listen)
	}
	if isAddress(f.Address) {
		f.address = f.Address
	} else {
		f.name = f.Address
	}
	probe := member.Description{Address: f.address, FQDN: f.name, Roles: []string{"managed-host"}, Own: member.Own{Name: "x"}}
	if err := probe.Check(); err != nil {
		return fmt.Errorf("address is where users reach this gateway, an IP address or a name: %w", err)
	}
	return nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func (f *fleetConfig) setReaders() error {
	if len(f.Readers) > maxReaders {
		return fmt.Errorf("readers has %d entries, at most %d are taken", len(f.Readers), maxReaders)
	}
	if slices.Contains(f.Readers, "any") {
		if len(f.Readers) > 1 {
			return errors.New("readers has any beside others: write [any] alone, or the fingerprints of brokers")
		}
		f.readers.Any = true
		return nil
	}
	f.readers.Listed = map[pin.Fingerprint]bool{}
	for _, text := range f.Readers {
		fingerprint, err := pin.ParseFingerprint(text)
		if err != nil {
			return fmt.Errorf("readers: %w; or write [any]", err)
		}
		f.readers.Listed[fingerprint] = true
	}
	return nil
}

// setManaging reads what a central manager has.
func (f *fleetConfig) setManaging() (faults []error) {
	if f.CentralManager != "" || f.Fingerprint != "" {
		faults = append(faults, errors.New("central-manager and fingerprint are for the others: this gateway has the role central-management"))
	}
	f.beat = time.Duration(f.BeatMS) * time.Millisecond
	if f.beat != 0 && (f.beat < member.LeastInterval || f.beat > member.MostInterval) {
		faults = append(faults, fmt.Errorf("beat-interval-ms is %d: write %d to %d", f.BeatMS, member.LeastInterval.Milliseconds(), member.MostInterval.Milliseconds()))
	}
	if len(f.Members) > member.MaxMembers {
		return append(faults, fmt.Errorf("members has %d entries, at most %d are taken", len(f.Members), member.MaxMembers))
	}
	for _, m := range f.Members {
		fingerprint, err := pin.ParseFingerprint(m.Fingerprint)
		if err != nil {
			faults = append(faults, fmt.Errorf("members: %.80s: %w; holdfast gateway certificate prints it on that gateway", m.Key, err))
			continue
		}
		f.members = append(f.members, member.Member{Key: m.Key, Fingerprint: fingerprint})
	}
	if err := member.CheckMembers(f.Key, f.members); err != nil {
		faults = append(faults, fmt.Errorf("members: %w", err))
	}
	return faults
}

// setManaged reads what the others have.
func (f *fleetConfig) setManaged() (faults []error) {
	if len(f.Members) > 0 || f.BeatMS != 0 {
		faults = append(faults, errors.New("members and beat-interval-ms are the central manager's: write them there"))
	}
	where, err := url.Parse(f.CentralManager)
	if err == nil && (where.Scheme != "https" || where.Hostname() == "" || where.User != nil || where.Path != "" && where.Path != "/" || where.RawQuery != "" || where.Fragment != "") {
		err = errors.New("it is something else")
	}
	if err == nil {
		_, err = strconv.ParseUint(where.Port(), 10, 16)
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("central-manager is %.80q: write where the gateway with the role central-management answers, as https://192.0.2.11:8443", f.CentralManager))
	} else {
		f.central.Address = where.Host
	}
	if f.central.Fingerprint, err = pin.ParseFingerprint(f.Fingerprint); err != nil {
		faults = append(faults, fmt.Errorf("fingerprint is that of the central manager: %w; holdfast gateway certificate prints it there", err))
	}
	return faults
}

// bar is why this gateway never takes a session, by its roles; empty if it takes them.
func (c *config) bar() string {
	if c.fleet == nil || c.fleet.roles.Refuses() == "" {
		return ""
	}
	return "The gateway " + c.Name + " takes no sessions: " + c.fleet.roles.Refuses() + ". Use another gateway of the fleet."
}
