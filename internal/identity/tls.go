package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ServerTLS returns the settings of a listener: TLS 1.3, and a client certificate of this cluster is required. With node
// names given, only these nodes are let in.
func (id *Identity) ServerTLS(nodes ...string) *tls.Config {
	config := id.config(nodes)
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs = id.roots
	return config
}

// ClientTLS returns the settings of a dialler: TLS 1.3, and the server must be a node of this cluster. With node names
// given, it must be one of these.
func (id *Identity) ClientTLS(nodes ...string) *tls.Config {
	config := id.config(nodes)
	config.RootCAs = id.roots
	config.ServerName = ServerName
	return config
}

func (id *Identity) config(nodes []string) *tls.Config {
	expected := slices.Clone(nodes)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.certificate},
		// Runs after the chain has been verified, and, unlike VerifyPeerCertificate, also when a session is resumed.
		VerifyConnection: func(state tls.ConnectionState) error { return id.verify(state, expected) },
	}
}

// verify checks the name in a certificate whose chain has been verified.
func (id *Identity) verify(state tls.ConnectionState, expected []string) error {
	cluster, node, err := peerOf(state)
	if err != nil {
		return err
	}
	if cluster != id.Cluster {
		return fmt.Errorf("the peer is node %q of cluster %q, and this is cluster %q: check the address that was dialled",
			node, cluster, id.Cluster)
	}
	if len(expected) > 0 && !slices.Contains(expected, node) {
		return fmt.Errorf("the peer is node %q, expected %s: check that each node runs with its own identity directory",
			node, strings.Join(expected, " or "))
	}
	return nil
}

// PeerName returns the node name of the other side of a verified connection.
func PeerName(state tls.ConnectionState) (string, error) {
	_, node, err := peerOf(state)
	return node, err
}

func peerOf(state tls.ConnectionState) (cluster, node string, err error) {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", "", errors.New("the peer has shown no verified certificate: connect with a certificate of this cluster")
	}
	return nodeOf(state.VerifiedChains[0][0])
}
