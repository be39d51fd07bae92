package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/api"
	"github.com/holdfast/holdfast/internal/store"
)

// When a majority of the embedded store's members is lost for good, an operator has it rebuilt from one member alone. The others
// join anew by the ordinary way (reseat.go): the roster that the rebuilt store writes no longer has them.

// rebuildLimit bounds the rebuilding: etcd's start, and its first round as a store of one.
const rebuildLimit = 20 * time.Second

// mayRebuild refuses where a rebuilt store could be at odds with what somebody has seen of the old one: then two nodes could each
// believe that an address is theirs.
func (s nodeService) mayRebuild(ctx context.Context, d declaring) error {
	member, client, err := s.seat.survivor()
	if err != nil {
		return err
	}
	if client.Health(ctx).Writable {
		return api.NotNow("nothing was changed: a majority of the store's members answers, so that there is nothing to rebuild; repeat without --force-store")
	}
	if silent := d.silent(); len(silent) > 0 {
		return api.NotNow("nothing was changed: %s neither answers nor is declared dead, and may have seen more of the store than this node; name it too if it is dead", d.names(silent))
	}
	return enough(s.self.Name, member.Revision(), d)
}

// enough refuses where this node's copy of the store lacks what somebody has seen of it.
func enough(self string, copied int64, d declaring) error {
	if seen := d.revision(); copied < seen {
		return api.NotNow("nothing was changed: the copy of the store on %s ends at revision %d, and a node that answers has seen revision %d. Ask the agent of another member whose copy is as new, if there is one; "+
			"otherwise stop the agents of all nodes, start this one, and the others when it is done", self, copied, seen)
	}
	return nil
}

// survivor is the member that runs here, if the store may be rebuilt from it, and this node's client of the store.
func (s *seat) survivor() (*store.Member, store.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.client == nil:
		return nil, nil, api.NotNow("nothing was changed: the store is not embedded in the agents; its own administrator has to bring it back")
	case s.member == nil:
		return nil, nil, api.NotNow("nothing was changed: %s hosts no member of the store that runs, from which it could be rebuilt; ask the agent of a node that does", s.self.Name)
	case s.rebuilding:
		return nil, nil, api.NotNow("nothing was changed: the store is being rebuilt already")
	}
	return s.member, s.client, nil
}

// rebuild makes this node's member the only one of the store.
func (s *seat) rebuild(ctx context.Context, by, reason string, seen int64) error {
	member, _, err := s.survivor()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.rebuilding, s.member = true, nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.rebuilding = false
		s.mu.Unlock()
		s.note()
	}()
	s.event("store.rebuilt", "store", fmt.Sprintf("the store is rebuilt from the member of %s at revision %d, as %s wants it: %s", s.self.Name, seen, by, reason), nil)
	if err := member.Close(); err != nil {
		return api.Unavailable("stopping this node's member of the store, to rebuild it: %v; restart the agent and try again", err)
	}
	if err := s.startWith(store.MemberOptions{Peers: map[string]string{s.self.Name: peerAddress(s.self)}, Alone: true}); err != nil {
		return api.Unavailable("%v", err)
	}
	s.mu.Lock()
	member = s.member
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, rebuildLimit)
	defer cancel()
	if err := member.Wait(ctx); err != nil {
		return api.Unavailable("the store does not answer although it was rebuilt: %v", err)
	}
	return nil
}
