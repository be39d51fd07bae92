package poll

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// Knock opens a TCP connection to a gateway, at the first address of it that answers, and closes it. It returns what was tried. Of a
// gateway without a service the port is 443, where it has its API.
func Knock(ctx context.Context, g *fleet.Gateway, timeout time.Duration) (evidence string, reached bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	port := uint16(443)
	if len(g.Services) > 0 {
		port = g.Services[0].Port
	}
	hosts := hostsOf(g.Addresses, g.Name)
	var last error
	for i, host := range hosts {
		where := net.JoinHostPort(host, strconv.Itoa(int(port)))
		share, done := within(ctx, len(hosts)-i)
		conn, err := (&net.Dialer{}).DialContext(share, "tcp", where)
		done()
		if err == nil {
			return "tcp " + where + ": connected", conn.Close() == nil
		}
		var failed *net.OpError // it names the address once more
		if errors.As(err, &failed) {
			err = failed.Err
		}
		last = fmt.Errorf("tcp %s: %w", where, err)
	}
	if last == nil {
		return "neither an address nor a name is known", false
	}
	return last.Error(), false
}

// hostsOf are the places where a gateway may be: its addresses, else its name.
func hostsOf(addresses []netip.Addr, name string) (hosts []string) {
	for _, a := range addresses {
		hosts = append(hosts, a.String())
	}
	if len(hosts) == 0 && name != "" {
		hosts = append(hosts, name)
	}
	return hosts
}

// within gives one of several tries its share of the time that is left.
func within(ctx context.Context, tries int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(max(tries, 1)))
}
