package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// shake runs one handshake over an in-memory connection and returns what each side says.
func shake(t *testing.T, client, server *tls.Config) (clientState, serverState tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	left, right := net.Pipe()
	c, s := tls.Client(left, client), tls.Server(right, server)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		done <- err
		_ = right.Close() // after an error the other side must not wait
	}()
	clientErr = c.Handshake()
	if clientErr == nil {
		// In TLS 1.3 the client learns of a refusal only when it reads.
		_, clientErr = c.Read(make([]byte, 1))
	}
	_ = left.Close()
	serverErr = <-done
	return c.ConnectionState(), s.ConnectionState(), clientErr, serverErr
}

func TestNodesOfOneClusterConnect(t *testing.T) {
	ids := clusterOf(t, "prod", "node1", "node2")
	cs, ss, cerr, serr := shake(t, ids[0].ClientTLS("node2"), ids[1].ServerTLS("node1", "node3"))
	if cerr != nil || serr != nil {
		t.Fatalf("client: %v, server: %v", cerr, serr)
	}
	if cs.Version != tls.VersionTLS13 {
		t.Errorf("version %s", tls.VersionName(cs.Version))
	}
	if name, err := PeerName(cs); err != nil || name != "node2" {
		t.Errorf("the client sees %q, %v", name, err)
	}
	if name, err := PeerName(ss); err != nil || name != "node1" {
		t.Errorf("the server sees %q, %v", name, err)
	}
}

func TestRefusals(t *testing.T) {
	ids := clusterOf(t, "prod", "node1", "node2")
	stranger := clusterOf(t, "prod", "node2")[0] // same names, another authority
	// The same authority, but the certificate says another cluster: what a copied ca.key would allow.
	renamed := *ids[1]
	renamed.Cluster = "test"

	withClient := func(change func(*tls.Config)) *tls.Config {
		config := ids[0].ClientTLS()
		change(config)
		return config
	}
	cases := []struct {
		name           string
		client, server *tls.Config
		says           string // by the side that refuses
	}{
		{"server of another authority", ids[0].ClientTLS(), stranger.ServerTLS(), "unknown authority"},
		{"client of another authority", withClient(func(c *tls.Config) {
			c.Certificates = []tls.Certificate{stranger.certificate}
		}), ids[1].ServerTLS(), "unknown authority"},
		{"client without certificate", withClient(func(c *tls.Config) { c.Certificates = nil }), ids[1].ServerTLS(),
			"client didn't provide a certificate"},
		{"TLS 1.2 client", withClient(func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}), ids[1].ServerTLS(), "unsupported versions"},
		{"TLS 1.2 server", ids[0].ClientTLS(), &tls.Config{MaxVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{ids[1].certificate}}, "protocol version not supported"},
		{"server that is another node", ids[0].ClientTLS("node3"), ids[1].ServerTLS(), `node "node2", expected node3`},
		{"client that is another node", ids[0].ClientTLS(), ids[1].ServerTLS("node3"), `node "node1", expected node3`},
		{"client of another cluster", ids[0].ClientTLS(), renamed.ServerTLS(), `of cluster "prod", and this is cluster "test"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, cerr, serr := shake(t, c.client, c.server)
			if cerr == nil {
				t.Fatal("the client was not refused")
			}
			said := cerr.Error()
			if serr != nil {
				said += "; " + serr.Error()
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("errors %q, want one with %q", said, c.says)
			}
		})
	}
}

func TestPeerNameNeedsAVerifiedChain(t *testing.T) {
	id := clusterOf(t, "prod", "node1")[0]
	unverified := tls.ConnectionState{PeerCertificates: []*x509.Certificate{id.certificate.Leaf}}
	if name, err := PeerName(unverified); err == nil {
		t.Errorf("an unverified certificate named %q", name)
	}
}

// The name in a certificate is read strictly: whatever the bytes, either an error or a name that Issue would have made.
func FuzzNodeOf(f *testing.F) {
	dir := f.TempDir()
	if err := Init(dir, "prod"); err != nil {
		f.Fatal(err)
	}
	if err := Issue(dir, dir, "node1", nil, nil); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "node.crt"} {
		cert, err := readCertificate(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(cert.Raw)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return
		}
		cluster, node, err := nodeOf(cert)
		if err == nil && (checkName("cluster", cluster) != nil || checkName("node", node) != nil) {
			t.Errorf("accepted cluster %q node %q", cluster, node)
		}
	})
}
