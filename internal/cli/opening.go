package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast/holdfast/internal/api"
	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/broker/client"
)

// Where users ask, and how long that may take before the next one is asked.
const (
	requesterSocket  = "/run/holdfast/broker.sock"
	requesterService = "holdfast-broker" // the subsystem of a broker's SSH listener
	brokerPatience   = 3 * time.Second
	remotePatience   = 30 * time.Second // a person may have to type a passphrase
	gatewayPatience  = 3 * time.Second
	mostTried        = 64
)

// opener opens a session: it asks brokers in turn, and tries the gateways that they name in turn.
type opener struct {
	*session
	brokers []string
	request *pb.LaunchRequest
	key     *client.Key
}

// brokerFlags are the flags of the commands that open sessions.
func (o *opener) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.brokers, "broker", nil, "broker to ask: a socket's path, or ssh://[USER@]HOST[:PORT]; several are asked in turn (default: this machine's); also by HOLDFAST_BROKER, separated by commas")
	cmd.Flags().StringVar(&o.request.Policy, "policy", "", "policy under which the session is granted, if rules tell fleets apart by it")
	cmd.Flags().StringVar(&o.request.Who, "who", "", "for whom the session is, if the broker trusts you with that (default: you)")
	cmd.Flags().StringSliceVar(&o.request.Channels, "channels", nil, "what is to be done in the session (default: all that the grant allows)")
}

func (s *session) newOpener() *opener { return &opener{session: s, request: &pb.LaunchRequest{}} }

// places are the brokers to ask.
func (o *opener) places() []string {
	if len(o.brokers) > 0 {
		return o.brokers
	}
	if named := o.Environment("HOLDFAST_BROKER"); named != "" {
		return strings.Split(named, ",")
	}
	if o.socket == api.DefaultSocket {
		if _, err := os.Stat(requesterSocket); err == nil {
			return []string{requesterSocket}
		}
	}
	return []string{o.socket}
}

// asked is one broker.
type asked struct {
	Client
	place    string
	patience time.Duration
}

func (o *opener) dial(place string) (*asked, error) {
	if !strings.HasPrefix(place, "ssh://") {
		return &asked{o.Dial(strings.TrimPrefix(place, "unix:")), place, brokerPatience}, nil
	}
	at, err := url.Parse(place)
	if err != nil || at.Host == "" || at.Hostname() == "" || strings.Trim(at.Path, "/") != "" {
		return nil, misused("--broker %q: write a socket's path, or ssh://[USER@]HOST[:PORT]", place)
	}
	where := at.Hostname()
	if at.User != nil {
		where = at.User.Username() + "@" + where
	}
	return &asked{api.NewClientOver(func(context.Context) (net.Conn, error) {
		return client.Remote(where, at.Port(), requesterService, o.Err)
	}), place, remotePatience}, nil
}

// open opens a session. Take tries a gateway; what it returns says why the gateway did not take the session. What brokers and gateways do not do is
// said, and the next one is taken.
func (o *opener) open(ctx context.Context, take func(context.Context, client.Gateway, *pb.GrantedSession) error) error {
	key, err := client.NewKey()
	if err != nil {
		return err
	}
	o.key, o.request.ClientKey = key, key.Public()
	var last error
	for _, place := range o.places() {
		broker, err := o.dial(place)
		if err != nil {
			return err
		}
		final, err := o.openBy(ctx, broker, take)
		broker.Close()
		if final || err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(o.Err, "holdfast: broker %s: %s\n", place, clean(err.Error()))
		last = err
	}
	return &failure{exitCode(last), "no broker opened the session; the last one said: " + last.Error()}
}

// openBy opens a session by one broker. It is final if no other broker would do better.
func (o *opener) openBy(ctx context.Context, broker *asked, take func(context.Context, client.Gateway, *pb.GrantedSession) error) (final bool, err error) {
	limited, cancel := context.WithTimeout(ctx, broker.patience)
	answer, err := broker.Launch(limited, o.request)
	cancel()
	for err == nil {
		if refused := refusedLaunch(answer); refused != nil {
			return false, refused
		}
		o.request.Launch = answer.Launch
		picked := answer.GetGateway()
		gateway := gatewayOf(answer)
		if gateway.Token == "" {
			return true, failed("the gateway %s takes no session tokens: it is not one of Holdfast's own", picked.GetGateway())
		}
		limited, cancel = context.WithTimeout(ctx, gatewayPatience)
		missed := take(limited, gateway, answer.Granted)
		cancel()
		report := &pb.OutcomeRequest{Request: o.request, Gateway: picked.GetGateway(), Reached: missed == nil}
		if ctx.Err() != nil {
			return true, failed("interrupted")
		}
		if missed != nil {
			report.Evidence = cut(clean(missed.Error()))
			fmt.Fprintf(o.Err, "holdfast: gateway %s did not take the session: %s\n", picked.GetGateway(), report.Evidence)
		}
		limited, cancel = context.WithTimeout(ctx, broker.patience)
		outcome, told := broker.Outcome(limited, report)
		cancel()
		if missed == nil {
			return true, nil // that it could not be told costs nothing
		}
		if o.request.Tried = append(o.request.Tried, picked.GetGateway()); len(o.request.Tried) >= mostTried {
			return true, failed("%d gateways did not take the session", len(o.request.Tried))
		}
		answer, err = outcome.GetNext(), told
	}
	return api.Ended(err) == api.Refused && (api.IsForbidden(err) || api.IsInvalid(err)), o.askedInVain(broker, err)
}

func (o *opener) askedInVain(broker *asked, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{exitUnreachable, fmt.Sprintf("it does not answer within %s", span(broker.patience))}
	case api.Ended(err) == api.Unreachable:
		return &failure{exitUnreachable, fmt.Sprintf("no broker answers on %s%s: this machine may have none, or none with settings for requesters; name one with --broker", broker.place, cause(err))}
	}
	return &failure{exitFailed, api.Text(err)}
}

// mostEvidence bounds what is told of a gateway that did not take a session.
const mostEvidence = 400

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostEvidence)], "") }

// gatewayOf is the gateway of an answer as the user's side needs it.
func gatewayOf(answer *pb.LaunchResponse) client.Gateway {
	g := answer.GetGateway()
	out := client.Gateway{Name: cmp.Or(g.GetName(), g.GetGateway()), Addresses: g.GetAddresses(), Port: uint16(g.GetPort()), HostKeys: answer.GatewayHostKeys, Token: answer.Token}
	if len(out.Addresses) == 0 && g.GetName() != "" {
		out.Addresses = []string{g.GetName()}
	}
	return out
}

// parseTarget reads [ACCOUNT@]HOST[:PORT].
func parseTarget(text string, needsPort bool) (account, host string, port uint32, err error) {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		account, text = text[:i], text[i+1:]
	}
	host = text
	colons := strings.Count(text, ":")
	if strings.HasPrefix(text, "[") && strings.Contains(text, "]:") || colons == 1 {
		h, p, err := net.SplitHostPort(text)
		n, err2 := strconv.ParseUint(p, 10, 16)
		if err != nil || err2 != nil || n == 0 {
			return "", "", 0, misused("%q is no target: write HOST:PORT", text)
		}
		host, port = h, uint32(n)
	}
	host = strings.Trim(host, "[]")
	switch {
	case host == "":
		return "", "", 0, misused("the target is empty: write ACCOUNT@HOST")
	case needsPort && port == 0:
		return "", "", 0, misused("%q has no port: write HOST:PORT", text)
	}
	return account, host, port, nil
}
