package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	probeInterval     = 250 * time.Millisecond
	probeTimeout      = 250 * time.Millisecond
	idleProbeInterval = 2 * time.Second // when nothing is watched
	roundsUntilLost   = 4               // failed rounds before the store counts as unavailable
	patientTimeout    = 3 * time.Second
	slowAnswer        = 100 * time.Millisecond
	fullLookInterval  = 10 * time.Second
	statusTimeout     = 500 * time.Millisecond
)

// watchOver looks after the members on which watches stand: a frozen or cut-off member ends no stream by itself. It also
// keeps this writer's lease and the problems of the store.
//
// A member that does not answer is left only when another one does: when all are slow, moving about helps nobody.
func (c *client) watchOver() {
	var h hindsight
	nextKeep, nextFullLook := time.Now().Add(writerKeepAlive), time.Now()
	for {
		interval := idleProbeInterval
		if c.watches.Load() > 0 {
			interval = probeInterval
		}
		if !sleep(c.ctx, interval) {
			return
		}
		answered, took := c.probeRound()
		if c.ctx.Err() != nil {
			return
		}
		c.report(&h, answered, took)
		if now := time.Now(); now.After(nextKeep) {
			nextKeep = now.Add(writerKeepAlive)
			if lease := c.slots.currentLease(); lease != 0 {
				c.writerGone(c.ctx, lease)
			}
		}
		if now := time.Now(); answered && now.After(nextFullLook) {
			nextFullLook = now.Add(fullLookInterval)
			c.lookAtMember()
		}
	}
}

// probeRound asks the members in use, and for each that is silent looks for one that is not.
func (c *client) probeRound() (answered bool, took time.Duration) {
	took = probeTimeout
	members := c.members()
	for _, m := range members {
		if m != c.preferred() && m.watches.Load() == 0 {
			continue
		}
		if t, ok := c.probe(m); ok {
			answered, took = true, min(t, took)
			continue
		}
		for i := 1; i < len(members); i++ {
			other := after(members, m, i)
			t, ok := c.probe(other)
			if !ok {
				continue
			}
			c.log.Info("leaving a store member that does not answer", "member", m.endpoint, "for", other.endpoint)
			c.current.CompareAndSwap(m, other)
			m.abandon(c.ctx)
			answered, took = true, min(t, took)
			break
		}
	}
	return answered, took
}

func (c *client) probe(m *member) (time.Duration, bool) {
	start := time.Now()
	err := c.once(c.ctx, m, probeTimeout, func(ctx context.Context, m *member) error {
		_, err := m.kv.Range(ctx, c.cheapRead())
		return err
	})
	return time.Since(start), err == nil
}

// hindsight is what the probes so far came to.
type hindsight struct {
	failed int           // rounds in a row
	usual  time.Duration // smoothed time of an answer
}

// report keeps the problems store.unavailable and store.slow.
func (c *client) report(h *hindsight, answered bool, took time.Duration) {
	board, now := c.options.Board, time.Now()
	if h.usual == 0 {
		h.usual = took
	}
	h.usual += (took - h.usual) / 8
	if answered {
		h.failed = 0
	} else if h.failed++; h.failed >= roundsUntilLost {
		// Perhaps it is only slow: give it as much time as a patient caller does.
		ctx, cancel := context.WithTimeout(c.ctx, patientTimeout)
		_, err := c.revision(ctx)
		cancel()
		if c.ctx.Err() != nil {
			return
		}
		answered = err == nil
		if err != nil {
			board.Set(unavailable, "store", err.Error(), now)
		}
	}
	if answered {
		board.Clear(unavailable, "store")
	}
	if h.usual > slowAnswer {
		board.Set(slow, "store", fmt.Sprintf("a read takes about %d ms or more", h.usual.Milliseconds()), now)
	} else if h.usual < slowAnswer/2 {
		board.Clear(slow, "store")
	}
}

// lookAtMember keeps the problems store.full, when nobody writes, and store.outdated.
func (c *client) lookAtMember() {
	ctx, cancel := context.WithTimeout(c.ctx, statusTimeout)
	defer cancel()
	status, err := c.preferred().status.Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return
	}
	c.full.Store(outOfSpace(status))
	c.options.Board.Is(outOfSpace(status), full, "store", "a member has raised the NOSPACE alarm", time.Now())
	c.options.Board.Is(endsLeasesEarly(status.Version), outdated, "store", "a member is etcd "+status.Version, time.Now())
}

func outOfSpace(status *etcdserverpb.StatusResponse) bool {
	return strings.Contains(strings.Join(status.Errors, " "), etcdserverpb.AlarmType_NOSPACE.String())
}

// Health implements Store.
func (c *client) Health(ctx context.Context) Health {
	members := c.members()
	health := Health{Members: make([]MemberHealth, len(members))}
	leaders := make([]uint64, len(members))
	ids := make([]uint64, len(members))
	var mu sync.Mutex // guards the totals
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			h := MemberHealth{Endpoint: m.endpoint}
			status, err := m.status.Status(ctx, &etcdserverpb.StatusRequest{})
			if err != nil {
				h.Problem = err.Error()
			} else {
				h.Reachable, h.SizeBytes, h.ID, h.Learner = true, status.DbSize, status.Header.MemberId, status.IsLearner
				ids[i], leaders[i] = status.Header.MemberId, status.Leader
				h.Leader = status.Leader != 0 && status.Leader == status.Header.MemberId
				mu.Lock()
				health.SizeBytes = max(health.SizeBytes, status.DbSize)
				health.Full = health.Full || outOfSpace(status)
				mu.Unlock()
			}
			health.Members[i] = h
		})
	}
	group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*statusTimeout)
		defer cancel()
		revision, err := c.revision(ctx)
		mu.Lock()
		defer mu.Unlock()
		health.Writable, health.Revision = err == nil, revision
	})
	group.Wait()
	c.nameMembers(ctx, &health, ids, leaders)
	return health
}

// nameMembers adds the members' names and the leader, also one that this client has no endpoint for.
func (c *client) nameMembers(ctx context.Context, health *Health, ids, leaders []uint64) {
	names := c.memberNames(ctx)
	var leader uint64
	for i := range health.Members {
		health.Members[i].Name = names[ids[i]]
		if leaders[i] != 0 {
			leader = leaders[i]
		}
		if health.Members[i].Leader {
			leader = ids[i]
			break
		}
	}
	if leader == 0 {
		return
	}
	if health.Leader = names[leader]; health.Leader == "" {
		health.Leader = fmt.Sprintf("%x", leader)
	}
	for i := range health.Members {
		if health.Members[i].Name == "" {
			health.Members[i].Name = names[ids[i]]
		}
	}
}

func (c *client) memberNames(ctx context.Context) map[uint64]string {
	names := map[uint64]string{}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, m := range c.members() {
		list, err := etcdserverpb.NewClusterClient(m.conn).MemberList(ctx, &etcdserverpb.MemberListRequest{})
		if err != nil {
			continue
		}
		for _, found := range list.Members {
			names[found.ID] = found.Name
		}
		return names
	}
	return names
}
