package datagram

import "time"

// SetWallClock has the link read another wall clock. It is for before Serve.
func (l *Link) SetWallClock(wall func() time.Time) { l.wall = wall }
