package cli

import (
	"slices"
	"strings"
	"testing"
)

// TestSSHLine: a command line is read as ssh reads it; what would lead past the gateway is refused.
func TestSSHLine(t *testing.T) {
	for _, c := range []struct {
		line, target, account string
		port                  uint32
		options, command      string
		broker                string
		fails                 string
	}{
		{"postgres@db1", "db1", "postgres", 0, "", "", "", ""},
		{"-l anna -p 2222 web1 ls -l --all", "web1", "anna", 2222, "", "ls -l --all", "", ""},
		{"-vtt -L 8080:a:80 -p2222 anna@web1", "web1", "anna", 2222, "-v -t -t -L 8080:a:80", "", "", ""},
		{"-oLogLevel=DEBUG --broker /b anna@web1 -p 3", "web1", "anna", 0, "-o LogLevel=DEBUG", "-p 3", "/b", ""},
		{"--broker=ssh://b -- anna@web1", "web1", "anna", 0, "", "", "ssh://b", ""},
		{"anna@[2001:db8::1]:2222", "2001:db8::1", "anna", 2222, "", "", "", ""},
		{"anna@2001:db8::1", "2001:db8::1", "anna", 0, "", "", "", ""},
		{"a@b@web1", "web1", "a@b", 0, "", "", "", ""},
		{"-J jump anna@web1", "", "", 0, "", "", "", "-J does not go with"},
		{"-vF file anna@web1", "", "", 0, "", "", "", "-F does not go with"},
		{"-o ProxyCommand=x anna@web1", "", "", 0, "", "", "", "which sets that itself"},
		{"-oUser x anna@web1", "", "", 0, "", "", "", "which sets that itself"},
		{"-p 0 anna@web1", "", "", 0, "", "", "", "is no port"},
		{"--frob anna@web1", "", "", 0, "", "", "", "has no option --frob"},
		{"-l", "", "", 0, "", "", "", "-l needs a value"},
		{"-v", "", "", 0, "", "", "", "needs a target"},
		{"anna@", "", "", 0, "", "", "", "the target is empty"},
	} {
		s := &session{}
		o := s.newOpener()
		cmd := s.sshCommand()
		cmd.ResetFlags()
		o.flags(cmd)
		got, err := splitSSH(cmd, strings.Fields(c.line))
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || exitCode(err) != exitUsage {
				t.Errorf("%s: %v, want %q", c.line, err, c.fails)
			}
			continue
		}
		if err != nil || got.target != c.target || got.account != c.account || got.port != c.port || strings.Join(got.options, " ") != c.options || strings.Join(got.command, " ") != c.command ||
			!slices.Equal(o.brokers, strings.Fields(c.broker)) {
			t.Errorf("%s: %+v, %v, %v", c.line, got, o.brokers, err)
		}
	}
}
