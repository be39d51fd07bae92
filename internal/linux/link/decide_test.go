package link

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissingCapabilities(t *testing.T) {
	const admin, raw = 1 << unix.CAP_NET_ADMIN, 1 << unix.CAP_NET_RAW
	for effective, want := range map[uint32][]string{
		admin | raw: nil,
		admin:       {"lacks CAP_NET_RAW to announce", "AmbientCapabilities=CAP_NET_RAW", "setcap cap_net_raw+ep"},
		raw:         {"lacks CAP_NET_ADMIN to add", "AmbientCapabilities=CAP_NET_ADMIN", "setcap cap_net_admin+ep"},
		0:           {"CAP_NET_ADMIN", "CAP_NET_RAW", "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW", "setcap cap_net_admin,cap_net_raw+ep"},
	} {
		err := missingCapabilities(effective)
		if (err != nil) != (want != nil) {
			t.Errorf("%b: %v", effective, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%b: %q does not say %q", effective, err, w)
			}
		}
	}
}

func TestSettingsAreJudged(t *testing.T) {
	good := map[string]string{
		"net/ipv4/ip_nonlocal_bind": "1", "net/ipv6/ip_nonlocal_bind": "1", "net/ipv4/conf/eth0.5/arp_notify": "1",
		"net/ipv4/conf/all/promote_secondaries": "1", "net/ipv4/conf/eth0.5/promote_secondaries": "0",
		"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/eth0.5/rp_filter": "0",
		"net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/eth0.5/arp_ignore": "0",
		"net/ipv6/conf/eth0.5/disable_ipv6": "0", "net/ipv6/conf/eth0.5/ndisc_notify": "1",
	}
	for _, c := range []struct {
		name, setting, value string
		shared               bool
		want                 string // setting, and ! if it is harmful
	}{
		{name: "all good"},
		{name: "nothing can be read", setting: "none"},
		{"no bind before", "net/ipv4/ip_nonlocal_bind", "0", false, "net.ipv4.ip_nonlocal_bind"},
		{"no notice", "net/ipv4/conf/eth0.5/arp_notify", "0", false, "net.ipv4.conf.eth0/5.arp_notify"},
		{"siblings die", "net/ipv4/conf/all/promote_secondaries", "0", false, "net.ipv4.conf.eth0/5.promote_secondaries"},
		{"IPv6 off", "net/ipv6/conf/eth0.5/disable_ipv6", "1", false, "net.ipv6.conf.eth0/5.disable_ipv6 !"},
		{"strict on one of two", "net/ipv4/conf/eth0.5/rp_filter", "1", true, "net.ipv4.conf.eth0/5.rp_filter !"},
		{"strict for all", "net/ipv4/conf/all/rp_filter", "1", true, "net.ipv4.conf.all.rp_filter !"},
		{"strict, but the only one in its subnet", "net/ipv4/conf/eth0.5/rp_filter", "1", false, ""},
		{"answers for the other", "net/ipv4/conf/all/arp_ignore", "0", true, "net.ipv4.conf.eth0/5.arp_ignore !"},
	} {
		var got []string
		for _, f := range judgeSettings([]Uses{{"eth0.5", true, true, c.shared}}, func(setting string) (string, bool) {
			switch c.setting {
			case "none":
				return "", false
			case setting:
				return c.value, true
			}
			return good[setting], true
		}) {
			harm := ""
			if f.Harmful {
				harm = " !"
			}
			got = append(got, f.Setting+harm)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: found %q, want %q", c.name, text, c.want)
		}
	}
}

// acknowledgement is NLMSG_ERROR as the kernel writes it, with a reason if there is one.
func acknowledgement(number uint32, errno unix.Errno, reason string) []byte {
	native := binary.NativeEndian
	b := native.AppendUint32(nil, 0)
	b = native.AppendUint16(b, unix.NLMSG_ERROR)
	b = native.AppendUint16(b, flagCapped|flagReasons)
	b = native.AppendUint32(b, number)
	b = native.AppendUint32(b, 0)
	b = native.AppendUint32(b, uint32(-int32(errno)))
	b = append(b, make([]byte, headerSize)...)
	if reason != "" {
		b = appendAttribute(b, reasonMessage, append([]byte(reason), 0))
	}
	native.PutUint32(b, uint32(len(b)))
	return b
}

func TestAnswers(t *testing.T) {
	got := answers(append(append(acknowledgement(7, 0, ""), acknowledgement(8, unix.EEXIST, "address already assigned")...),
		acknowledgement(9, unix.ENODEV, "")...))
	if len(got) != 3 || got[7] != nil || !errors.Is(got[8], ErrExists) || !errors.Is(got[9], ErrNoInterface) {
		t.Errorf("answers are %v", got)
	}
	if !strings.Contains(got[8].Error(), "address already assigned") {
		t.Errorf("%v does not give the kernel's reason", got[8])
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(acknowledgement(7, 0, ""))
	f.Add(acknowledgement(8, unix.EEXIST, "address already assigned"))
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, b []byte) { answers(b) })
}

func FuzzChange(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), make([]byte, unix.SizeofIfInfomsg))
	a := Address{Prefix: netip.MustParsePrefix("10.0.0.7/32")}
	f.Add(uint16(unix.RTM_DELADDR), appendAddressRequest(nil, Remove, a, 2, 1)[headerSize:])
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		c, ok := parseChange(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: b})
		if ok && c.Kind == AddressRemoved && !c.Address.IsValid() {
			t.Errorf("%+v has no address", c)
		}
	})
}
