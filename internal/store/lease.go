package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

// Grant implements Store. The lease's name is drawn here, so that a second try after a lost answer finds the lease that the
// first one made instead of making another.
func (c *client) Grant(ctx context.Context, ttl time.Duration) (LeaseID, time.Duration, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return 0, 0, fmt.Errorf("naming a lease: %w", err)
	}
	id := int64(binary.BigEndian.Uint64(random[:])>>1) | 1 // positive
	var granted int64
	err := c.try(ctx, "granting a lease", func(ctx context.Context, m *member) error {
		response, err := m.lease.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: int64(WholeSeconds(ttl) / time.Second)})
		if err == nil {
			granted = response.TTL
			return nil
		}
		if status.Convert(err).Message() != rpctypes.ErrorDesc(rpctypes.ErrGRPCLeaseExist) {
			return err
		}
		made, err := m.lease.LeaseTimeToLive(ctx, &etcdserverpb.LeaseTimeToLiveRequest{ID: id})
		if err == nil {
			granted = made.GrantedTTL
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return LeaseID(id), time.Duration(granted) * time.Second, nil
}

// KeepAlive implements Store.
func (c *client) KeepAlive(ctx context.Context, id LeaseID) (time.Duration, error) {
	var ttl int64
	err := c.try(ctx, "keeping a lease", func(ctx context.Context, m *member) (err error) {
		ttl, err = m.keepAlive(ctx, id)
		return err
	})
	if err != nil {
		return 0, err
	}
	return time.Duration(ttl) * time.Second, nil
}

// keepAlive uses the protocol's stream for one request: one that stays open would be one more thing that can be frozen.
func (m *member) keepAlive(ctx context.Context, id LeaseID) (int64, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := m.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	// A send that fails says only that the stream is over; Recv says why.
	_ = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)})
	response, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	if response.TTL <= 0 {
		return 0, fmt.Errorf("lease %x: %w", int64(id), ErrLeaseGone)
	}
	return response.TTL, nil
}

// Revoke implements Store.
func (c *client) Revoke(ctx context.Context, id LeaseID) error {
	err := c.try(ctx, "revoking a lease", func(ctx context.Context, m *member) error {
		_, err := m.lease.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(id)})
		return err
	})
	if errors.Is(err, ErrLeaseGone) {
		return nil
	}
	return err
}
