package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// How the clients of `lab connect` behave. They are impatient, as clients of a failover product are set up to be.
const (
	answerPatience = 300 * time.Millisecond // for an answer on a connection that stands
	dialPatience   = 100 * time.Millisecond // for a new connection, before it is tried again
	dialPause      = 10 * time.Millisecond  // after a connection was refused
	requestGivenUp = 10 * time.Second       // a request that has no answer by then is lost
)

// clientReport is what `lab connect` says of its connections when asked.
type clientReport struct {
	Connections int            `json:"connections"` // that stand now
	ByNode      map[string]int `json:"by_node"`     // whom they reach
	ByAddress   map[string]int `json:"by_address"`
	Requests    int            `json:"requests"`   // answered since the last reset
	Repeated    int            `json:"repeated"`   // of these, on a new connection because the old one broke
	Lost        int            `json:"lost"`       // not answered within ten seconds, however often asked
	LongestMS   float64        `json:"longest_ms"` // from sending to the answer, with all repetitions
}

// reaching is how many connections reach some nodes. One whose node died counts there until its client notices.
func (r clientReport) reaching(nodes []string) int {
	n := 0
	for _, node := range nodes {
		n += r.ByNode[node]
	}
	return n
}

// connectOptions say what `lab connect` does.
type connectOptions struct {
	name  string
	port  int
	count int
	pace  time.Duration // between two new connections
	every time.Duration // between two requests on one connection
}

// connectCommand is the client program of scenarios: it resolves a name and connects, as often as asked, keeps all
// connections in use, and when one breaks it connects to the same address again.
func connectCommand() *cobra.Command {
	options := connectOptions{port: 80, count: 1, pace: 5 * time.Millisecond, every: 500 * time.Millisecond}
	command := &cobra.Command{
		Use: "connect NAME", Short: "Keep HTTP connections to a name open and in use", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, arguments []string) error {
			options.name = arguments[0]
			return runClients(c.Context(), options, c.InOrStdin(), c.OutOrStdout())
		},
	}
	command.Flags().IntVar(&options.port, "port", options.port, "TCP port")
	command.Flags().IntVar(&options.count, "count", options.count, "number of connections")
	command.Flags().DurationVar(&options.pace, "pace", options.pace, "between two new connections")
	command.Flags().DurationVar(&options.every, "every", options.every, "between two requests on one connection")
	return command
}

// crowd is all connections of one `lab connect`.
type crowd struct {
	connectOptions
	mu     sync.Mutex
	report clientReport // ByNode and ByAddress are counted when asked
	all    []*client
}

// client is one connection with its user.
type client struct {
	crowd   *crowd
	address netip.AddrPort
	node    string // whom it reaches; empty while it is broken; guarded by the crowd's mutex
	socket  net.Conn
	reader  *bufio.Reader
}

// runClients opens the connections one after another, prints the first report, and then answers "report" and "reset"
// lines until its input ends.
func runClients(ctx context.Context, options connectOptions, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{connectOptions: options}
	for range options.count {
		if err := c.join(ctx); err != nil {
			return err
		}
		if !pause(ctx, options.pace) {
			return ctx.Err()
		}
	}
	return answerLines(in, out, func(line string) any {
		if line == "reset" {
			c.reset()
		}
		return c.now()
	})
}

// answerLines prints one JSON value at once and one for each line of input.
func answerLines(in io.Reader, out io.Writer, answer func(line string) any) error {
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(answer("")); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := encoder.Encode(answer(lines.Text())); err != nil {
			return err
		}
	}
	return lines.Err()
}

// join resolves the name and adds one connection.
func (c *crowd) join(ctx context.Context) error {
	resolving, cancel := context.WithTimeout(ctx, requestGivenUp)
	defer cancel()
	resolver := net.Resolver{PreferGo: true}
	addresses, err := resolver.LookupNetIP(resolving, "ip4", c.name)
	if err != nil {
		return fmt.Errorf("resolving %s: %w", c.name, err)
	}
	one := &client{crowd: c, address: netip.AddrPortFrom(addresses[0].Unmap(), uint16(c.port))}
	if err := one.request(ctx); err != nil {
		return fmt.Errorf("connecting to %s: %w", one.address, err)
	}
	c.mu.Lock()
	number := len(c.all)
	c.all = append(c.all, one)
	c.mu.Unlock()
	go one.use(ctx, time.Duration(number%97)*c.every/97)
	return nil
}

// use sends one request each interval, the first after an offset, so that the crowd does not march in step.
func (o *client) use(ctx context.Context, offset time.Duration) {
	if !pause(ctx, offset) {
		return
	}
	for pause(ctx, o.crowd.every) {
		_ = o.request(ctx) // a lost one is counted
	}
}

// request sends one request and repeats it on new connections to the same address until it is answered or given up.
func (o *client) request(ctx context.Context) error {
	sent := time.Now()
	repeated := false
	for {
		node, err := o.try()
		if err == nil {
			o.answered(node, repeated, time.Since(sent))
			return nil
		}
		repeated = true
		if o.socket != nil {
			o.socket.Close()
			o.socket = nil
		}
		o.broken()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(sent) > requestGivenUp {
			o.crowd.mu.Lock()
			o.crowd.report.Lost++
			o.crowd.mu.Unlock()
			return err
		}
	}
}

// try sends the request once, over the connection or a new one, and returns the name of the node that answered.
func (o *client) try() (string, error) {
	if o.socket == nil {
		began := time.Now()
		socket, err := net.DialTimeout("tcp", o.address.String(), dialPatience)
		if err != nil {
			time.Sleep(dialPause - min(time.Since(began), dialPause))
			return "", err
		}
		o.socket, o.reader = socket, bufio.NewReader(socket)
	}
	_ = o.socket.SetDeadline(time.Now().Add(answerPatience))
	if _, err := fmt.Fprintf(o.socket, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", o.crowd.name); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(o.reader, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 256))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(body), err
}

func (o *client) answered(node string, repeated bool, took time.Duration) {
	o.crowd.mu.Lock()
	defer o.crowd.mu.Unlock()
	o.node = node
	r := &o.crowd.report
	r.Requests++
	if repeated {
		r.Repeated++
	}
	r.LongestMS = max(r.LongestMS, milliseconds(took))
}

func (o *client) broken() {
	o.crowd.mu.Lock()
	defer o.crowd.mu.Unlock()
	o.node = ""
}

func milliseconds(d time.Duration) float64 { return float64(d.Round(100*time.Microsecond)) / 1e6 }

func (c *crowd) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report = clientReport{}
}

func (c *crowd) now() clientReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.report
	r.ByNode, r.ByAddress = make(map[string]int), make(map[string]int)
	for _, one := range c.all {
		if one.node != "" {
			r.Connections++
			r.ByNode[one.node]++
			r.ByAddress[one.address.Addr().String()]++
		}
	}
	return r
}
