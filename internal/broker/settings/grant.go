package settings

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/broker/grants"
	"github.com/holdfast/holdfast/internal/broker/token"
)

// grantYAML is a grant as it is written.
type grantYAML struct {
	Name      string   `yaml:"name"`
	Who       []string `yaml:"who"`
	Targets   []string `yaml:"targets"`
	Accounts  []string `yaml:"accounts"`
	Protocols []string `yaml:"protocols"`
	Ports     []string `yaml:"ports"`
	Channels  []string `yaml:"channels"`
	Login     string   `yaml:"login"`
	Minutes   int      `yaml:"session-minutes"`
	Zone      string   `yaml:"time-zone"`
	Times     []struct {
		Days  string `yaml:"days"`
		Hours string `yaml:"hours"`
	} `yaml:"times"`
}

// maxMinutes bounds session-minutes: a year.
const maxMinutes = 366 * 24 * 60

// defaultChannels are the rights of a grant that names none.
var defaultChannels = []string{"shell", "exec", "scp", "sftp"}

// grant reads one grant. What is missing that would allow nothing is a fault: a grant that does nothing is not what somebody meant.
func (r *reading) grant(i int, y *grantYAML) grants.Grant {
	g := grants.Grant{Name: y.Name, Limit: time.Duration(y.Minutes) * time.Minute}
	called := fmt.Sprintf("grant %d", i+1)
	if y.Name == "" || len(y.Name) > grants.MaxName || strings.ContainsFunc(y.Name, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
		r.fault("%s needs a name of at most %d printable characters", called, grants.MaxName)
	} else {
		called = "grant " + y.Name
	}
	g.Who = r.patterns(called+": who", y.Who)
	r.targets(called, y, &g)
	g.Accounts = r.patterns(called+": accounts", y.Accounts)
	r.protocols(called, y, &g)
	switch y.Login {
	case "", "certificate":
	case "forwarded-agent":
		g.Proof = token.ForwardedAgent
	default:
		r.fault("%s: login is certificate or forwarded-agent, not %.40q", called, y.Login)
	}
	if y.Minutes < 0 || y.Minutes > maxMinutes {
		r.fault("%s: session-minutes is %d: write 1 to %d, or leave it out", called, y.Minutes, maxMinutes)
	}
	for what, n := range map[string]int{"who": len(y.Who), "targets": len(y.Targets)} {
		if n == 0 {
			r.fault("%s has no %s, so that it would allow nothing", called, what)
		}
	}
	r.times(called, y, &g)
	return g
}

func (r *reading) targets(called string, y *grantYAML, g *grants.Grant) {
	if len(y.Targets) > grants.MaxPatterns {
		r.fault("%s: targets: there are %d, at most %d are taken", called, len(y.Targets), grants.MaxPatterns)
		return
	}
	for _, text := range y.Targets {
		pattern, subnet, err := grants.ParseTarget(text)
		switch {
		case err != nil:
			r.fault("%s: targets: %w", called, err)
		case subnet.IsValid():
			g.Subnets = append(g.Subnets, subnet)
		default:
			g.Targets = append(g.Targets, pattern)
		}
	}
}

// protocols reads what belongs to protocols: ports, accounts and rights.
func (r *reading) protocols(called string, y *grantYAML, g *grants.Grant) {
	g.Protocols = y.Protocols
	if y.Protocols == nil {
		g.Protocols = []string{grants.SSH}
	}
	has := map[string]bool{}
	for _, p := range g.Protocols {
		if p != grants.SSH && p != grants.TCP {
			r.fault("%s: protocols are ssh and tcp, not %.40q: whatever else goes through a gateway is tcp", called, p)
		}
		has[p] = true
	}
	if len(y.Ports) > grants.MaxPatterns {
		r.fault("%s: ports: there are %d, at most %d are taken", called, len(y.Ports), grants.MaxPatterns)
	} else {
		for _, text := range y.Ports {
			ports, err := grants.ParsePorts(text)
			if err != nil {
				r.fault("%s: ports: %w", called, err)
			}
			g.Ports = append(g.Ports, ports)
		}
	}
	if len(y.Ports) == 0 {
		if has[grants.TCP] {
			r.fault("%s is for tcp and names no ports: write those of the services, as [5432]", called)
		}
		g.Ports = []grants.Ports{{First: 22, Last: 22}}
	}
	switch {
	case has[grants.SSH] && len(y.Accounts) == 0:
		r.fault("%s is for ssh and names no accounts, so that it would allow nothing", called)
	case !has[grants.SSH] && len(y.Accounts)+len(y.Channels) > 0:
		r.fault("%s is for tcp alone, where there are neither accounts nor channels", called)
	}
	channels := y.Channels
	if channels == nil {
		channels = defaultChannels
	}
	may, err := token.ParseChannels(channels)
	if err == nil && may&^token.AllChannels != 0 {
		err = fmt.Errorf("a tunnel is allowed by the protocol tcp: write protocols: [tcp]")
	}
	if err != nil {
		r.fault("%s: channels: %w", called, err)
	}
	if g.May = may; has[grants.SSH] && y.Channels != nil && may == 0 {
		r.fault("%s: channels is empty, so that it would allow nothing: write what is allowed", called)
	}
}

func (r *reading) times(called string, y *grantYAML, g *grants.Grant) {
	zone, err := time.LoadLocation(y.Zone) // empty: UTC
	if err != nil || y.Zone == "Local" {
		r.fault("%s: the time zone %.60q is not known on this machine: write one as Europe/Berlin, or leave it out for UTC", called, y.Zone)
		zone = time.UTC
	}
	g.Zone = zone
	if len(y.Times) > grants.MaxWindows {
		r.fault("%s: times: there are %d, at most %d are taken", called, len(y.Times), grants.MaxWindows)
		return
	}
	for _, t := range y.Times {
		w, err := grants.ParseWindow(t.Days, t.Hours)
		if err != nil {
			r.fault("%s: times: %w", called, err)
			continue
		}
		g.Windows = append(g.Windows, w)
	}
	if y.Times != nil && len(y.Times) == 0 {
		r.fault("%s: times is empty: leave it out for any time", called)
	}
}
