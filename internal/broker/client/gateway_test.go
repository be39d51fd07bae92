package client

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// gatewayThat is an SSH server with a host key that lets in whom check lets in.
func gatewayThat(t *testing.T, key *Key, check func(user string, key ssh.PublicKey) error) Gateway {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	config := &ssh.ServerConfig{PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		return &ssh.Permissions{}, check(meta.User(), key)
	}}
	config.AddHostKey(key.signer)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, channels, requests, err := ssh.NewServerConn(conn, config)
				if err != nil {
					conn.Close()
					return
				}
				go ssh.DiscardRequests(requests)
				for range channels {
				}
			}()
		}
	}()
	return Gateway{Name: "gw1", Addresses: []string{"127.0.0.1"}, Port: uint16(listener.Addr().(*net.TCPAddr).Port), HostKeys: []string{key.Public()}, Token: "hf1.secret"}
}

func newKey(t *testing.T) *Key {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestImpostor: a gateway that shows another host key than the broker named never sees the token, and neither does one of which no key is known.
func TestImpostor(t *testing.T) {
	var seen atomic.Bool
	mine := newKey(t)
	g := gatewayThat(t, newKey(t), func(user string, key ssh.PublicKey) error {
		seen.Store(user == "hf1.secret" && string(key.Marshal()) == string(mine.signer.PublicKey().Marshal()))
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for want, keys := range map[string][]string{"which the broker does not know": {newKey(t).Public()}, "names no host key": nil} {
		other := g
		other.HostKeys = keys
		if _, _, _, err := Enter(ctx, other, mine, func(string) {}); err == nil || !strings.Contains(err.Error(), want) || seen.Load() {
			t.Errorf("got %v, want %q; it has seen the token: %t", err, want, seen.Load())
		}
	}
	conn, _, _, err := Enter(ctx, g, mine, func(string) {})
	if err != nil || !seen.Load() {
		t.Fatalf("the one with the right key: %v", err)
	}
	conn.Close()
	if at, err := Knock(ctx, g); err != nil || at != "127.0.0.1" {
		t.Errorf("knocking: %q, %v", at, err)
	}
}

// TestKnock: what takes a connection and says nothing, or something else than SSH, is no gateway.
func TestKnock(t *testing.T) {
	for want, says := range map[string]string{"does not answer as an SSH server": "", "answers, but not as an SSH server": strings.Repeat("HTTP/1.1 200 OK\r\n", 1000)} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(says))
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err = Knock(ctx, Gateway{Name: "gw1", Addresses: []string{"127.0.0.1"}, Port: uint16(listener.Addr().(*net.TCPAddr).Port)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		cancel()
		listener.Close()
	}
}

// TestLocalHostKey: the key is made once, and stays.
func TestLocalHostKey(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "ssh")
	first, err := LocalHostKey(folder)
	if err != nil {
		t.Fatal(err)
	}
	second, err := LocalHostKey(folder)
	if err != nil || ssh.FingerprintSHA256(first.PublicKey()) != ssh.FingerprintSHA256(second.PublicKey()) {
		t.Errorf("%v", err)
	}
	entries, _ := os.ReadDir(folder)
	if info, err := os.Stat(filepath.Join(folder, HostKeyFile)); err != nil || info.Mode().Perm() != 0o600 || len(entries) != 1 {
		t.Errorf("%v, %v, %v", info, err, entries)
	}
}

// TestFolder: the session's folder has the token and the key for its user alone, and ssh's settings before the user's own.
func TestFolder(t *testing.T) {
	folder := t.TempDir()
	key := newKey(t)
	p := Program{Gateway: Gateway{Name: "gw1", Port: 2222, HostKeys: []string{newKey(t).Public()}, Token: "hf1.secret"}, Address: "192.0.2.2", Key: key, ForwardAgent: true}
	if err := p.write(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "config"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "Include ~/.ssh/config")
	for _, want := range []string{"User hf1.secret", "HostName 192.0.2.2", "Port 2222", "StrictHostKeyChecking yes", "ProxyCommand none", "ControlPath none", "ForwardAgent yes", "IdentitiesOnly yes"} {
		if !found || !strings.Contains(before, want) {
			t.Errorf("the configuration has no %q before the user's own:\n%s", want, text)
		}
	}
	for _, name := range []string{"config", "key", "known_hosts"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	p.Gateway.HostKeys = nil
	if err := p.write(folder); err == nil {
		t.Error("without a host key of the gateway a session begins")
	}
}

// TestABrokerSetsNothing: whatever a broker answers, it does not become a setting of the user's ssh, of which some run programs.
func TestABrokerSetsNothing(t *testing.T) {
	good := newKey(t).Public()
	for _, c := range []struct{ why, token, address, hostKey string }{
		{"a token of two lines", "hf1.x\n\tProxyCommand touch /tmp/x", "192.0.2.2", good},
		{"a token of two words", "hf1.x -oProxyCommand=x", "192.0.2.2", good},
		{"a token that expands", "hf1.%d${HOME}", "192.0.2.2", good},
		{"no token", "", "192.0.2.2", good},
		{"a token that looks like an option", "-oProxyCommand=x", "192.0.2.2", good},
		{"an address of two lines", "hf1.x", "192.0.2.2\nLocalCommand x", good},
		{"an address with a quote", "hf1.x", `192.0.2.2"`, good},
	} {
		folder := t.TempDir()
		p := Program{Gateway: Gateway{Name: "gw1", Port: 2222, HostKeys: []string{c.hostKey}, Token: c.token}, Address: c.address, Key: newKey(t)}
		if err := p.write(folder); err == nil {
			t.Errorf("%s is used", c.why)
		}
		if entries, _ := os.ReadDir(folder); len(entries) != 0 {
			t.Errorf("%s: %v was written", c.why, entries)
		}
	}

	// Of host keys only the keys count, not what stands around them.
	folder := t.TempDir()
	p := Program{Gateway: Gateway{Name: "gw1", Port: 2222, HostKeys: []string{good + " x\n@cert-authority * " + newKey(t).Public()}, Token: "hf1.x"}, Address: "gw1.company.com", Key: newKey(t)}
	if err := p.write(folder); err != nil {
		t.Fatal(err)
	}
	known, err := os.ReadFile(filepath.Join(folder, "known_hosts"))
	if err != nil || string(known) != "holdfast-gateway "+good+"\n" {
		t.Errorf("%v: %s", err, known)
	}
}
