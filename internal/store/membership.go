package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
)

// ErrNotYet: the store's members cannot change in this way at this moment; it may be tried again.
var ErrNotYet = errors.New("not at this moment")

// ID is etcd's number for the member.
func (m *Member) ID() uint64 { return uint64(m.etcd.Server.MemberID()) }

// Leads says whether the member leads the store, as far as it knows.
func (m *Member) Leads() bool {
	return m.started.Load() && m.etcd.Server.Leader() == m.etcd.Server.MemberID() && m.running()
}

// Revision is that of the last change in the member's own copy of the store. It asks nobody, and may lag behind the others'.
func (m *Member) Revision() int64 { return m.etcd.Server.KV().Rev() }

func (m *Member) running() bool {
	select {
	case <-m.stopped:
		return false
	default:
		return true
	}
}

// Members lists the store's members as they are now. Which of them answer it does not know, but for itself.
func (m *Member) Members(ctx context.Context) ([]Present, error) {
	if err := m.etcd.Server.LinearizableReadNotify(ctx); err != nil {
		return nil, fmt.Errorf("listing the members of the store: %w", err)
	}
	var out []Present
	for _, found := range m.etcd.Server.Cluster().Members() {
		p := Present{ID: uint64(found.ID), Name: found.Name, Learner: found.IsLearner, Started: len(found.ClientURLs) > 0,
			Leader: found.ID == m.etcd.Server.Leader()}
		if len(found.PeerURLs) > 0 {
			p.Peer = strings.TrimPrefix(found.PeerURLs[0], "https://")
		}
		p.Healthy = p.ID == m.ID()
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Present) int { return strings.Compare(a.Peer, b.Peer) })
	return out, nil
}

// WithHealth adds to the members which of them answer a client.
func WithHealth(members []Present, health Health) []Present {
	out := slices.Clone(members)
	for i := range out {
		at := slices.IndexFunc(health.Members, func(h MemberHealth) bool { return h.ID == out[i].ID })
		out[i].Healthy = out[i].Healthy || at >= 0 && health.Members[at].Reachable
	}
	return out
}

// Take makes one step. Only the leader's member can make all of them. What etcd refuses for the moment (a learner that has not
// caught up, a connection that is too young to be trusted) is ErrNotYet.
func (m *Member) Take(ctx context.Context, step Step) error {
	var err error
	server := m.etcd.Server
	switch step.Kind {
	case AddLearner:
		err = m.addLearner(ctx, step)
	case Promote:
		_, err = server.PromoteMember(ctx, step.ID)
	case RemoveMember:
		_, err = server.RemoveMember(ctx, step.ID)
	case MoveLeader:
		err = server.MoveLeader(ctx, m.ID(), step.ID)
	case Settled, Waiting:
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, etcderrors.ErrLearnerNotReady), errors.Is(err, etcderrors.ErrUnhealthy), errors.Is(err, membership.ErrTooManyLearners):
		return fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	return fmt.Errorf("changing the members of the store: %s: %w", step.Reason, err)
}

func (m *Member) addLearner(ctx context.Context, step Step) error {
	u, err := memberURL(step.Peer)
	if err != nil {
		return err
	}
	urls, err := types.NewURLs([]string{u.String()})
	if err != nil {
		return err
	}
	now := time.Now()
	_, err = m.etcd.Server.AddMember(ctx, *membership.NewMemberAsLearner("", urls, "", &now))
	return err
}

// HasData says whether a data directory holds a member's data.
func HasData(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "member", "wal"))
	return err == nil
}

// asideSuffix begins the name of a data directory that was set aside.
const asideSuffix = ".removed-"

// SetAside renames the data directory of a member that was removed, so that it is never used again, and returns its new name. Only
// the last one is kept.
func SetAside(dir string, now time.Time) (string, error) {
	earlier, err := filepath.Glob(dir + asideSuffix + "*")
	if err != nil {
		return "", err
	}
	for _, old := range earlier {
		err = errors.Join(err, os.RemoveAll(old))
	}
	to := dir + asideSuffix + now.UTC().Format("20060102T150405")
	if renamed := os.Rename(dir, to); renamed != nil {
		return "", fmt.Errorf("setting aside the data of a removed member: %w", errors.Join(renamed, err))
	}
	return to, nil
}
