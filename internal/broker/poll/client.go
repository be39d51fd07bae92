package poll

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/broker/fleet"
	"github.com/holdfast/holdfast/internal/broker/pin"
)

// DefaultTimeout is within which a poll comes back.
const DefaultTimeout = 3 * time.Second

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint = pin.Fingerprint

// ParseFingerprint reads 64 hexadecimal digits, in which colons may stand, with or without "sha256:" before them.
func ParseFingerprint(text string) (Fingerprint, error) { return pin.ParseFingerprint(text) }

// Options are what a Client needs to know.
type Options struct {
	Address     string                                                               // host:port of the central manager
	Fingerprint Fingerprint                                                          // of its certificate
	Timeout     time.Duration                                                        // default DefaultTimeout
	Certificate *tls.Certificate                                                     // proves who asks, to fleets that want to know; may be nil
	Header      http.Header                                                          // sent with each request, for fleets that want to know who asks; may be nil
	Dial        func(ctx context.Context, network, address string) (net.Conn, error) // default: a plain dialer
}

// Client asks one central manager.
type Client struct {
	options Options
	web     *http.Client
}

// New makes a Client.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	transport := &http.Transport{
		// The transport lets a connection go on being made after the request that wanted it has ended. Against a black hole these would pile up.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, o.Timeout)
			defer cancel()
			return o.Dial(ctx, network, address)
		},
		TLSHandshakeTimeout:    o.Timeout,
		DisableKeepAlives:      true,
		DisableCompression:     true, // what would be unpacked is not bounded by what came
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig:        pin.Client(o.Fingerprint, o.Certificate),
	}
	return &Client{options: o, web: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Fetch asks for everything at once and reads the answers into a view. It comes back by the timeout.
func (c *Client) Fetch(ctx context.Context, expected fleet.Expected) (*fleet.View, *fleet.Failure) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	paths := []string{"/api/cluster/nodes", "/api/cluster/status", "/api/health_status"}
	bodies, failures := make([][]byte, len(paths)), make([]*fleet.Failure, len(paths))
	var wait sync.WaitGroup
	for i, path := range paths {
		wait.Go(func() { bodies[i], failures[i] = c.get(ctx, path) })
	}
	wait.Wait()
	// Its own health is worth having and not needed: that it answers says that it is up.
	for _, failure := range failures[:2] {
		if failure != nil {
			return nil, failure
		}
	}
	return fleet.Read(fleet.Answers{Nodes: bodies[0], Status: bodies[1], Health: bodies[2]}, expected)
}

func (c *Client) get(ctx context.Context, path string) ([]byte, *fleet.Failure) {
	where := "https://" + c.options.Address + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return nil, &fleet.Failure{Kind: fleet.Unreachable, Evidence: "GET " + where + ": " + err.Error()}
	}
	for name, values := range c.options.Header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "holdfast-broker")
	response, err := c.web.Do(request)
	if err != nil {
		return nil, c.failure(where, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		evidence := fmt.Sprintf("GET %s: status %d", where, response.StatusCode)
		if response.StatusCode == http.StatusForbidden {
			evidence += ": it does not let this broker read. " + c.remedy()
		}
		return nil, &fleet.Failure{Kind: fleet.Unwell, Evidence: evidence}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, fleet.MaxAnswer+1))
	if err != nil {
		return nil, c.failure(where, err)
	}
	return body, nil
}

// remedy is what to do where a fleet does not let this broker read.
func (c *Client) remedy() string {
	if c.options.Certificate == nil {
		return "This broker has no certificate; if that is a Holdfast gateway, make one (holdfast gateway certificate, docs/broker.md) and add its fingerprint to fleet.readers there"
	}
	own := Fingerprint(sha256.Sum256(c.options.Certificate.Certificate[0]))
	return "If that is a Holdfast gateway, add " + own.String() + " to fleet.readers there"
}

// failure says what kind of failure an error is.
func (c *Client) failure(where string, err error) *fleet.Failure {
	f := &fleet.Failure{Kind: fleet.Unreachable}
	var timeout net.Error
	switch {
	case errors.Is(err, pin.ErrUntrusted):
		f.Kind = fleet.Untrusted
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		f.Kind = fleet.TimedOut
		f.Evidence = fmt.Sprintf("GET %s: no whole answer within %s", where, fleet.Ago(c.options.Timeout))
		return f
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		f.Kind = fleet.Refused
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		f.Kind = fleet.Garbled
	}
	// The error of the client begins with the method and the address once more.
	text := err.Error()
	if _, after, found := strings.Cut(text, where+"\": "); found {
		text = after
	}
	f.Evidence = "GET " + where + ": " + text
	return f
}

// Learn is the fingerprint of the certificate that is shown at an address, for an operator to compare when a fleet is linked.
func Learn(ctx context.Context, address string, timeout time.Duration) (Fingerprint, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // nothing is believed yet: a person compares
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("asking %s for its certificate: %w", address, err)
	}
	defer conn.Close()
	certificates := conn.(*tls.Conn).ConnectionState().PeerCertificates
	return Fingerprint(sha256.Sum256(certificates[0].Raw)), nil
}
