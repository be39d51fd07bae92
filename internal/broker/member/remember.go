package member

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast/holdfast/internal/broker/fleet"
)

// remembered is what a central manager keeps of its members between two runs of it: what they are, not how they are.
type remembered struct {
	Format  int                    `json:"format"`
	Members map[string]Description `json:"members"`
}

// rememberedFormat is the version of the file, MaxRemembered its bound in bytes.
const (
	rememberedFormat = 1
	MaxRemembered    = 2 * fleet.MaxAnswer
)

// Remember is what is to be kept, if that is something else than the last time.
func (r *Roster) Remember() (text []byte, changed bool) {
	if !r.changed {
		return nil, false
	}
	r.changed = false
	kept := remembered{Format: rememberedFormat, Members: map[string]Description{}}
	for key, e := range r.entries {
		if e.described {
			kept.Members[key] = e.description
		}
	}
	return written(kept), true
}

// Unkept says that what Remember returned could not be kept.
func (r *Roster) Unkept() { r.changed = true }

// Recall takes over what was remembered of members that are still listed. They are as unknown as before. With an error nothing is taken over.
func (r *Roster) Recall(text []byte) error {
	var kept remembered
	if len(text) > MaxRemembered {
		return fmt.Errorf("it has more than %d bytes", MaxRemembered)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&kept); err != nil {
		return fmt.Errorf("it cannot be read: %s", plain(err))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return fmt.Errorf("something follows what is known")
	}
	if kept.Format != rememberedFormat {
		return fmt.Errorf("its format is %d, and %d is known here", kept.Format, rememberedFormat)
	}
	for key, d := range kept.Members {
		if err := d.Check(); err != nil {
			return fmt.Errorf("member %.80q: %w", key, err)
		}
	}
	for key, d := range kept.Members {
		e := r.entries[key]
		size := nodeSize(key, d)
		if e == nil || e.described || r.size-e.size+size > fleet.MaxAnswer {
			continue
		}
		r.size += size - e.size
		e.described, e.description, e.roles, e.size = true, d, fleet.ParseRoles(d.Roles), size
	}
	return nil
}

// Described reports whether it is known of all members what they are.
func (r *Roster) Described() bool {
	for _, e := range r.entries {
		if !e.described {
			return false
		}
	}
	return true
}
