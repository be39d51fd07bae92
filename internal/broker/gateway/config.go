package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/holdfast/holdfast/internal/broker/recording"
	"github.com/holdfast/holdfast/internal/broker/sshgate"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// fileYAML is the configuration file. Numbers that are left out become the defaults of sshgate.Limits and recording.Options.
type fileYAML struct {
	Name        string   `yaml:"name"`
	Listen      string   `yaml:"listen"`
	HostKeys    []string `yaml:"host-keys"`
	Brokers     string   `yaml:"brokers"`
	UserCA      string   `yaml:"user-ca"`
	KnownHosts  []string `yaml:"known-hosts"`
	Audit       string   `yaml:"audit"`
	Metrics     string   `yaml:"metrics"`
	Allow       []string `yaml:"allow"`
	Environment []string `yaml:"environment"`
	Recordings  struct {
		Directory      string   `yaml:"directory"`
		Recipients     []string `yaml:"recipients"`
		MinFreeMiB     uint64   `yaml:"min-free-mib"`
		SessionMiB     uint32   `yaml:"session-mib"`
		SyncIntervalMS uint32   `yaml:"sync-interval-ms"`
		Input          input    `yaml:"input"`
	} `yaml:"recordings"`
	Limits struct {
		Starting            int    `yaml:"starting"`
		StartingDropFrom    int    `yaml:"starting-drop-from"`
		StartingDropPercent int    `yaml:"starting-drop-percent"`
		StartingPerAddress  int    `yaml:"starting-per-address"`
		Sessions            int    `yaml:"sessions"`
		Channels            int    `yaml:"channels"`
		UnreadMiB           uint32 `yaml:"unread-mib"`
		Tokens              int    `yaml:"tokens"`
		HandshakeMS         uint32 `yaml:"handshake-timeout-ms"`
		DialMS              uint32 `yaml:"dial-timeout-ms"`
		KeepAliveMS         uint32 `yaml:"keepalive-interval-ms"`
		DrainMS             uint32 `yaml:"drain-timeout-ms"`
		IdleMinutes         uint32 `yaml:"idle-minutes"`
		SessionTotalMinutes uint32 `yaml:"session-minutes"`
	} `yaml:"limits"`
	Fleet *fleetYAML `yaml:"fleet"`
}

// input is whose input is recorded, as the file says it: never, no-terminal or always. It was true or false once, which are always and never.
type input struct{ sshgate.InputPolicy }

func (i *input) UnmarshalYAML(decode func(any) error) error {
	var written any
	if err := decode(&written); err != nil {
		return err
	}
	switch written {
	case "never", false:
		i.InputPolicy = sshgate.InputNever
	case "no-terminal":
		i.InputPolicy = sshgate.InputWithoutTerminal
	case "always", true:
		i.InputPolicy = sshgate.InputAlways
	default:
		return fmt.Errorf("recordings.input is %v: write never, no-terminal or always", written)
	}
	return nil
}

// config is a file that was read and makes sense.
type config struct {
	fileYAML
	may    token.Channels
	limits sshgate.Limits
	fleet  *fleetConfig // nil: the gateway is in no fleet of Holdfast's own
}

// maxFile bounds the configuration file, in bytes.
const maxFile = 1 << 20

// readConfig reads the configuration file. Names of files in it are taken from its own folder.
func readConfig(name string) (config, error) {
	file, err := os.Open(name)
	if err != nil {
		return config{}, fmt.Errorf("reading the gateway's configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return config{}, fmt.Errorf("reading the gateway's configuration: %w", err)
	}
	if len(data) > maxFile {
		return config{}, fmt.Errorf("%s is longer than %d bytes", name, maxFile)
	}
	return parseConfig(name, data)
}

// Check tells what is wrong with the text of a configuration file. It looks at no other file.
func Check(name string, data []byte) error {
	_, err := parseConfig(name, data)
	return err
}

// goType is how the YAML library speaks of our types.
var goType = regexp.MustCompile(`cannot unmarshal .* into Go .*`)

func parseConfig(name string, data []byte) (config, error) {
	var c config
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&c.fileYAML); err != nil && !errors.Is(err, io.EOF) {
		said := goType.ReplaceAllString(yaml.FormatError(err, false, true), "a value of another kind belongs here")
		return config{}, fmt.Errorf("%s is not a gateway's configuration: %s", name, strings.TrimSpace(said))
	}
	folder := filepath.Dir(name)
	for _, path := range []*string{&c.Brokers, &c.UserCA, &c.Audit, &c.Recordings.Directory} {
		*path = from(folder, *path)
	}
	for _, paths := range [][]string{c.HostKeys, c.KnownHosts} {
		for i := range paths {
			paths[i] = from(folder, paths[i])
		}
	}
	var faults []error
	for _, needed := range []struct{ name, value string }{
		{"name", c.Name}, {"listen", c.Listen}, {"host-keys", strings.Join(c.HostKeys, "")}, {"brokers", c.Brokers},
		{"known-hosts", strings.Join(c.KnownHosts, "")}, {"audit", c.Audit}, {"recordings.directory", c.Recordings.Directory},
	} {
		if needed.value == "" {
			faults = append(faults, fmt.Errorf("%s is missing", needed.name))
		}
	}
	if len(c.Name) > token.MaxName {
		faults = append(faults, fmt.Errorf("name has %d bytes, at most %d are allowed", len(c.Name), token.MaxName))
	}
	var err error
	if c.may, err = token.ParseChannels(c.Allow); err != nil {
		faults = append(faults, fmt.Errorf("allow: %w", err))
	}
	if c.Allow != nil && c.may == 0 {
		faults = append(faults, errors.New("allow is empty, so that no token would allow anything: write what is allowed, or leave it out to allow everything"))
	}
	faults = append(faults, c.setLimits()...)
	faults = append(faults, c.setFleet(folder)...)
	if err := checkMetrics(c.Metrics); err != nil {
		faults = append(faults, err)
	}
	if _, err := recording.ParseRecipients(c.Recordings.Recipients); err != nil {
		faults = append(faults, fmt.Errorf("recordings.recipients: %w", err))
	}
	if err := errors.Join(faults...); err != nil {
		return config{}, fmt.Errorf("%s cannot be used:\n%w", name, err)
	}
	return c, nil
}

func from(folder, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// leastUnread is what one channel may hold unread, in MiB.
const leastUnread = 4

// mostLimit bounds what may be written for a number.
const mostLimit = 1_000_000

func (c *config) setLimits() (faults []error) {
	y := c.fileYAML.Limits
	for name, n := range map[string]int{"starting": y.Starting, "starting-drop-from": y.StartingDropFrom, "starting-per-address": y.StartingPerAddress, "sessions": y.Sessions, "channels": y.Channels, "tokens": y.Tokens} {
		if n < 0 || n > mostLimit {
			faults = append(faults, fmt.Errorf("limits.%s is %d: write 1 to %d", name, n, mostLimit))
		}
	}
	if y.StartingDropPercent < 0 || y.StartingDropPercent > 100 {
		faults = append(faults, fmt.Errorf("limits.starting-drop-percent is %d: write 1 to 100", y.StartingDropPercent))
	}
	if y.UnreadMiB != 0 && y.UnreadMiB < leastUnread || y.UnreadMiB > mostLimit {
		faults = append(faults, fmt.Errorf("limits.unread-mib is %d: write %d, which is one channel, to %d", y.UnreadMiB, leastUnread, mostLimit))
	}
	ms := func(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
	c.limits = sshgate.Limits{
		Starting: y.Starting, StartingDropFrom: y.StartingDropFrom, StartingDropRate: y.StartingDropPercent, Unread: int64(y.UnreadMiB) << 20, StartingPerAddress: y.StartingPerAddress, Sessions: y.Sessions, Channels: y.Channels, Tokens: y.Tokens,
		Handshake: ms(y.HandshakeMS), Dial: ms(y.DialMS), KeepAlive: ms(y.KeepAliveMS), Drain: ms(y.DrainMS),
		Idle: time.Duration(y.IdleMinutes) * time.Minute, Total: time.Duration(y.SessionTotalMinutes) * time.Minute,
		Recorded: int64(c.Recordings.SessionMiB) << 20,
	}
	return faults
}
