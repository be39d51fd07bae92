package api

import (
	"context"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast/holdfast/internal/api/holdfastv1/holdfastv1connect"
)

// dialTimeout bounds the opening of a connection.
const dialTimeout = 5 * time.Second

// maxLocalAnswer bounds what a client takes from an agent: ListInterfaces of 4,096 addresses has about a megabyte.
const maxLocalAnswer = 64 << 20

// LocalClient talks to the agent behind a Unix socket.
type LocalClient struct {
	holdfastv1connect.NodeClient
	holdfastv1connect.BrokerClient
	transport *http.Transport
}

// NewLocalClient returns a client for the agent that listens at path. Nothing is opened before the first call.
func NewLocalClient(path string) *LocalClient {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return NewClientOver(func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) })
}

// NewClientOver returns a client for the agent to which dial connects.
func NewClientOver(dial func(context.Context) (net.Conn, error)) *LocalClient {
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConns:    4,
		IdleConnTimeout: idleTimeout / 2,
	}
	web := &http.Client{Transport: transport}
	return &LocalClient{
		NodeClient:   holdfastv1connect.NewNodeClient(web, "http://holdfast", connect.WithReadMaxBytes(maxLocalAnswer)),
		BrokerClient: holdfastv1connect.NewBrokerClient(web, "http://holdfast", connect.WithReadMaxBytes(maxLocalAnswer)),
		transport:    transport,
	}
}

// Close closes idle connections.
func (c *LocalClient) Close() { c.transport.CloseIdleConnections() }

func ownUID() uint32 { return uint32(os.Geteuid()) }
