package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxTunnelled bounds the connections that a tunnel carries at a time; the gateway has a bound of its own.
const maxTunnelled = 64

// Through opens the channel of one connection through a tunnel.
type Through func(ctx context.Context) (ssh.Channel, error)

// Dial asks a gateway for a connection to the tunnel's target.
func Dial(gateway ssh.Conn, host string, port uint16) (ssh.Channel, error) {
	channel, requests, err := gateway.OpenChannel("direct-tcpip", ssh.Marshal(struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}{host, uint32(port), "127.0.0.1", 0}))
	if err != nil {
		return nil, err
	}
	go ssh.DiscardRequests(requests)
	return channel, nil
}

// Serve carries each connection that a listener takes through the tunnel, until the context ends. What goes wrong with one is said, and ends that one.
func Serve(ctx context.Context, listener net.Listener, through Through, say func(error)) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxTunnelled)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			say(errors.New("a connection was closed: as many as a tunnel carries are open"))
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			channel, err := through(ctx)
			if err != nil {
				say(err)
				return
			}
			end := context.AfterFunc(ctx, func() { _ = conn.Close(); _ = channel.Close() })
			defer end()
			Carry(conn, conn, channel)
		})
	}
}

// Carry carries bytes both ways until both are done.
func Carry(in io.Reader, out io.Writer, channel ssh.Channel) {
	defer channel.Close()
	there := make(chan struct{})
	go func() {
		defer close(there)
		_, _ = io.Copy(channel, in)
		_ = channel.CloseWrite()
	}()
	_, _ = io.Copy(out, channel)
	if half, ok := out.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		<-there
	}
}
