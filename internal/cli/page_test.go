package cli

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// A time that is not known is not a very long time.
func TestAgo(t *testing.T) {
	p := &page{now: now}
	for _, c := range []struct {
		stamp *timestamppb.Timestamp
		want  string
	}{
		{nil, "-"}, {timestamppb.New(time.Time{}), "-"}, {&timestamppb.Timestamp{}, "-"},
		{before(-time.Second), "0s"}, {before(5 * time.Second), "5s"}, {before(51 * time.Hour), "2d3h"},
	} {
		if got := p.ago(c.stamp); got != c.want {
			t.Errorf("%v: %q, want %q", c.stamp, got, c.want)
		}
	}
}
