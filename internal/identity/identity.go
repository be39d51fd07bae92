// Package identity says who a node is: the cluster's own certificate authority, one certificate for each node, one
// secret that all nodes of the cluster share, and the TLS settings that follow from them.
//
// It guarantees: connections made with its settings are TLS 1.3, both sides show a certificate of this cluster's
// authority, and the node name in the peer's certificate has been checked. Files are written whole or not at all, private
// ones with mode 0600, and existing ones are never overwritten.
//
// An Identity does not change after Load and is safe for concurrent use. The package does not revoke or rotate
// certificates, and it does not carry files between nodes: a node's directory is made by Issue and copied by the operator.
//
// One directory holds one node's identity:
//
//	ca.crt       the authority's certificate (public)
//	ca.key       the authority's key; only where certificates are issued
//	cluster.key  32 random bytes shared by all nodes
//	node.crt     this node's certificate (public)
//	node.key     this node's key
package identity

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// File names inside an identity directory.
const (
	authorityCertFile = "ca.crt"
	authorityKeyFile  = "ca.key"
	secretFile        = "cluster.key"
	nodeCertFile      = "node.crt"
	nodeKeyFile       = "node.key"
)

// secretSize is the length of cluster.key in bytes: the key length of every AEAD and MAC that is derived from it.
const secretSize = 32

// ServerName is a DNS name that every node certificate carries. Clients verify this name and then the node name in the
// URI, not the address they dialled: a node stays itself when its address changes, and a moving address says nothing about
// who holds it.
const ServerName = "node.holdfast.internal"

// uriScheme starts the name of every node: holdfast://CLUSTER/node/NAME.
const uriScheme = "holdfast"

// Identity is what one node shows to others and what it believes of them.
type Identity struct {
	Cluster string // the cluster's name, from the certificate
	Node    string // this node's name, from the certificate
	Paths   Paths

	certificate tls.Certificate // with Leaf set
	authority   *x509.Certificate
	roots       *x509.CertPool
	secret      []byte
}

// Paths are the files of an identity, for programs such as etcd that read them by themselves.
type Paths struct {
	AuthorityCert string
	NodeCert      string
	NodeKey       string
}

// Load reads and checks the identity in dir. It fails when a file is missing, when a private file can be read by
// others, when the key does not belong to the certificate, and when the certificate is not of this authority. It does not
// fail on an expired certificate: see Expiry.
func Load(dir string) (*Identity, error) {
	paths := Paths{
		AuthorityCert: filepath.Join(dir, authorityCertFile),
		NodeCert:      filepath.Join(dir, nodeCertFile),
		NodeKey:       filepath.Join(dir, nodeKeyFile),
	}
	authority, err := readCertificate(paths.AuthorityCert)
	if err != nil {
		return nil, err
	}
	certPEM, err := readFile(paths.NodeCert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readPrivate(paths.NodeKey)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s do not belong together (%w): issue both again", paths.NodeCert, paths.NodeKey, err)
	}
	if err := certificate.Leaf.CheckSignatureFrom(authority); err != nil {
		return nil, fmt.Errorf("%s was not issued by the authority in %s: copy the whole directory that the cluster's init "+
			"or issue made for this node", paths.NodeCert, paths.AuthorityCert)
	}
	cluster, node, err := nodeOf(certificate.Leaf)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", paths.NodeCert, err)
	}
	secret, err := readSecret(filepath.Join(dir, secretFile))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return &Identity{Cluster: cluster, Node: node, Paths: paths, certificate: certificate, authority: authority,
		roots: roots, secret: secret}, nil
}

// Derive returns a 32-byte key for one purpose, the same on every node of the cluster and unrelated to the key of any
// other purpose (HKDF-SHA256, RFC 5869). Purposes are short constant texts such as "dns cookies".
func (id *Identity) Derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, id.secret, nil, "holdfast "+purpose, secretSize)
	if err != nil {
		panic(fmt.Sprintf("identity: deriving a %d-byte key: %v", secretSize, err)) // only a length beyond 8160 fails
	}
	return key
}

// namePattern is what a cluster or node name may be: it becomes part of a URI and of a certificate.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

func checkName(kind, name string) error {
	if !namePattern.MatchString(name) || strings.Contains(name, "..") {
		return fmt.Errorf("%s name %q cannot be used: take 1 to 63 letters, digits, dots, hyphens or underscores, "+
			"with a letter or digit at both ends", kind, name)
	}
	return nil
}

func nodeURI(cluster, node string) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: cluster, Path: "/node/" + node}
}

// nodeOf reads cluster and node name from a certificate's URI. Exactly one URI of ours must be there: with two, it would
// depend on the reader whom the certificate names.
func nodeOf(cert *x509.Certificate) (cluster, node string, err error) {
	var ours []*url.URL
	for _, u := range cert.URIs {
		if u.Scheme == uriScheme {
			ours = append(ours, u)
		}
	}
	if len(ours) != 1 {
		return "", "", fmt.Errorf("the certificate of %q holds %d names of the form %s://CLUSTER/node/NAME, not one: it was "+
			"not issued for a node of a Holdfast cluster", cert.Subject.CommonName, len(ours), uriScheme)
	}
	cluster = ours[0].Host
	node, isNode := strings.CutPrefix(ours[0].Path, "/node/")
	if !isNode || checkName("cluster", cluster) != nil || checkName("node", node) != nil ||
		ours[0].String() != nodeURI(cluster, node).String() {
		return "", "", fmt.Errorf("the certificate of %q names %q, which is no node: expected %s://CLUSTER/node/NAME",
			cert.Subject.CommonName, ours[0], uriScheme)
	}
	return cluster, node, nil
}

func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: run holdfast init if this is the first node; for any other, copy what "+
			"holdfast identity issue NODE writes on the first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the identity: %w", err)
	}
	return data, nil
}

// readPrivate refuses a secret that other users may read, as ssh does: who copied it carelessly should learn it now.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by other users (mode %04o): run chmod 600 %s, and issue a new identity if "+
			"others may have copied it", path, info.Mode().Perm(), path)
	}
	return readFile(path)
}

func readSecret(path string) ([]byte, error) {
	secret, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	if len(secret) != secretSize || bytes.Equal(secret, make([]byte, secretSize)) {
		return nil, fmt.Errorf("%s is damaged (%d bytes, expected %d random ones): copy it from another node of the cluster",
			path, len(secret), secretSize)
	}
	return secret, nil
}
