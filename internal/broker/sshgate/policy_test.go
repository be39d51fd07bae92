package sshgate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/broker/token"
)

func text(s string) []byte { return ssh.Marshal(textRequest{s}) }

// TestRequests: what may be asked for in a session channel, by what the token allows.
func TestRequests(t *testing.T) {
	for _, c := range []struct {
		may     token.Channels
		proof   token.Proof
		kind    string
		payload []byte
		started bool
		do      action
		starts  string
	}{
		{token.Shell, 0, "shell", nil, false, forward, "shell"},
		{token.Exec, 0, "shell", nil, false, refuse, ""},
		{token.Shell, 0, "shell", nil, true, refuse, ""},
		{token.Exec, 0, "exec", text("id"), false, forward, "exec"},
		{token.Exec, 0, "exec", []byte{0, 0, 0, 9}, false, refuse, ""},
		{token.Shell | token.SFTP | token.SCP, 0, "exec", text("id"), false, refuse, ""},
		{token.SCP, 0, "exec", text("scp -t -r /tmp/x"), false, forward, "scp"},
		{token.Exec, 0, "exec", text("scp -f a"), false, forward, "scp"},
		{token.SFTP, 0, "subsystem", text("sftp"), false, forward, "sftp"},
		{token.Exec, 0, "subsystem", text("sftp"), false, refuse, ""},
		{token.AllChannels, 0, "subsystem", text("netconf"), false, refuse, ""},
		{token.Shell, 0, "pty-req", nil, false, forward, ""},
		{token.SFTP, 0, "pty-req", nil, false, refuse, ""},
		{token.Shell, 0, "pty-req", nil, true, refuse, ""},
		{token.Shell, 0, "env", ssh.Marshal(environmentRequest{"LC_ALL", "C"}), false, forward, ""},
		{token.Shell, 0, "env", ssh.Marshal(environmentRequest{"LD_PRELOAD", "x"}), false, ignore, ""},
		{token.Shell, 0, "env", ssh.Marshal(environmentRequest{"LANG", "C"}), true, ignore, ""},
		{token.Shell, 0, "env", ssh.Marshal(environmentRequest{"LANGUAGE", "C"}), false, ignore, ""},
		{token.Shell, 0, "window-change", nil, true, forward, ""},
		{token.Shell, 0, "signal", nil, true, forward, ""},
		{token.Shell, 0, "auth-agent-req@openssh.com", nil, false, refuse, ""},
		{token.AgentForward, 0, "auth-agent-req@openssh.com", nil, false, forward, ""},
		{token.Shell, token.ForwardedAgent, "auth-agent-req@openssh.com", nil, false, settle, ""},
		{token.Shell, 0, "x11-req", nil, false, refuse, ""},
		{token.X11, 0, "x11-req", nil, false, forward, ""},
		{token.AllChannels, 0, "something@example.com", nil, false, refuse, ""},
	} {
		r := rules{may: c.may, proof: c.proof, environment: []string{"LANG", "LC_*"}}
		got := r.request(c.kind, c.payload, c.started)
		if got.do != c.do || got.starts != c.starts || (got.do == refuse) != (got.reason != "") {
			t.Errorf("%v: %s %q, started %v: %+v, want %d %q", c.may, c.kind, c.payload, c.started, got, c.do, c.starts)
		}
	}
}

// TestCopiesFiles: the permission for scp is none for commands, whatever they look like.
func TestCopiesFiles(t *testing.T) {
	for command, want := range map[string]bool{
		"scp -t /tmp": true, "scp -f a": true, "scp -v -r -p -t -- /tmp/x": true, "scp -d -t dir": true, "scp -t '/tmp/a b;c'": true,
		"scp": false, "scp -t": false, "scp /tmp": false, "scp -t -r": false, "scp a b": false, "scp -S sh -t x": false, "scp -oProxyCommand=id -t x": false,
		"scp -t a; id": false, "scp -t $(id)": false, "scp -t `id`": false, "scp -t a\nid": false, "scp -t a|id": false, "scp -t 'a' ; id ''": false, "scp -t 'a": false,
		"scpx -t a": false, "/tmp/scp -t a": false, "scp -t \"$(id)\"": false, "scp -t a > b": false,
	} {
		if got := copiesFiles(command); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}

// TestChannels: where channels lead.
func TestChannels(t *testing.T) {
	target := token.Target{Host: "db1", Port: 22}
	direct := func(host string, port uint32) []byte { return ssh.Marshal(directRequest{host, port, "", 0}) }
	for _, c := range []struct {
		may   token.Channels
		kind  string
		extra []byte
		want  route
	}{
		{token.Shell, "session", nil, toSession},
		{token.Jump, "direct-tcpip", direct("db1", 22), toTarget},
		{token.Jump, "direct-tcpip", direct("db1", 23), nowhere},
		{token.Jump, "direct-tcpip", direct("db2", 22), nowhere},
		{token.LocalForward, "direct-tcpip", direct("db1", 22), throughTarget},
		{token.LocalForward, "direct-tcpip", direct("web", 80), throughTarget},
		{token.LocalForward | token.Jump, "direct-tcpip", direct("DB1", 22), toTarget},
		{token.LocalForward | token.Jump, "direct-tcpip", direct("web", 80), throughTarget},
		{token.Tunnel, "direct-tcpip", direct("db1", 22), toTarget},
		{token.Tunnel, "direct-tcpip", direct("DB1.", 22), toTarget},
		{token.Tunnel, "direct-tcpip", direct("db1", 23), nowhere},
		{token.Tunnel, "direct-tcpip", direct("db2", 22), nowhere},
		{token.Tunnel, "direct-tcpip", []byte{1}, nowhere},
		{token.Tunnel, "session", nil, nowhere},
		{token.Tunnel, "direct-streamlocal@openssh.com", nil, nowhere},
		{token.AllChannels, "direct-tcpip", []byte{1}, nowhere},
		{token.Shell, "direct-tcpip", direct("db1", 22), nowhere},
		{token.AllChannels, "direct-streamlocal@openssh.com", nil, nowhere},
		{token.AllChannels, "tun@openssh.com", nil, nowhere},
	} {
		got, what, reason := rules{may: c.may}.channel(c.kind, c.extra, target)
		if got != c.want || (got == nowhere) != (reason != "") || (got == nowhere) != (what == "") {
			t.Errorf("%v: %s %q goes to %d as %q: %q, want %d", c.may, c.kind, c.extra, got, what, reason, c.want)
		}
	}
}

// TestCertificateExtensions: the target's own sshd refuses what the token does not allow.
func TestCertificateExtensions(t *testing.T) {
	for may, want := range map[token.Channels]int{token.SFTP: 0, token.Shell: 1, token.LocalForward: 1, token.AllChannels: 4, token.Tunnel: 0} {
		if got := (rules{may: may}).certificate(); len(got) != want {
			t.Errorf("%v: %v", may, got)
		}
	}
}

// sftpPacket makes a packet from a kind and parts: texts get their length.
func sftpPacket(kind byte, parts ...any) []byte {
	body := []byte{kind, 0, 0, 0, 1}
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(p))), p...)
		case uint32:
			body = binary.BigEndian.AppendUint32(body, p)
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestFileNames: what is done to which file is told however the bytes arrive, and what is not understood is left alone.
func TestFileNames(t *testing.T) {
	stream := bytes.Join([][]byte{
		{0, 0, 0, 5, 1, 0, 0, 0, 3}, // the beginning: version 3
		sftpPacket(sftpOpen, "/in", uint32(1), uint32(0)), sftpPacket(sftpOpen, "/out", uint32(0x1a), uint32(0)),
		sftpPacket(6, "handle", uint32(0), uint32(0), strings.Repeat("x", 40_000)), // a write
		sftpPacket(sftpRename, "/a", "/b"), sftpPacket(sftpExtended, "posix-rename@openssh.com", "/c", "/d"), sftpPacket(sftpExtended, "statvfs@openssh.com", "/"),
		sftpPacket(sftpRemove, "/e\x1b[2J"), sftpPacket(sftpMakeDirectory, "/f"), sftpPacket(sftpRemoveDirectory, "/g"), sftpPacket(sftpSymlink, "/h", "/i"),
		{0, 0, 0, 1, sftpOpen}, // too short for what it says to be
		sftpPacket(sftpOpen, strings.Repeat("/long", 4000), uint32(1)), sftpPacket(sftpOpenDirectory, "/j"),
		sftpPacket(sftpOpen, "/padded", uint32(1), uint32(0), strings.Repeat("x", 40_000)), sftpPacket(sftpRemove, "/k"),
	}, nil)
	want := []string{"sftp read /in", "sftp write /out", "sftp rename /a to /b", "sftp rename /c to /d", "sftp remove /e?[2J", "sftp make directory /f", "sftp remove directory /g", "sftp link /h and /i", "sftp list /j", "sftp read /padded", "sftp remove /k"}
	rapid.Check(t, func(t *rapid.T) {
		var f fileNames
		var got []string
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 60_000).Draw(t, "bytes"))
			got = append(got, f.write(rest[:n])...)
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
	var f fileNames
	if got := f.write(append([]byte{0xff, 0xff, 0xff, 0xff, 3}, stream...)); got != nil || !f.lost {
		t.Errorf("what is not sftp was read as %q", got)
	}
}

// FuzzFileNames: whatever a client sends, little of it is kept.
func FuzzFileNames(f *testing.F) {
	f.Add(sftpPacket(sftpOpen, "/in", uint32(1)), 3)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		var names fileNames
		step = max(1, step%1000)
		for rest := data; len(rest) > 0; rest = rest[min(step, len(rest)):] {
			for _, what := range names.write(rest[:min(step, len(rest))]) {
				if strings.ContainsAny(what, "\x1b\n") {
					t.Errorf("%q", what)
				}
			}
			if len(names.packet) > maxNames+4 {
				t.Fatalf("%d bytes are kept", len(names.packet))
			}
		}
	})
}

// FuzzRequests: no payload makes the policy fail, and nothing is forwarded that the token does not allow.
func FuzzRequests(f *testing.F) {
	f.Add("exec", text("scp -t a"), uint16(token.SCP))
	f.Add("env", ssh.Marshal(environmentRequest{"LANG", "C"}), uint16(token.Shell))
	f.Fuzz(func(t *testing.T, kind string, payload []byte, may uint16) {
		r := rules{may: token.Channels(may) & token.Everything, environment: []string{"LC_*"}}
		if v := r.request(kind, payload, false); v.starts != "" && r.may&(token.Shell|token.Exec|token.SCP|token.SFTP) == 0 {
			t.Errorf("%v starts %s", r.may, v.starts)
		}
		r.channel(kind, payload, token.Target{Host: "a", Port: 1})
		_ = fmt.Sprint(r.global(kind))
	})
}
