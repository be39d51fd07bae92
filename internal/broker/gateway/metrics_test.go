package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMetrics: Prometheus is answered where the configuration says, and nothing listens where it says nothing.
func TestMetrics(t *testing.T) {
	p, port := newProcess(t, "gw1"), unusedPort(t)
	p.configure(fmt.Sprintf("metrics: 127.0.0.1:%d\n", port))
	p.start()
	for end := time.Now().Add(20 * time.Second); ; {
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
		if err == nil {
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || !strings.Contains(string(text), "\nholdfast_sshgate_sessions 0\n") {
				t.Errorf("%v: %s", err, text)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestMetricsConfig: what is no address is refused in the words of the file.
func TestMetricsConfig(t *testing.T) {
	for text, bad := range map[string]bool{"127.0.0.1:9465": false, ":9465": false, "[::1]:9465": false, "9465": true, "localhost:9465": true, "127.0.0.1:": true} {
		err := Check("gateway.yaml", []byte(fullConfig+fmt.Sprintf("metrics: %q\n", text)))
		if bad != (err != nil) || bad && !strings.Contains(err.Error(), "metrics is") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
