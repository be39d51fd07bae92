package identity

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holdfast/holdfast/internal/problem"
)

// clusterOf makes a cluster with one identity directory for each node and loads them.
func clusterOf(t *testing.T, cluster string, nodes ...string) []*Identity {
	t.Helper()
	authority := t.TempDir()
	if err := Init(authority, cluster); err != nil {
		t.Fatal(err)
	}
	var identities []*Identity
	for _, node := range nodes {
		dir := filepath.Join(t.TempDir(), node)
		if err := Issue(authority, dir, node, nil, nil); err != nil {
			t.Fatal(err)
		}
		id, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		identities = append(identities, id)
	}
	return identities
}

func TestFirstNodeSharesTheAuthoritysDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := Init(dir, "prod"); err != nil {
		t.Fatal(err)
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.1.0.1")}
	if err := Issue(dir, dir, "node1", addrs, []string{"node1.example.com"}); err != nil {
		t.Fatal(err)
	}
	id, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id.Cluster != "prod" || id.Node != "node1" {
		t.Errorf("loaded cluster %q node %q", id.Cluster, id.Node)
	}
	leaf := id.certificate.Leaf
	if diff := cmp.Diff([]string{ServerName, "localhost", "node1.example.com"}, leaf.DNSNames); diff != "" {
		t.Errorf("DNS names (-want +got):\n%s", diff)
	}
	var ips []string
	for _, ip := range leaf.IPAddresses {
		ips = append(ips, ip.String())
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "::1", "10.1.0.1", "fd00::1"}, ips); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := leaf.URIs[0].String(); got != "holdfast://prod/node/node1" {
		t.Errorf("URI %s", got)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		options := x509.VerifyOptions{Roots: id.roots, KeyUsages: []x509.ExtKeyUsage{usage}}
		if _, err := leaf.Verify(options); err != nil {
			t.Errorf("use %v: %v", usage, err)
		}
	}
	modes := map[string]os.FileMode{"ca.crt": 0o644, "ca.key": 0o600, "cluster.key": 0o600, "node.crt": 0o644, "node.key": 0o600}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]os.FileMode{}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		got[entry.Name()] = info.Mode().Perm()
	}
	if diff := cmp.Diff(modes, got); diff != "" {
		t.Errorf("files and modes, nothing else left behind (-want +got):\n%s", diff)
	}
}

// Every refusal must leave what is there as it was, and say what to do.
func TestNothingIsOverwritten(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, step := range []error{Init(dir, "prod"), Issue(dir, dir, "node1", nil, nil), Init(other, "prod")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	before := contents(t, dir)
	cases := []struct {
		name   string
		act    func() error
		remedy string
	}{
		{"a second init", func() error { return Init(dir, "prod") }, "give an empty directory"},
		{"a second node", func() error { return Issue(dir, dir, "node2", nil, nil) }, "remove both node.crt and node.key"},
		{"a node of another cluster", func() error {
			for _, name := range []string{"node.crt", "node.key"} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					return err
				}
			}
			before = contents(t, dir)
			return Issue(other, dir, "node1", nil, nil)
		}, "belongs to another cluster"},
	}
	for _, c := range cases {
		err := c.act()
		if err == nil || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.remedy)
		}
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("%s changed the directory:\n%s", c.name, diff)
		}
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(data)
	}
	return all
}

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "node-1", "node_1.rack2", "N1", strings.Repeat("x", 63)} {
		if err := checkName("node", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "a/b", "a b", "a..b", "é", "a@b", "a:1", "..", strings.Repeat("x", 64)} {
		if err := checkName("node", name); err == nil {
			t.Errorf("%q was accepted", name)
		}
		if err := Init(t.TempDir(), name); err == nil {
			t.Errorf("a cluster named %q was made", name)
		}
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	authority, stranger := t.TempDir(), t.TempDir()
	for _, step := range []error{Init(authority, "prod"), Init(stranger, "prod")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	cases := []struct {
		name  string
		spoil func(dir string) error
		says  string
	}{
		{"no certificate", func(d string) error { return os.Remove(filepath.Join(d, "node.crt")) }, "run holdfast init"},
		{"no secret", func(d string) error { return os.Remove(filepath.Join(d, "cluster.key")) }, "run holdfast init"},
		{"readable key", func(d string) error { return os.Chmod(filepath.Join(d, "node.key"), 0o640) }, "chmod 600"},
		{"readable secret", func(d string) error { return os.Chmod(filepath.Join(d, "cluster.key"), 0o604) }, "chmod 600"},
		{"short secret", func(d string) error { return os.WriteFile(filepath.Join(d, "cluster.key"), []byte("x"), 0o600) }, "is damaged"},
		{"empty certificate", func(d string) error { return os.WriteFile(filepath.Join(d, "ca.crt"), nil, 0o644) }, "exactly one certificate"},
		{"another authority", func(d string) error {
			data, err := os.ReadFile(filepath.Join(stranger, "ca.crt"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, "ca.crt"), data, 0o644)
		}, "was not issued by the authority"},
		{"another key", func(d string) error {
			_, key, err := newKey()
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, "node.key"), key, 0o600)
		}, "do not belong together"},
		{"the authority as node", func(d string) error {
			for from, to := range map[string]string{"ca.crt": "node.crt", "ca.key": "node.key"} {
				data, err := os.ReadFile(filepath.Join(authority, from))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(d, to), data, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, "names \"holdfast://prod/authority\", which is no node"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Issue(authority, dir, "node1", nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestIssueNeedsTheAuthoritysOwnKey(t *testing.T) {
	dir := t.TempDir()
	if err := Init(dir, "prod"); err != nil {
		t.Fatal(err)
	}
	_, key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Issue(dir, t.TempDir(), "node1", nil, nil); err == nil || !strings.Contains(err.Error(), "is not the key of the authority") {
		t.Errorf("error %v", err)
	}
}

func TestDerivedKeysAgreeBetweenNodesAndDifferByPurpose(t *testing.T) {
	ids := clusterOf(t, "prod", "node1", "node2")
	if !bytes.Equal(ids[0].Derive("dns cookies"), ids[1].Derive("dns cookies")) {
		t.Error("two nodes of one cluster derived different keys")
	}
	if bytes.Equal(ids[0].Derive("dns cookies"), ids[0].Derive("heartbeats")) {
		t.Error("two purposes share one key")
	}
	if other := clusterOf(t, "prod", "node1")[0]; bytes.Equal(ids[0].Derive("dns cookies"), other.Derive("dns cookies")) {
		t.Error("two clusters share one key")
	}
}

func TestExpiryIsAnnouncedBeforehand(t *testing.T) {
	made := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	if err := initAt(dir, "prod", made); err != nil {
		t.Fatal(err)
	}
	if err := issueAt(dir, dir, "node1", nil, nil, made); err != nil {
		t.Fatal(err)
	}
	id, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	end := made.AddDate(10, 0, 0)
	if !id.Expiry().Equal(end) {
		t.Errorf("runs out %v, want %v", id.Expiry(), end)
	}
	cases := []struct {
		name string
		now  time.Time
		want []string
	}{
		{"new", made, nil},
		{"the clock was set back five years", made.AddDate(-5, 0, 0), nil},
		{"the clock is at its epoch", time.Unix(0, 0), []string{"identity.invalid"}},
		{"61 days left", end.AddDate(0, 0, -61), nil},
		{"59 days left", end.AddDate(0, 0, -59), []string{"identity.expiring"}},
		{"over", end, []string{"identity.invalid"}},
	}
	for _, c := range cases {
		var board problem.Board
		id.Check(&board, c.now)
		var got []string
		for _, active := range board.List() {
			got = append(got, active.Kind.Code)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A node issued late in the authority's life must not outlive it: its own date would promise too much.
func TestNodeDoesNotOutliveTheAuthority(t *testing.T) {
	made := time.Date(2030, 5, 1, 0, 0, 0, 0, time.UTC)
	dir, node := t.TempDir(), t.TempDir()
	if err := initAt(dir, "prod", made); err != nil {
		t.Fatal(err)
	}
	if err := issueAt(dir, node, "node1", nil, nil, made.AddDate(15, 0, 0)); err != nil {
		t.Fatal(err)
	}
	id, err := Load(node)
	if err != nil {
		t.Fatal(err)
	}
	if !id.certificate.Leaf.NotAfter.Equal(made.AddDate(20, 0, 0)) {
		t.Errorf("node certificate ends %v", id.certificate.Leaf.NotAfter)
	}
	if err := issueAt(dir, t.TempDir(), "node2", nil, nil, made.AddDate(21, 0, 0)); err == nil {
		t.Error("issued by an authority that has run out")
	}
}
