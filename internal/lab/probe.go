package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// probeReport is what `lab probe` says when asked.
type probeReport struct {
	Sent      int                      `json:"sent"`
	Received  int                      `json:"received"`
	PauseMS   float64                  `json:"pause_ms"`   // longest time between two rounds of probes since the last reset: nothing finer was seen
	LongestMS map[string]float64       `json:"longest_ms"` // longest time without an answer since the last reset, by address
	LastMS    map[string]float64       `json:"last_ms"`    // time since the last answer, by address
	Watched   map[string]watchedReport `json:"watched,omitempty"`
	Services  map[string]serviceReport `json:"services,omitempty"`
}

// serviceReport is for how long a service address did not answer queries.
type serviceReport struct {
	LongestMS float64 `json:"longest_ms"`
	LastMS    float64 `json:"last_ms"`
	Watched   bool    `json:"watched"` // asked at the shorter interval
}

// watchedReport is what more there is of an address that is watched.
type watchedReport struct {
	Lost        int     `json:"lost"`                   // datagrams that were not echoed since the last reset
	LastMS      float64 `json:"last_ms"`                // time since the last echo
	Answers     int     `json:"answers,omitempty"`      // to what its idle client said on its connection since the last reset
	Node        string  `json:"node,omitempty"`         // whom the idle client reaches; empty: nobody
	Broke       bool    `json:"broke"`                  // its connection ended since the last reset
	ReconnectMS float64 `json:"reconnect_ms,omitempty"` // from then, or from when datagrams were lost if that was before, until it had another
}

// probeCommand sends echo requests (RFC 792) to addresses without pause and measures how long each does not answer. Some of them
// can be watched more closely.
func probeCommand() *cobra.Command {
	interval, watch := 5*time.Millisecond, time.Millisecond
	var services []string
	var name string
	command := &cobra.Command{
		Use: "probe ADDRESS...", Short: "Measure for how long addresses do not answer", Args: cobra.MinimumNArgs(1),
		Long: `Measures for how long addresses do not answer. For each line of its input it prints a line of JSON: "report"; "reset", from
where it counts anew; "watch ADDRESS...", from where these addresses are probed at the shorter interval, by echo requests and by
datagrams to port 7, and an idle client is connected to port 7 of each; and "speak", at which each idle client says a line on its
connection, which is to be answered. Service addresses are probed by queries to port 53, and count as answering when they name an address.`,
		RunE: func(c *cobra.Command, arguments []string) error {
			p := &prober{interval: min(interval, watch), every: max(1, uint32(interval/watch))}
			for _, argument := range arguments {
				address, err := netip.ParseAddr(argument)
				if err != nil || !address.Is4() {
					return fmt.Errorf("%q is not an IPv4 address", argument)
				}
				p.addresses = append(p.addresses, address)
			}
			if err := p.ask(services, name); err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			measureInTime()
			if err := p.start(ctx); err != nil {
				return err
			}
			return answerLines(c.InOrStdin(), c.OutOrStdout(), func(line string) any {
				words := strings.Fields(line)
				switch {
				case line == "reset":
					p.reset()
				case line == "speak":
					p.speak()
				case len(words) > 0 && words[0] == "watch":
					p.watch(ctx, words[1:])
				}
				return p.now()
			})
		},
	}
	command.Flags().StringSliceVar(&services, "service", nil, "service addresses that are probed too, by DNS queries")
	command.Flags().StringVar(&name, "name", "", "the name that they are asked for")
	command.Flags().DurationVar(&interval, "interval", interval, "between two probes of one address")
	command.Flags().DurationVar(&watch, "watch-interval", watch, "between two probes of one that is watched")
	return command
}
