package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// This file has the central manager of the lab's fleet, which stands in for one that gateways have themselves: it asks each gateway
// by TCP whether it is there, and answers what brokers ask.

const (
	serviceCentral  = "central"
	centralPort     = 8443
	centralKeys     = "central.pem" // certificate and key, in the member's directory
	centralInterval = 300 * time.Millisecond
	centralPatience = 4 * centralInterval // within which one that is there has answered
)

// centralNode is a gateway as the central manager lists it (docs/broker.md, "Link a fleet").
type centralNode struct {
	Key      string     `json:"key"`
	Address  string     `json:"address"`
	Roles    []string   `json:"roles"`
	Holdfast centralOwn `json:"holdfast"`
}

type centralOwn struct {
	Name      string         `json:"name"`
	Protocols map[string]int `json:"protocols"`
	HostKeys  []string       `json:"host_keys"`
	Version   string         `json:"version"`
}

// centralHealth is what it says of each that is there; all are on this machine.
type centralHealth struct {
	Disk   float64 `json:"disk"` // percent used
	Load1  float64 `json:"load1"`
	Load5  float64 `json:"load5"`
	Load15 float64 `json:"load15"`
}

type centralStatus struct {
	Key      string         `json:"key"`
	LastSeen time.Time      `json:"last_seen"`
	Health   *centralHealth `json:"health_status"`
	Sync     string         `json:"sync_status"`
}

// startCentral gives the first gateway's machine what it needs to speak for the fleet, and starts it.
func (s *sessions) startCentral() error {
	var nodes []centralNode
	for _, gateway := range s.fleet {
		nodes = append(nodes, centralNode{gateway.name, s.address(gateway.name), gateway.roles, centralOwn{
			gateway.name, map[string]int{"ssh": gatewayPort, "tcp": gatewayPort}, []string{s.keys.hosts[gateway.name].public}, "lab",
		}})
	}
	text, err := json.Marshal(nodes)
	if err != nil {
		return err
	}
	member := s.fleet[0].name
	if err := newCertificate(filepath.Join(s.node(member), centralKeys), member); err != nil {
		return err
	}
	return s.host(member, serviceCentral, s.path(binDir, "holdfast"), "lab", "central", string(text))
}

// newCertificate writes a key and its certificate to a file.
func newCertificate(file, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
	return os.WriteFile(file, text, 0o600)
}

// fingerprint is what the central manager is known by.
func (s *sessions) fingerprint() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.node(s.fleet[0].name), centralKeys))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New("the central manager's file of keys has no certificate")
	}
	sum := sha256.Sum256(block.Bytes)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// central is the central manager while it runs.
type central struct {
	nodes []centralNode
	mu    sync.Mutex
	seen  map[string]time.Time
}

func centralCommand() *cobra.Command {
	return &cobra.Command{
		Use: "central NODES", Short: "Speak for a fleet of session gateways", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			c := &central{seen: map[string]time.Time{}}
			if err := json.Unmarshal([]byte(arguments[0]), &c.nodes); err != nil {
				return err
			}
			pair, err := tls.LoadX509KeyPair(centralKeys, centralKeys)
			if err != nil {
				return err
			}
			for _, node := range c.nodes[1:] {
				go c.ask(node)
			}
			server := &http.Server{
				Addr: fmt.Sprintf(":%d", centralPort), Handler: c.answers(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13},
				ReadHeaderTimeout: time.Second,
			}
			return server.ListenAndServeTLS("", "")
		},
	}
}

// ask looks for a gateway again and again.
func (c *central) ask(node centralNode) {
	for ; ; time.Sleep(centralInterval) {
		connection, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", node.Address, gatewayPort), centralInterval)
		if err != nil {
			continue
		}
		connection.Close()
		c.mu.Lock()
		c.seen[node.Key] = time.Now()
		c.mu.Unlock()
	}
}

func (c *central) answers() http.Handler {
	pages := http.NewServeMux()
	page := func(path string, value func() any) {
		pages.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value()) })
	}
	page("/api/cluster/nodes", func() any { return map[string]any{"items": c.nodes} })
	page("/api/cluster/status", func() any { return map[string]any{"items": c.statuses(time.Now())} })
	page("/api/health_status", func() any { return healthHere() })
	return pages
}

// statuses has null for the health of those that have been missing for some looks.
func (c *central) statuses(now time.Time) (all []centralStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, node := range c.nodes {
		status := centralStatus{Key: node.Key, LastSeen: c.seen[node.Key], Sync: "ok"}
		if i == 0 {
			status.LastSeen, status.Sync = now, "n/a"
		}
		if now.Sub(status.LastSeen) < centralPatience {
			status.Health = healthHere()
		}
		all = append(all, status)
	}
	return all
}

// healthHere is the health of this machine. What cannot be read is 0.
func healthHere() *centralHealth {
	health := new(centralHealth)
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	for i, into := range []*float64{&health.Load1, &health.Load5, &health.Load15} {
		if i < len(fields) {
			*into, _ = strconv.ParseFloat(fields[i], 64)
		}
	}
	var disk unix.Statfs_t
	if unix.Statfs(".", &disk) == nil && disk.Blocks > 0 {
		health.Disk = 100 * float64(disk.Blocks-disk.Bavail) / float64(disk.Blocks)
	}
	return health
}
