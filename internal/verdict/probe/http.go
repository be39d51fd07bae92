package probe

import (
	"context"
	"crypto/tls"
	"fmt"
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
	url    string
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
	return web{url: where.String(), accept: check.Status, dial: dial}
}

func (p web) Try(ctx context.Context) (string, error) {
	transport := &http.Transport{
		DialContext:            p.dial,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see web
		ForceAttemptHTTP2:      false,
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", p.url, err)
	}
	request.Header.Set("User-Agent", "holdfast-check")
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", p.url, plain(unwrapURL(err)))
	}
	_ = response.Body.Close()
	if !p.accepted(response.StatusCode) {
		return "", fmt.Errorf("GET %s: status %d, accepted are %s", p.url, response.StatusCode, p.acceptable())
	}
	return fmt.Sprintf("GET %s: status %d in %s", p.url, response.StatusCode, rounded(time.Since(began))), nil
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

// unwrapURL takes away the method and address that net/http puts in front, because Try names them itself.
func unwrapURL(err error) error {
	if wrapped, ok := err.(*url.Error); ok { //nolint:errorlint // only the outermost layer is to go
		return wrapped.Err
	}
	return err
}

// rounded prints a duration for people.
func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
