package identity

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Validity of what is issued. Long on purpose: nothing rotates certificates yet, and a certificate that runs out in the
// night stops a cluster in which nothing else is wrong. Trust ends by replacing the authority, not by waiting; Expiry warns
// 60 days ahead.
const (
	authorityYears = 20
	nodeYears      = 10
)

// notBefore is the start of every certificate's validity. A private authority gains nothing by a recent date, and a
// machine whose clock was set back, or that boots without one, would be refused by its own cluster.
var notBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Init makes a new cluster's authority and shared secret in dir (created with mode 0700 if absent). It refuses to
// overwrite: what was issued by an authority is worthless without it.
//
// Keys are ECDSA on P-256, which every TLS 1.3 implementation must support (RFC 8446 section 9.1), etcd's included.
func Init(dir, clusterName string) error {
	return initAt(dir, clusterName, time.Now())
}

func initAt(dir, clusterName string, now time.Time) error {
	if err := checkName("cluster", clusterName); err != nil {
		return err
	}
	if err := prepareDir(dir, "use the cluster that it belongs to, or give an empty directory",
		authorityCertFile, authorityKeyFile, secretFile); err != nil {
		return err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: clusterName, Organization: []string{"Holdfast cluster authority"}},
		URIs:                  []*url.URL{{Scheme: uriScheme, Host: clusterName, Path: "/authority"}},
		NotBefore:             notBefore,
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		IsCA:                  true,
		MaxPathLenZero:        true, // issues nodes, no further authorities
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("signing the authority of cluster %q: %w", clusterName, err)
	}
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("making the cluster secret: %w", err)
	}
	// ca.crt comes last: where it is, the rest is.
	return writeAll(dir,
		newFile{secretFile, secret, 0o600},
		newFile{authorityKeyFile, keyPEM, 0o600},
		newFile{authorityCertFile, pemCertificate(cert), 0o644})
}

// Issue makes a complete identity for one node in outDir (created with mode 0700 if absent), signed by the authority in
// caDir, which may be the same directory. The certificate carries the node's name as a URI, the addresses, the DNS names,
// localhost and the loopback addresses, and serves as server and as client. It refuses to overwrite.
func Issue(caDir, outDir, node string, addrs []netip.Addr, names []string) error {
	return issueAt(caDir, outDir, node, addrs, names, time.Now())
}

func issueAt(caDir, outDir, node string, addrs []netip.Addr, names []string, now time.Time) error {
	if err := checkName("node", node); err != nil {
		return err
	}
	authority, key, err := loadAuthority(caDir)
	if err != nil {
		return err
	}
	if !now.Before(authority.NotAfter) {
		return fmt.Errorf("the cluster authority in %s ran out on %s: a new one is needed, and new certificates for all nodes",
			caDir, authority.NotAfter.Format(time.DateOnly))
	}
	secret, err := readSecret(filepath.Join(caDir, secretFile))
	if err != nil {
		return err
	}
	if err := prepareDir(outDir, "remove both node.crt and node.key first if the node is to get a new identity",
		nodeCertFile, nodeKeyFile); err != nil {
		return err
	}
	nodeKey, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	template, err := nodeTemplate(authority, node, addrs, names, now)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, authority, nodeKey.Public(), key)
	if err != nil {
		return fmt.Errorf("signing the certificate of node %q: %w", node, err)
	}
	if err := writeShared(outDir, secret, pemCertificate(authority.Raw)); err != nil {
		return err
	}
	return writeAll(outDir, newFile{nodeKeyFile, keyPEM, 0o600}, newFile{nodeCertFile, pemCertificate(cert), 0o644})
}

func nodeTemplate(authority *x509.Certificate, node string, addrs []netip.Addr, names []string, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	cluster := authority.Subject.CommonName
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: node, Organization: []string{"Holdfast node of " + cluster}},
		URIs:                  []*url.URL{nodeURI(cluster, node)},
		NotBefore:             notBefore,
		NotAfter:              now.AddDate(nodeYears, 0, 0),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	for _, name := range append([]string{ServerName, "localhost"}, names...) {
		if err := checkName("DNS", name); err != nil {
			return nil, fmt.Errorf("certificate of node %q: %w", node, err)
		}
		if !slices.Contains(template.DNSNames, name) {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	seen := map[netip.Addr]bool{}
	for _, addr := range append(loopback, addrs...) {
		addr = addr.Unmap().WithZone("")
		if !addr.IsValid() || addr.IsUnspecified() {
			return nil, fmt.Errorf("certificate of node %q: %q is not an address of a node", node, addr)
		}
		if !seen[addr] {
			seen[addr] = true
			template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
		}
	}
	return template, nil
}

func loadAuthority(dir string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	authority, err := readCertificate(filepath.Join(dir, authorityCertFile))
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, authorityKeyFile)
	data, err := readPrivate(path)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, nil, fmt.Errorf("%s is not a PEM file: restore it from the backup of the first node", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s is damaged (%w): restore it from the backup of the first node", path, err)
	}
	key, isECDSA := parsed.(*ecdsa.PrivateKey)
	if !isECDSA || !key.PublicKey.Equal(authority.PublicKey) {
		return nil, nil, fmt.Errorf("%s is not the key of the authority in %s: both must come from the same holdfast init",
			path, authorityCertFile)
	}
	return authority, key, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s must hold exactly one certificate in PEM form: copy it again from the first node", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): copy it again from the first node", path, err)
	}
	return cert, nil
}

// writeShared puts the files that all nodes have in common into a node's directory. Files that are already there must
// be the same: they belong to another cluster otherwise.
func writeShared(dir string, secret, authorityPEM []byte) error {
	for _, f := range []newFile{{secretFile, secret, 0o600}, {authorityCertFile, authorityPEM, 0o644}} {
		path := filepath.Join(dir, f.name)
		present, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := writeAll(dir, f); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("reading what is already in %s: %w", dir, err)
		case !bytes.Equal(present, f.data):
			return fmt.Errorf("%s belongs to another cluster: give the node an empty directory", path)
		}
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func pemCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
