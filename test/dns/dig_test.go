package dns

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDigMatrix asks what an administrator would ask with dig, and looks for what dig shows. Rows of the public reports
// 13 and 15 (dns-violations 58 and 59, dnsdist 10006, Consul 1813) are among them.
func TestDigMatrix(t *testing.T) {
	dig, err := exec.LookPath("dig")
	if err != nil {
		t.Skip("dig is not installed (Debian package bind9-dnsutils)")
	}
	on := addresses("127.0.0.31")
	port := freePort(t)
	startServer(t, port, on)
	for _, c := range []struct {
		args string
		want []string // regular expressions that the output matches
		not  []string // and does not
	}{
		{"cluster.company.com A", []string{"status: NOERROR", "flags: qr aa rd;", `(?m)^cluster\.company\.com\.\s+0\s+IN\s+A\s+10\.10\.`, "EDNS: version: 0, flags:; udp: 1232", "COOKIE: [0-9a-f]{48} \\(good\\)"}, nil},
		{"cluster.company.com A +noedns", []string{"status: NOERROR", "ADDITIONAL: 0"}, []string{"OPT PSEUDOSECTION"}},
		{"cluster.company.com A +nocookie", []string{"status: NOERROR"}, []string{"COOKIE"}},
		{"cluster.company.com A +tcp", []string{"status: NOERROR", `\(TCP\)`}, nil},
		{"cluster.company.com A +edns=1 +noednsneg", []string{"status: BADVERS", "EDNS: version: 0"}, []string{"ANSWER SECTION"}},
		{"cluster.company.com A +ednsopt=65001:abcd", []string{"status: NOERROR"}, []string{"OPT=65001"}},
		{"cluster.company.com A +ednsflags=0x7fff", []string{"status: NOERROR", "flags:; udp"}, []string{"MBZ"}},
		{"cluster.company.com A +nsid", []string{"status: NOERROR"}, []string{"NSID"}},
		{"cluster.company.com A +dnssec", []string{"flags: do; udp: 1232"}, []string{"RRSIG"}},
		{"cluster.company.com A +subnet=192.0.2.0/24", []string{"CLIENT-SUBNET: 192.0.2.0/24/0"}, nil},
		{"cluster.company.com A +cdflag +norecurse", []string{"flags: qr aa cd;"}, []string{" ra"}},
		{"cluster.company.com AAAA", []string{"status: NOERROR", "ANSWER: 0, AUTHORITY: 1", `cluster\.company\.com\.\s+5\s+IN\s+SOA\s+cluster-ns1\.company\.com\. hostmaster\.cluster\.company\.com\. 7 `}, nil},
		{"cluster.company.com NS", []string{`IN\s+NS\s+cluster-ns1\.company\.com\.`, `cluster-ns1\.company\.com\.\s+900\s+IN\s+A\s+127\.0\.0\.31`}, nil},
		{"cluster.company.com SOA", []string{`\s900\s+IN\s+SOA\s`}, nil},
		{"cluster.company.com ANY", []string{"ANSWER: 1", `HINFO\s+"RFC8482" ""`}, nil},
		{"cluster.company.com ANY +notcp", []string{"ANSWER: 1", `HINFO\s+"RFC8482" ""`}, nil},
		{"cluster.company.com AXFR", []string{"Transfer failed"}, nil},
		{"cluster.company.com A +opcode=notify", []string{"status: NOTIMP"}, nil},
		{"cluster.company.com A +opcode=update", []string{"status: NOTIMP"}, nil},
		{"cluster.company.com A +opcode=15", []string{"status: NOTIMP"}, nil},
		{"cluster.company.com A +header-only", []string{"status: (NOERROR|FORMERR)", "QUERY: 0"}, []string{"ANSWER SECTION"}},
		{"CLUSTER.company.com A", []string{`(?m)^;CLUSTER\.company\.com\.`, `(?m)^CLUSTER\.company\.com\.\s+0\s+IN\s+A`}, nil},
		{"b.u.cluster.company.com A", []string{`(?m)^b\.u\.cluster\.company\.com\.\s+0\s+IN\s+A`}, nil},
		{`a\.b.cluster.company.com A`, []string{"status: NOERROR", `(?m)^a\\\.b\.cluster`}, nil},
		{"x.large.company.com A", []string{"status: NXDOMAIN", "flags: qr aa", `large\.company\.com\.\s+5\s+IN\s+SOA`}, nil},
		{"large.company.com A +noedns +ignore", []string{"flags: qr aa tc", "ANSWER: 0"}, nil},
		{"large.company.com A +bufsize=512 +ignore", []string{"flags: qr aa tc"}, nil},
		{"large.company.com A +bufsize=100 +ignore", []string{"flags: qr aa tc"}, nil},
		{"large.company.com A +noedns", []string{"Truncated, retrying in TCP", "ANSWER: 60"}, nil},
		{"large.company.com A +bufsize=4096", []string{"flags: qr aa rd;", "ANSWER: 60"}, []string{"Truncated"}},
		{"company.com A", []string{"status: REFUSED"}, []string{" aa", "SOA"}},
		{"-c CH version.bind TXT", []string{"status: REFUSED"}, nil},
		{"ns1-cluster-ns1.company.com A", []string{`900\s+IN\s+A\s+127\.0\.0\.31`}, nil},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := append([]string{"@" + on[0].String(), "-p", strconv.Itoa(int(port)), "+tries=1", "+time=10", "+qr"}, strings.Fields(c.args)...)
			out, err := exec.CommandContext(t.Context(), dig, args...).CombinedOutput()
			if err != nil && !strings.Contains(c.args, "AXFR") {
				t.Fatalf("dig: %v\n%s", err, out)
			}
			shown := answerOf(string(out))
			for _, pattern := range c.want {
				if !regexp.MustCompile(pattern).MatchString(shown) {
					t.Errorf("no %q in:\n%s", pattern, shown)
				}
			}
			for _, pattern := range c.not {
				if regexp.MustCompile(pattern).MatchString(shown) {
					t.Errorf("%q in:\n%s", pattern, shown)
				}
			}
		})
	}
}

// answerOf is what dig shows from the response on; before it stands the query (+qr).
func answerOf(out string) string {
	if _, response, found := strings.Cut(out, ";; Got answer:"); found {
		if strings.Contains(out, "Truncated, retrying in TCP") {
			return fmt.Sprint(";; Truncated, retrying in TCP\n", response)
		}
		return response
	}
	return out
}
