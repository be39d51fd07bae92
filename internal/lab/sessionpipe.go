package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"
)

// pipe is a connection to a broker that OpenSSH's ssh carries: what is written to its input comes out at the broker.
type pipe struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	cancel  context.CancelFunc
}

// brokerSubsystem is what a broker's door has (docs/broker.md, "Opening a session").
const brokerSubsystem = "holdfast-broker"

// dialBroker connects to a broker's door as a user.
func (o launchOrder) dialBroker(broker brokerPlace) (net.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background()) // a connection outlives the request that it was made for
	argv := append(sshOptions(o.Known, o.Key), "-p", fmt.Sprint(broker.Port), "-s", o.Who+"@"+broker.Address, brokerSubsystem)
	p := &pipe{command: exec.CommandContext(ctx, "ssh", argv...), cancel: cancel}
	var err error
	if p.in, err = p.command.StdinPipe(); err == nil {
		p.out, err = p.command.StdoutPipe()
	}
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("running ssh: %w", err)
	}
	return p, nil
}

func (p *pipe) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *pipe) Write(b []byte) (int, error) { return p.in.Write(b) }

// Close ends ssh.
func (p *pipe) Close() error {
	p.cancel()
	_ = p.command.Wait() // it was killed, and says so
	return nil
}

// The rest of a net.Conn. Deadlines are the caller's: who gives up closes the pipe.

func (p *pipe) LocalAddr() net.Addr              { return pipeAddress{} }
func (p *pipe) RemoteAddr() net.Addr             { return pipeAddress{} }
func (p *pipe) SetDeadline(time.Time) error      { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

type pipeAddress struct{}

func (pipeAddress) Network() string { return "pipe" }
func (pipeAddress) String() string  { return "ssh" }
