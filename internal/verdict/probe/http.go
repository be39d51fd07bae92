package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast/holdfast/internal/cluster"
)

// maxHeader bounds the response header that is read, in bytes.
const maxHeader = 64 << 10

// web is good when a GET is answered with an accepted status code. The body is not read and redirects are not followed.
//
// HTTPS certificates are not verified. A check asks the node's own service by address, and certificates are issued for
// the names that clients use, so verification would fail for every healthy service; and whoever could answer in the
// place of a local service already owns the node. The check therefore proves that something speaks TLS and HTTP there,
// not who it is.
type web struct {
	at     netip.AddrPort
	url    *url.URL
	accept []int // empty: 200 to 399
	dial   Dialer
}

func newHTTP(check cluster.Check, at netip.AddrPort, dial Dialer) web {
	where, err := url.Parse(check.Path)
	if err != nil || check.Path == "" {
		where = &url.URL{Path: "/"}
		if err != nil {
			where.Path = check.Path // not a valid reference: send it escaped
		}
	}
	where.Scheme, where.Host = string(check.Kind), at.String()
	return web{at: at, url: where, accept: check.Status, dial: dial}
}

// Try speaks HTTP/1.1 itself rather than through http.Transport, which writes what a confused server sends to the
// process's log, and which would need closing after every try.
func (p web) Try(ctx context.Context) (string, error) {
	began, status := time.Now(), 0
	err := converse(ctx, p.dial, "tcp", p.at, func(conn net.Conn) (err error) {
		if p.url.Scheme == string(cluster.CheckHTTPS) {
			conn = tls.Client(conn, &tls.Config{
				InsecureSkipVerify: true, //nolint:gosec // see web
				MinVersion:         tls.VersionTLS12,
				NextProtos:         []string{"http/1.1"},
			})
		}
		status, err = p.get(ctx, conn)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", p.url, err)
	}
	if !p.accepted(status) {
		return "", fmt.Errorf("GET %s: status %d, accepted are %s", p.url, status, p.acceptable())
	}
	return fmt.Sprintf("GET %s: status %d in %s", p.url, status, rounded(time.Since(began))), nil
}

// get sends the request and reads the status of the final response; 1xx announce another (RFC 9110 section 15.2).
func (p web) get(ctx context.Context, conn net.Conn) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("making the request: %w", err)
	}
	request.Header.Set("User-Agent", "holdfast-check")
	request.Close = true
	if err := request.Write(conn); err != nil {
		return 0, fmt.Errorf("sending the request: %w", err)
	}
	bounded := &io.LimitedReader{R: conn, N: maxHeader}
	reader := bufio.NewReader(bounded)
	for {
		response, err := http.ReadResponse(reader, request) //nolint:bodyclose // the body goes with the connection
		switch {
		case err != nil && bounded.N <= 0:
			return 0, fmt.Errorf("the response header is longer than %d bytes", maxHeader)
		case err != nil:
			return 0, fmt.Errorf("reading the response: %w", err)
		case response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols:
			return response.StatusCode, nil
		}
	}
}

func (p web) accepted(status int) bool {
	if len(p.accept) == 0 {
		return status >= 200 && status <= 399
	}
	return slices.Contains(p.accept, status)
}

func (p web) acceptable() string {
	if len(p.accept) == 0 {
		return "200 to 399"
	}
	return fmt.Sprint(p.accept)
}

// rounded prints a duration for people.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
