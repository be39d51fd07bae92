package tickle_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/holdfast/holdfast/internal/linux/tickle"
	"github.com/holdfast/holdfast/internal/linux/tickle/tickletest"
)

// space is a network namespace with an Ethernet device, on a thread of its own that dies with the test.
type space struct{ tasks chan func() }

func newSpace(t *testing.T) space {
	t.Helper()
	s := space{make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		made <- unix.Unshare(unix.CLONE_NEWNET)
		for task := range s.tasks {
			task()
		}
	}()
	if err := <-made; err != nil {
		t.Skipf("no permission to make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.tasks) })
	s.must(t, func() error {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0o644); err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "ext0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "peer0"}); err != nil {
			return err
		}
		for _, name := range []string{"ext0", "peer0"} {
			device, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(device)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

func (s space) run(f func() error) error {
	result := make(chan error)
	s.tasks <- func() { result <- f() }
	return <-result
}

func (s space) must(t *testing.T, f func() error) {
	t.Helper()
	if err := s.run(f); err != nil {
		t.Fatal(err)
	}
}

// address puts an address on ext0 or takes it off.
func (s space) address(t *testing.T, prefix netip.Prefix, on bool) {
	t.Helper()
	s.must(t, func() error {
		device, err := netlink.LinkByName("ext0")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(prefix.String())
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if !on {
			return netlink.AddrDel(device, a)
		}
		if err := netlink.AddrAdd(device, a); err != nil {
			return fmt.Errorf("adding %v: %w", prefix, err)
		}
		return nil
	})
}

func TestKernelContract(t *testing.T) {
	s := newSpace(t)
	site := tickletest.Site{
		Four: netip.MustParseAddr("10.0.0.7"), Six: netip.MustParseAddr("fd00::7"), FarFour: netip.MustParseAddr("10.0.0.9"), FarSix: netip.MustParseAddr("fd00::9"),
		Absent: netip.MustParseAddr("10.0.0.8"), AbsentSix: netip.MustParseAddr("fd00::8"),
	}
	s.address(t, netip.MustParsePrefix("10.0.0.100/24"), true) // the way to the far ends, which stays
	s.address(t, netip.MustParsePrefix("fd00::100/64"), true)
	site.SetHere = func(a netip.Addr, here bool) { s.address(t, netip.PrefixFrom(a, a.BitLen()), here) }
	site.SetHere(site.Four, true)
	site.SetHere(site.Six, true)
	tickletest.Contract(t, &tickle.Sender{In: s.run}, site)
}
