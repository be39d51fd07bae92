package api

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/holdfast/holdfast/internal/api/holdfastv1"
	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
	"github.com/holdfast/holdfast/internal/identity"
)

type peer struct {
	holdfastv1connect.UnimplementedPeerHandler
	held func(context.Context, *pb.HeldRequest) (*pb.HeldResponse, error)
}

func (p peer) Held(ctx context.Context, r *pb.HeldRequest) (*pb.HeldResponse, error) {
	return p.held(ctx, r)
}

// testCluster makes a cluster's authority and the identities of two of its nodes.
func testCluster(t *testing.T, name string) (one, two *identity.Identity) {
	t.Helper()
	dir := t.TempDir()
	if err := identity.Init(filepath.Join(dir, "ca"), name); err != nil {
		t.Fatal(err)
	}
	var out []*identity.Identity
	for _, node := range []string{"node1", "node2"} {
		if err := identity.Issue(filepath.Join(dir, "ca"), filepath.Join(dir, node), node, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil); err != nil {
			t.Fatal(err)
		}
		id, err := identity.Load(filepath.Join(dir, node))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return out[0], out[1]
}

// peerServer serves as node1 and returns its address.
func peerServer(t *testing.T, id *identity.Identity, p peer) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewPeerServer(PeerOptions{Listener: listener, TLS: id.ServerTLS(), Peer: p, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, server)
	return listener.Addr().String()
}

func askHeld(t *testing.T, address string, config *tls.Config, request *pb.HeldRequest) error {
	t.Helper()
	c, err := NewPeerClient(address, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Held(t.Context(), request)
	return err
}

func TestPeersKnowEachOther(t *testing.T) {
	one, two := testCluster(t, "lab")
	address := peerServer(t, one, peer{held: func(ctx context.Context, _ *pb.HeldRequest) (*pb.HeldResponse, error) {
		state, ok := PeerState(ctx)
		if !ok || state.Version != tls.VersionTLS13 {
			t.Errorf("the call came over TLS %x, known %v", state.Version, ok)
		}
		if name, err := identity.PeerName(state); err != nil || name != "node2" {
			t.Errorf("the caller is %q, %v; want node2", name, err)
		}
		return &pb.HeldResponse{}, nil
	}})
	if err := askHeld(t, address, two.ClientTLS("node1"), &pb.HeldRequest{}); err != nil {
		t.Fatal(err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	one, two := testCluster(t, "lab")
	_, stranger := testCluster(t, "other")
	address := peerServer(t, one, peer{held: func(context.Context, *pb.HeldRequest) (*pb.HeldResponse, error) {
		t.Error("a stranger reached the handler")
		return &pb.HeldResponse{}, nil
	}})
	bare := two.ClientTLS("node1")
	bare.Certificates = nil
	wrongCertificate := two.ClientTLS("node1")
	wrongCertificate.Certificates = stranger.ClientTLS().Certificates
	old := two.ClientTLS("node1")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for name, config := range map[string]*tls.Config{
		"no certificate":                         bare,
		"a certificate of another cluster":       wrongCertificate,
		"a client that believes another cluster": stranger.ClientTLS(),
		"a client that expects another node":     two.ClientTLS("node3"),
	} {
		err := askHeld(t, address, config, &pb.HeldRequest{})
		if Ended(err) != Unreachable {
			t.Errorf("%s: outcome %v (%v)", name, Ended(err), err)
		}
	}
	if conn, err := tls.Dial("tcp", address, old); err == nil {
		conn.Close()
		t.Error("TLS 1.2 was taken")
	}
	plain := &http.Transport{TLSClientConfig: two.ClientTLS("node1")} // HTTP/1.1: own TLS settings switch HTTP/2 off
	defer plain.CloseIdleConnections()
	if response, err := (&http.Client{Transport: plain}).Get("https://" + address); err == nil {
		response.Body.Close()
		t.Errorf("HTTP/1.1 was answered with %s", response.Status)
	}
}

func TestPeerMessagesAreBounded(t *testing.T) {
	one, two := testCluster(t, "lab")
	address := peerServer(t, one, peer{})
	c, err := NewPeerClient(address, two.ClientTLS("node1"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Hook(t.Context(), &pb.HookRequest{Address: strings.Repeat("x", maxPeerMessage+1)})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a message over the bound ended with %v", err)
	}
}

func TestSettingsThatLetStrangersInAreRefused(t *testing.T) {
	one, _ := testCluster(t, "lab")
	open := one.ServerTLS()
	open.ClientAuth = tls.RequestClientCert
	for name, config := range map[string]*tls.Config{"none": nil, "no client certificates": open} {
		if _, err := NewPeerServer(PeerOptions{TLS: config, Logger: quiet()}); err == nil {
			t.Errorf("a server with TLS settings %q was made", name)
		}
	}
	for name, config := range map[string]*tls.Config{"none": nil, "unverified": {InsecureSkipVerify: true}} {
		if _, err := NewPeerClient("127.0.0.1:1", config, nil); err == nil {
			t.Errorf("a client with TLS settings %q was made", name)
		}
	}
}
