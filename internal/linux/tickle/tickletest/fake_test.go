package tickletest

import (
	"net/netip"
	"testing"
)

func TestFakeContract(t *testing.T) {
	site := Site{
		Four: netip.MustParseAddr("10.0.0.7"), Six: netip.MustParseAddr("fd00::7"), FarFour: netip.MustParseAddr("10.0.0.9"), FarSix: netip.MustParseAddr("fd00::9"),
		Absent: netip.MustParseAddr("10.0.0.8"), AbsentSix: netip.MustParseAddr("fd00::8"),
	}
	f := New(site.Four, site.Six)
	site.SetHere = f.SetHere
	Contract(t, f, site)
	if sent := f.Sent(); len(sent) != 4 {
		t.Errorf("it sent %+v", sent)
	}
}
