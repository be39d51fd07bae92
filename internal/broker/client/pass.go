package client

import (
	"errors"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"
)

// maxChannels bounds the channels of one connection that are passed on at a time; the gateway has a bound of its own.
const maxChannels = 128

// side is one end of what is passed on.
type side struct {
	conn     ssh.Conn
	channels <-chan ssh.NewChannel
	requests <-chan *ssh.Request
}

// pass carries everything that two SSH connections say to the other one, until either ends.
func pass(a, b side) {
	slots := make(chan struct{}, maxChannels)
	var all sync.WaitGroup
	for _, way := range [][2]side{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		all.Go(func() { passRequests(from.requests, to.conn) })
		all.Go(func() {
			for n := range from.channels {
				select {
				case slots <- struct{}{}:
				default:
					_ = n.Reject(ssh.ResourceShortage, "holdfast: too many channels")
					continue
				}
				all.Go(func() {
					defer func() { <-slots }()
					passChannel(n, to.conn)
				})
			}
		})
		all.Go(func() {
			_ = from.conn.Wait()
			_ = to.conn.Close()
		})
	}
	all.Wait()
}

// passRequests asks the other side what one side asks of the connection.
func passRequests(from <-chan *ssh.Request, to ssh.Conn) {
	for r := range from {
		ok, answer, err := to.SendRequest(r.Type, r.WantReply, r.Payload)
		if r.WantReply {
			_ = r.Reply(ok && err == nil, answer)
		}
	}
}

// passChannel opens a channel on the other side and carries it.
func passChannel(n ssh.NewChannel, to ssh.Conn) {
	there, thereRequests, err := to.OpenChannel(n.ChannelType(), n.ExtraData())
	if err != nil {
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) {
			_ = n.Reject(refused.Reason, refused.Message)
		} else {
			_ = n.Reject(ssh.ConnectionFailed, "holdfast: the other side is gone")
		}
		return
	}
	here, hereRequests, err := n.Accept()
	if err != nil {
		_ = there.Close()
		go ssh.DiscardRequests(thereRequests)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { passOn(here, hereRequests, there) })
	both.Go(func() { passOn(there, thereRequests, here) })
	both.Wait()
}

// passOn carries what comes from one channel: its data, what goes beside them, and its requests; once that is all, the other one is closed.
func passOn(from ssh.Channel, requests <-chan *ssh.Request, to ssh.Channel) {
	var all, data sync.WaitGroup
	data.Go(func() { _, _ = io.Copy(to, from) })
	data.Go(func() { _, _ = io.Copy(to.Stderr(), from.Stderr()) })
	all.Go(func() {
		data.Wait()
		_ = to.CloseWrite()
	})
	all.Go(func() {
		for r := range requests {
			ok, err := to.SendRequest(r.Type, r.WantReply, r.Payload)
			if r.WantReply {
				_ = r.Reply(ok && err == nil, nil)
			}
		}
	})
	all.Wait()
	_ = to.Close()
}
