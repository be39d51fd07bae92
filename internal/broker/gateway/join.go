package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/member"
	"github.com/holdfast/holdfast/internal/broker/pin"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
	"github.com/holdfast/holdfast/internal/broker/token"
	"github.com/holdfast/holdfast/internal/broker/wholefile"
	"github.com/holdfast/holdfast/internal/linux/machine"
)

// place is what a member says of itself that is not in its configuration.
type place struct {
	file    string // of the configuration
	version string
	address net.Addr // where it takes sessions
}

// joinFleet makes the gateway a member of the fleet that its configuration names, until what it returns is called. Without one it does nothing.
func joinFleet(ctx context.Context, c config, gate *sshgate.Gate, at place, logger *slog.Logger) (leave func(), err error) {
	if c.fleet == nil {
		return func() {}, nil
	}
	certificate, fingerprint, err := loadCertificate(c.fleet)
	if err != nil {
		return nil, err
	}
	station, err := member.New(member.Options{
		Key: c.fleet.Key, Itself: describe(c, gate, at), Health: func() member.Health { return health(ctx, c.Recordings.Directory, gate) },
		Certificate: certificate, Readers: c.fleet.readers, Central: c.fleet.central, Members: c.fleet.members,
		Manages: c.fleet.roles.Has(fleet.CentralManagement), Interval: c.fleet.beat, Remember: rememberFile(c), Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.fleet.Listen)
	if err != nil {
		return nil, fmt.Errorf("answering for the fleet: %w", err)
	}
	warnFleet(c, logger)
	logger.Info("the gateway is a member of a fleet", "key", c.fleet.Key, "roles", c.fleet.roles.String(), "address", listener.Addr(), "fingerprint", fingerprint.String())
	// Brokers are to hear that it is stopping for as long as it has sessions.
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	unhurry := context.AfterFunc(ctx, station.Hurry)
	var all sync.WaitGroup
	all.Go(func() {
		if err := station.Run(lasting, listener); err != nil {
			logger.Error("the gateway is no member of its fleet any more; sessions go on", "error", err)
		}
	})
	all.Go(func() { follow(lasting, at.file, c, station, logger) })
	return func() {
		unhurry()
		end()
		all.Wait()
	}, nil
}

func loadCertificate(f *fleetConfig) (certificate tls.Certificate, fingerprint pin.Fingerprint, err error) {
	certificate, fingerprint, err = pin.Load(f.Certificate, f.PrivateKey)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("fleet.certificate: %w; make one: holdfast gateway certificate %s", err, f.Certificate)
	}
	return certificate, fingerprint, err
}

// rememberFile is where a central manager keeps what its members are, beside the list of used tokens.
func rememberFile(c config) string {
	name := sha256.Sum256([]byte(c.fleet.Key))
	return filepath.Join(c.Recordings.Directory, fmt.Sprintf("fleet-members-%x", name[:4]))
}

// describe is what the gateway says of itself.
func describe(c config, gate *sshgate.Gate, at place) member.Description {
	d := member.Description{Address: c.fleet.address, FQDN: c.fleet.name, Roles: c.fleet.roles.Names(), Own: member.Own{Name: c.Name, Protocols: map[string]uint16{}, Version: at.version}}
	may := c.may
	if may == 0 {
		may = token.Everything
	}
	if tcp, ok := at.address.(*net.TCPAddr); ok && gate != nil {
		if may&token.AllChannels != 0 {
			d.Own.Protocols["ssh"] = uint16(tcp.Port)
		}
		if may.Has(token.Tunnel) {
			d.Own.Protocols["tcp"] = uint16(tcp.Port)
		}
		for _, key := range gate.HostKeys() {
			if text := string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key))); len(text) <= fleet.MaxHostKey && len(d.Own.HostKeys) < fleet.MaxHostKeys {
				d.Own.HostKeys = append(d.Own.HostKeys, text)
			}
		}
	}
	return d
}

// health is how busy the gateway is. One whose figures cannot be read takes no sessions: without figures it would seem to be the idlest of all.
func health(ctx context.Context, directory string, gate *sshgate.Gate) member.Health {
	h := member.Health{By: gate.Sessions(), Accepts: true}
	for _, n := range h.By {
		h.Total += n
	}
	figures, err := machine.Read(directory)
	if err == nil {
		h.Memory, h.Swap, h.Disk, h.Cores = figures.Memory, figures.Swap, figures.Disk, figures.Cores
		h.Load1, h.Load5, h.Load15 = figures.Load1, figures.Load5, figures.Load15
		err = gate.Accepts()
	}
	if ctx.Err() != nil {
		err = errors.New("it is stopping")
	}
	if err != nil {
		h.Accepts, h.Why = false, member.Sentence(err.Error())
	}
	return h
}

// followEvery is how soon a change of the members and readers counts.
const followEvery = time.Second

// follow takes up who are members and readers when the configuration file changes. What else has changed waits for the next start.
func follow(ctx context.Context, file string, c config, station *member.Station, logger *slog.Logger) {
	look := time.NewTicker(followEvery)
	defer look.Stop()
	var seen wholefile.State
	complained := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		state, err := wholefile.Look(file, time.Now())
		if err != nil || seen.Same(state) {
			continue
		}
		seen = state
		later, err := readConfig(file)
		if err == nil && later.fleet == nil {
			err = errors.New("it has no fleet any more")
		}
		if err == nil && !sameFleet(c.fleet, later.fleet) {
			if err = station.Set(later.fleet.members, later.fleet.readers); err == nil {
				c = later
				logger.Info("the members and readers of the fleet are others now", "members", len(c.fleet.members), "readers", len(c.fleet.Readers))
			}
		}
		if err != nil && err.Error() != complained {
			logger.Error("the members and readers of the fleet stay as they were", "error", err)
		}
		complained = ""
		if err != nil {
			complained = err.Error()
		}
	}
}

// sameFleet tells whether two configurations have the same members and readers.
func sameFleet(a, b *fleetConfig) bool {
	return slices.Equal(a.members, b.members) && slices.Equal(a.Readers, b.Readers)
}

// checkFleet looks at what a fleet's member needs, and warns about a fleet that could never launch a session.
func checkFleet(c config, logger *slog.Logger) error {
	if c.fleet == nil {
		return nil
	}
	_, _, err := loadCertificate(c.fleet)
	warnFleet(c, logger)
	return err
}

func warnFleet(c config, logger *slog.Logger) {
	for _, warning := range c.fleet.warnings(c.Name, rememberFile(c)) {
		logger.Warn("the fleet: " + warning)
	}
}

// notCollected is what the roles of search-primary and search-minion do not mean yet.
const notCollected = "a search-primary does not collect the records of others yet: each gateway keeps its own, and they are searched there"

// warnings are what is lawful and hardly meant.
func (f *fleetConfig) warnings(name, remembered string) (warnings []string) {
	if f.roles.Has(fleet.SearchMinion) || f.roles.Has(fleet.SearchPrimary) {
		warnings = append(warnings, notCollected)
	}
	if !f.roles.Has(fleet.CentralManagement) {
		if why := f.roles.Refuses(); why != "" {
			warnings = append(warnings, "this gateway takes no sessions: "+why)
		}
		return warnings
	}
	if !f.readers.Any && len(f.readers.Listed) == 0 {
		warnings = append(warnings, "no broker may ask this central manager: list the brokers' fingerprints in fleet.readers, or write [any]")
	}
	if why := f.hopeless(name, remembered); why != "" {
		warnings = append(warnings, "no gateway of this fleet could ever take a session: "+why)
	}
	return warnings
}

// hopeless judges the fleet as brokers do, from its members as far as they are known; of members that were never heard anything may be hoped.
func (f *fleetConfig) hopeless(name, remembered string) string {
	why := f.roles.Refuses()
	if why == "" || len(f.members) == 0 {
		return why
	}
	itself := member.Description{Address: f.address, FQDN: f.name, Roles: f.roles.Names(), Own: member.Own{Name: name}}
	now := time.Now()
	roster := member.NewRoster(f.Key, itself, f.members, f.beat, now)
	text, err := os.ReadFile(remembered)
	if err != nil || roster.Recall(text) != nil || !roster.Described() {
		return ""
	}
	view, failure := fleet.Read(fleet.Answers{Nodes: roster.Nodes(), Status: roster.Status(member.Health{}, now)}, fleet.Expected{})
	if failure != nil {
		return ""
	}
	return view.Hopeless()
}

// certificateCommand makes the certificate by which a gateway or a broker is known in a fleet.
func certificateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "certificate [FILE]",
		Short: "Make this gateway's own certificate, and print its fingerprint",
		Long: `Make the certificate and private key by which the others of a fleet know this gateway, in one file that only its owner reads, and print its
fingerprint. A file that is there stays, and its fingerprint is printed. Without FILE it is ` + filepath.Join(filepath.Dir(DefaultConfig), DefaultCertificate) + `,
where the configuration expects it.

A broker has one too, if its fleets want to know who asks: broker/certificate.pem in the agent's directory.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			file := filepath.Join(filepath.Dir(DefaultConfig), DefaultCertificate)
			if len(args) > 0 {
				file = args[0]
			}
			if err := pin.Make(file, "holdfast", time.Now()); err != nil {
				return fmt.Errorf("making the certificate %s: %w", file, err)
			}
			_, fingerprint, err := pin.Load(file, file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), fingerprint)
			return err
		},
	}
}
